"""The same drawing surface as png_surface, written as SVG."""

from xml.sax.saxutils import escape

import font


class SvgSurface:
    """width x height units."""

    def __init__(self, width, height, background="#ffffff"):
        self.width = width
        self.height = height
        self.parts = []
        self.rect(0, 0, width, height, background)

    def rect(self, x, y, width, height, colour):
        if width > 0 and height > 0:
            self.parts.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>' % (x, y, width, height, colour))

    def line(self, x1, y1, x2, y2, colour, thickness=1.0):
        self.parts.append(
            '<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f" stroke-linecap="round"/>'
            % (x1, y1, x2, y2, colour, thickness))

    def disc(self, x, y, radius, colour):
        self.parts.append('<circle cx="%.1f" cy="%.1f" r="%.1f" fill="%s"/>' % (x, y, radius, colour))

    def text(self, x, y, words, colour, size=2, anchor="start", turned=False):
        turn = ' transform="rotate(-90 %.1f %.1f)"' % (x, y) if turned else ""
        # Characters that XML forbids would make the whole file unreadable.
        legal = "".join(letter for letter in words if letter >= " " and letter not in "\ufffe\uffff")
        self.parts.append(
            '<text x="%.1f" y="%.1f" font-family="sans-serif" font-size="%d" fill="%s" text-anchor="%s"%s>%s</text>'
            % (x, y, size * 9, colour, anchor, turn, escape(legal)))

    def text_width(self, words, size=2):
        return font.width(words) * size

    def to_bytes(self):
        head = '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">' % (
            self.width, self.height, self.width, self.height)
        return (head + "\n" + "\n".join(self.parts) + "\n</svg>\n").encode("utf-8")
