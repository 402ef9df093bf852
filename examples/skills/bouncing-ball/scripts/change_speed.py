"""Makes a GIF that exists slower or faster: its delays are rewritten, its pictures stay.

    python3 skills/bouncing-ball/scripts/change_speed.py ball.gif slow.gif --times 2
"""

import argparse
import struct
import sys


def delay_places(data):
    """Byte offsets of the delay of every picture, or a ValueError that says what is wrong."""
    if data[:6] not in (b"GIF87a", b"GIF89a"):
        raise ValueError("not a GIF file")
    places = []
    try:
        at = 13 + (3 << ((data[10] & 7) + 1) if data[10] & 0x80 else 0)
        while data[at] != 0x3B:
            if data[at] == 0x21:
                if data[at + 1] == 0xF9:
                    places.append(at + 4)
                at = _skip_blocks(data, at + 2)
            elif data[at] == 0x2C:
                flags = data[at + 9]
                at += 10 + (3 << ((flags & 7) + 1) if flags & 0x80 else 0)
                at = _skip_blocks(data, at + 1)
            else:
                raise ValueError("unknown block 0x%02x at byte %d" % (data[at], at))
    except IndexError:
        raise ValueError("the GIF ends too early") from None
    if not places:
        raise ValueError("the GIF has no delays: it is not animated")
    return places


def _skip_blocks(data, at):
    while data[at]:
        at += data[at] + 1
    return at + 1


def change_speed(data, times=None, delay_ms=None):
    """Returns the GIF with every delay multiplied by times, or set to delay_ms (10 ms steps)."""
    out = bytearray(data)
    for place in delay_places(data):
        old = struct.unpack_from("<H", data, place)[0]
        # 0 means "as fast as the viewer likes", which is 100 ms almost everywhere.
        new = delay_ms / 10 if delay_ms is not None else (old or 10) * times
        struct.pack_into("<H", out, place, min(65535, max(2, round(new))))
    return bytes(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="the GIF to read, e.g. ball.gif of an earlier run")
    parser.add_argument("out", help="the GIF to write; may be the same name")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--times", type=float, help="2 is half as fast, 0.5 twice as fast")
    how.add_argument("--delay", type=float, help="milliseconds per picture")
    options = parser.parse_args()
    value = options.times if options.times is not None else options.delay
    if not value > 0:
        parser.error("--times and --delay must be above 0")
    try:
        with open(options.source, "rb") as file:
            data = file.read()
        changed = change_speed(data, options.times, options.delay)
        with open(options.out, "wb") as file:
            file.write(changed)
    except FileNotFoundError:
        sys.exit("%s: no such file here. Make the GIF again first." % options.source)
    except (OSError, ValueError) as error:
        sys.exit("%s: %s" % (options.source, error))
    places = delay_places(changed)
    before = struct.unpack_from("<H", data, places[0])[0] * 10
    after = struct.unpack_from("<H", changed, places[0])[0] * 10
    print("%s: %d frames, %d ms each before, %d ms now" % (options.out, len(places), before, after))


if __name__ == "__main__":
    main()
