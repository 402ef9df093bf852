"""Independent decoders: they share no code with the skills that they check.

GIF: every frame composed to RGB. PNG: 8-bit RGB and RGBA, no interlacing.
"""

import struct
import zlib


class Gif:
    """A decoded GIF: size, loop count (None = plays once), frames as RGB bytes, delays in ms."""

    def __init__(self, width, height):
        self.width = width
        self.height = height
        self.loop = None
        self.frames = []
        self.delays = []


def _gif_blocks(data, at):
    parts = []
    while True:
        size = data[at]
        at += 1
        if size == 0:
            return b"".join(parts), at
        block = data[at:at + size]
        if len(block) != size:
            raise ValueError("GIF: cut block")
        parts.append(block)
        at += size


def _lzw(data, minimum, expected):
    clear, end = 1 << minimum, (1 << minimum) + 1
    table, width, previous = {}, minimum + 1, None
    fresh = end + 1
    out = bytearray()
    position, total = 0, len(data) * 8
    ended = False
    while position + width <= total:
        first = position >> 3
        code = (int.from_bytes(data[first:first + 4], "little") >> (position & 7)) & ((1 << width) - 1)
        position += width
        if code == clear:
            table, width, previous, fresh = {}, minimum + 1, None, end + 1
            continue
        if code == end:
            ended = True
            break
        if code < clear:
            entry = bytes([code])
        elif code in table:
            entry = table[code]
        elif code == fresh and previous is not None:
            entry = previous + previous[:1]
        else:
            raise ValueError("GIF: code %d is not in the table" % code)
        out += entry
        if previous is not None and fresh < 4096:
            table[fresh] = previous + entry[:1]
            fresh += 1
            if fresh == 1 << width and width < 12:
                width += 1
        previous = entry
    if not ended:
        raise ValueError("GIF: no end code")
    if len(out) != expected:
        raise ValueError("GIF: %d pixels, %d expected" % (len(out), expected))
    return out


def decode_gif(data):
    """Decodes a whole GIF or raises ValueError."""
    if data[:6] != b"GIF89a":
        raise ValueError("GIF: wrong signature %r" % data[:6])
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13
    table = b""
    if flags & 0x80:
        size = 3 << ((flags & 7) + 1)
        table = data[at:at + size]
        at += size
    gif = Gif(width, height)
    canvas = bytearray(width * height * 3)
    delay = 0
    while True:
        kind = data[at]
        at += 1
        if kind == 0x3B:
            break
        if kind == 0x21:
            label = data[at]
            content, at = _gif_blocks(data, at + 1)
            if label == 0xF9:
                delay = struct.unpack_from("<H", content, 1)[0] * 10
            elif label == 0xFF and content[:11] == b"NETSCAPE2.0":
                gif.loop = struct.unpack_from("<H", content, 12)[0]
        elif kind == 0x2C:
            left, top, wide, high, local = struct.unpack_from("<HHHHB", data, at)
            at += 9
            if local & 0xC0:
                raise ValueError("GIF: local tables and interlacing are not expected here")
            if left + wide > width or top + high > height:
                raise ValueError("GIF: a frame leaves the picture")
            minimum = data[at]
            content, at = _gif_blocks(data, at + 1)
            pixels = _lzw(content, minimum, wide * high)
            for row in range(high):
                line = pixels[row * wide:(row + 1) * wide]
                rgb = b"".join(table[index * 3:index * 3 + 3] for index in line)
                start = ((top + row) * width + left) * 3
                canvas[start:start + wide * 3] = rgb
            gif.frames.append(bytes(canvas))
            gif.delays.append(delay)
        else:
            raise ValueError("GIF: unknown block 0x%02x" % kind)
    if at != len(data):
        raise ValueError("GIF: bytes after the end")
    return gif


def decode_png(data):
    """Returns (width, height, RGB bytes) or raises ValueError."""
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("PNG: wrong signature")
    at, packed, header, ended = 8, b"", None, False
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        content = data[at + 8:at + 8 + size]
        check = struct.unpack_from(">I", data, at + 8 + size)[0]
        if zlib.crc32(kind + content) != check:
            raise ValueError("PNG: wrong checksum of %r" % kind)
        at += 12 + size
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", content)
        elif kind == b"IDAT":
            packed += content
        elif kind == b"IEND":
            ended = True
    if header is None or not ended:
        raise ValueError("PNG: no header or no end")
    width, height, depth, colour, _, _, interlace = header
    if depth != 8 or colour not in (2, 6) or interlace:
        raise ValueError("PNG: only plain 8-bit RGB and RGBA")
    step = 3 if colour == 2 else 4
    raw = zlib.decompress(packed)
    stride = width * step
    if len(raw) != (stride + 1) * height:
        raise ValueError("PNG: %d bytes, %d expected" % (len(raw), (stride + 1) * height))
    before = bytearray(stride)
    rows = []
    for row in range(height):
        start = row * (stride + 1)
        line = bytearray(raw[start + 1:start + 1 + stride])
        kind = raw[start]
        if kind in (0, 2):
            # The two filters without a look to the left need no loop over bytes.
            if kind == 2:
                line = bytearray((now + up) & 255 for now, up in zip(line, before))
            before = line
            rows.append(line)
            continue
        for place in range(stride):
            left = line[place - step] if place >= step else 0
            up = before[place]
            if kind == 1:
                line[place] = (line[place] + left) & 255
            elif kind == 3:
                line[place] = (line[place] + (left + up) // 2) & 255
            elif kind == 4:
                corner = before[place - step] if place >= step else 0
                guess = left + up - corner
                near = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))
                line[place] = (line[place] + near[2]) & 255
            else:
                raise ValueError("PNG: unknown filter %d" % kind)
        before = line
        rows.append(line)
    if step == 4:
        rows = [b"".join(line[x:x + 3] for x in range(0, stride, 4)) for line in rows]
    return width, height, b"".join(rows)


def encode_png(width, height, rgb):
    """A plain PNG, to look at a frame of a GIF."""
    raw = b"".join(b"\x00" + rgb[row * width * 3:(row + 1) * width * 3] for row in range(height))

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def colours(rgb):
    """The set of different colours."""
    return set(zip(rgb[0::3], rgb[1::3], rgb[2::3]))
