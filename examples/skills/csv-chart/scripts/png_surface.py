"""A drawing surface that becomes a PNG file: RGB, edges smoothed."""

import struct
import zlib

import font


def rgb(colour):
    """Reads "#rrggbb"."""
    return tuple(int(colour[place:place + 2], 16) for place in (1, 3, 5))


class PngSurface:
    """width x height pixels. Coordinates are pixels, y grows downwards."""

    def __init__(self, width, height, background="#ffffff"):
        self.width = width
        self.height = height
        self.rows = [bytearray(bytes(rgb(background)) * width) for _ in range(height)]

    def rect(self, x, y, width, height, colour):
        left, right = max(0, round(x)), min(self.width, round(x + width))
        if right <= left:
            return
        line = bytes(rgb(colour)) * (right - left)
        for row in range(max(0, round(y)), min(self.height, round(y + height))):
            self.rows[row][left * 3:right * 3] = line

    def line(self, x1, y1, x2, y2, colour, thickness=1.0):
        """A line with round ends."""
        paint = rgb(colour)
        half = thickness / 2
        dx, dy = x2 - x1, y2 - y1
        length = dx * dx + dy * dy
        for row in range(max(0, int(min(y1, y2) - half - 1)), min(self.height, int(max(y1, y2) + half + 2))):
            # Only the columns near the line in this row are visited, or steep lines cost their whole box.
            left, right = self._reach(x1, y1, x2, y2, row + 0.5, half + 1)
            for column in range(max(0, int(left)), min(self.width, int(right) + 1)):
                px, py = column + 0.5 - x1, row + 0.5 - y1
                along = 0.0 if length == 0 else max(0.0, min(1.0, (px * dx + py * dy) / length))
                away = ((px - along * dx) ** 2 + (py - along * dy) ** 2) ** 0.5
                self._blend(column, row, paint, half + 0.5 - away)

    @staticmethod
    def _reach(x1, y1, x2, y2, y, margin):
        low, high = min(x1, x2) - margin, max(x1, x2) + margin
        if abs(y2 - y1) < 0.01:
            return low, high
        slope = (x2 - x1) / (y2 - y1)
        centre = x1 + (y - y1) * slope
        spread = margin * (1 + abs(slope))
        return max(low, centre - spread), min(high, centre + spread)

    def disc(self, x, y, radius, colour):
        self.line(x, y, x, y, colour, radius * 2)

    def text(self, x, y, words, colour, size=2, anchor="start", turned=False):
        """Writes with the base line at y. size is the pixels of one dot; turned reads upwards."""
        wide = font.width(words) * size
        shift = {"start": 0, "middle": wide / 2, "end": wide}[anchor]
        for column, row in font.dots(words):
            along, up = column * size - shift, (row - font.CAP_ROWS) * size
            if turned:
                self.rect(round(x) + up, round(y) - along - size, size, size, colour)
            else:
                self.rect(round(x + along), round(y) + up, size, size, colour)

    def text_width(self, words, size=2):
        return font.width(words) * size

    def _blend(self, column, row, paint, alpha):
        if alpha <= 0:
            return
        line, place = self.rows[row], column * 3
        if alpha >= 1:
            line[place:place + 3] = bytes(paint)
            return
        for channel in range(3):
            under = line[place + channel]
            line[place + channel] = int(under + (paint[channel] - under) * alpha + 0.5)

    def to_bytes(self):
        """The PNG file: every row with the filter "difference to the row above", which suits flat areas."""
        before = bytes(self.width * 3)
        raw = bytearray()
        for row in self.rows:
            raw.append(2)
            raw += bytes((now - old) & 255 for now, old in zip(row, before))
            before = row
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        return (b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(bytes(raw), 9))
                + _chunk(b"IEND", b""))


def _chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
