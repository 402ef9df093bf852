"""LZW as GIF uses it: codes of growing width, least significant bit first."""

MAX_CODE = 4096


def compress(indices, code_size):
    """Compresses palette indices (bytes) into the LZW stream of one GIF image.

    code_size is the number of bits of a pixel, at least 2. The stream starts with a
    clear code and ends with an end code.
    """
    clear = 1 << code_size
    end = clear + 1
    out = bytearray()
    bits = 0
    held = 0
    width = code_size + 1
    table = {}
    next_code = end + 1

    bits |= clear
    held += width
    if not indices:
        bits |= end << held
        held += width
        return bytes(bits.to_bytes((held + 7) // 8, "little"))

    prefix = indices[0]
    for pixel in indices[1:]:
        key = (prefix << 8) | pixel
        known = table.get(key)
        if known is not None:
            prefix = known
            continue
        bits |= prefix << held
        held += width
        while held >= 8:
            out.append(bits & 255)
            bits >>= 8
            held -= 8
        if next_code < MAX_CODE:
            table[key] = next_code
            # The decoder's table lags by one entry, so the width grows one code later.
            if next_code == (1 << width):
                width += 1
            next_code += 1
        else:
            bits |= clear << held
            held += width
            table = {}
            next_code = end + 1
            width = code_size + 1
        prefix = pixel
    bits |= prefix << held
    held += width
    # The last data code may be the one that widens the decoder's codes.
    if next_code == (1 << width) and width < 12:
        width += 1
    bits |= end << held
    held += width
    while held > 0:
        out.append(bits & 255)
        bits >>= 8
        held -= 8
    return bytes(out)
