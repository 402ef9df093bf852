"""GIFBuilder: collects frames and writes an animated GIF (GIF89a, no dependencies)."""

import os
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import lzw
import palette

MAX_FRAMES = 300


class GIFBuilder:
    """Builds one GIF. All frames have the same size and share one colour table.

    delay_ms is how long each frame is shown; GIF stores it in steps of 10 ms and most
    viewers treat less than 20 ms as 100 ms, so smaller values are raised to 20.
    """

    def __init__(self, width=320, height=240, delay_ms=40, fps=None):
        if fps:
            delay_ms = 1000 / fps
        self.width = width
        self.height = height
        self.delay_ms = max(20, delay_ms)
        self.frames = []
        self.delays = []

    def add_frame(self, frame, delay_ms=None):
        """Adds a Frame (see frame.py); delay_ms overrides the default for this one."""
        if (frame.width, frame.height) != (self.width, self.height):
            raise ValueError("a frame is %dx%d, the GIF %dx%d" % (frame.width, frame.height, self.width, self.height))
        if len(self.frames) >= MAX_FRAMES:
            raise ValueError("at most %d frames" % MAX_FRAMES)
        self.frames.append(frame)
        self.delays.append(max(20, delay_ms or self.delay_ms))

    def to_bytes(self, loop=0):
        """Returns the file. loop 0 means for ever, n means n repetitions."""
        if not self.frames:
            raise ValueError("no frames: call add_frame first")
        table, index = palette.build(self.frames)
        bits = max(1, (len(table) - 1).bit_length())
        out = bytearray(b"GIF89a")
        out += struct.pack("<HHBBB", self.width, self.height, 0x80 | 0x70 | (bits - 1), 0, 0)
        for place in range(1 << bits):
            out += bytes(palette.channels(table[place] if place < len(table) else 0))
        out += b"\x21\xff\x0bNETSCAPE2.0\x03\x01" + struct.pack("<H", loop) + b"\x00"
        before = None
        for frame, delay in zip(self.frames, self.delays):
            now = bytes([index[colour] for colour in frame.pixels])
            # Only the rectangle that changed is written: smaller and quicker.
            left, top, wide, high = self._changed(before, now)
            out += b"\x21\xf9\x04\x04" + struct.pack("<H", int(round(delay / 10))) + b"\x00\x00"
            out += b"\x2c" + struct.pack("<HHHHB", left, top, wide, high, 0)
            part = b"".join(
                now[row * self.width + left:row * self.width + left + wide] for row in range(top, top + high)
            )
            code_size = max(2, bits)
            data = lzw.compress(part, code_size)
            out.append(code_size)
            for start in range(0, len(data), 255):
                block = data[start:start + 255]
                out.append(len(block))
                out += block
            out.append(0)
            before = now
        out.append(0x3B)
        return bytes(out)

    def save(self, path, loop=0):
        """Writes the file and returns a line that says what it is."""
        data = self.to_bytes(loop)
        with open(path, "wb") as file:
            file.write(data)
        return "%s: %dx%d, %d frames, %.2f s per loop, %.0f kB" % (
            path, self.width, self.height, len(self.frames), sum(self.delays) / 1000, len(data) / 1000)

    def _changed(self, before, now):
        """The smallest rectangle (left, top, width, height) outside which two frames agree."""
        if before is None:
            return 0, 0, self.width, self.height
        width = self.width
        rows = [row for row in range(self.height) if before[row * width:(row + 1) * width] != now[row * width:(row + 1) * width]]
        if not rows:
            return 0, 0, 1, 1
        top, bottom = rows[0], rows[-1]
        left, right = width, 0
        for row in rows:
            old = before[row * width:(row + 1) * width]
            new = now[row * width:(row + 1) * width]
            first = 0
            while first < left and old[first] == new[first]:
                first += 1
            last = width - 1
            while last > right and old[last] == new[last]:
                last -= 1
            left, right = min(left, first), max(right, last)
        return left, top, right - left + 1, bottom - top + 1
