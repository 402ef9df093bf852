"""Frame: one picture, drawn with smooth edges. Colours are "#rrggbb" or (r, g, b)."""

from array import array

MAX_PIXELS = 2_000_000


def colour(value):
    """Reads "#rrggbb", "#rgb", a few names or (r, g, b) into (r, g, b)."""
    if not isinstance(value, str):
        return tuple(int(part) for part in value)
    text = NAMES.get(value.lower(), value).lstrip("#")
    if len(text) == 3:
        text = "".join(letter * 2 for letter in text)
    if len(text) != 6:
        raise ValueError("a colour is #rrggbb or one of %s, not %r" % (", ".join(sorted(NAMES)), value))
    try:
        return tuple(int(text[place:place + 2], 16) for place in (0, 2, 4))
    except ValueError:
        raise ValueError("a colour is #rrggbb or one of %s, not %r" % (", ".join(sorted(NAMES)), value)) from None


NAMES = {
    "red": "#e5484d", "orange": "#f76b15", "yellow": "#ffc53d", "green": "#30a46c", "teal": "#12a594",
    "blue": "#3e63dd", "purple": "#8e4ec6", "pink": "#e93d82", "white": "#ffffff", "black": "#1c2024",
    "grey": "#8b8d98", "sky": "#cfe8ff", "sand": "#f1e2c6", "night": "#1b2340",
}


def mix(one, two, amount):
    """The colour between two, amount 0 gives the first."""
    return tuple(int(a + (b - a) * amount + 0.5) for a, b in zip(one, two))


def packed(rgb):
    return (rgb[0] << 16) | (rgb[1] << 8) | rgb[2]


class Frame:
    """A picture of width x height pixels, kept as 0xRRGGBB row by row."""

    def __init__(self, width, height, background="#ffffff"):
        if width < 8 or height < 8 or width * height > MAX_PIXELS:
            raise ValueError("width and height must be at least 8 and hold at most %d pixels" % MAX_PIXELS)
        self.width = width
        self.height = height
        self.pixels = array("I", [packed(colour(background))]) * (width * height)

    def copy(self):
        """A frame with the same picture: draw the scene once, then copy it for each frame."""
        other = Frame.__new__(Frame)
        other.width, other.height, other.pixels = self.width, self.height, self.pixels[:]
        return other

    def gradient(self, top, bottom, first=0, last=None):
        """Fills rows first..last with a vertical gradient."""
        top, bottom = colour(top), colour(bottom)
        last = self.height if last is None else last
        for row in range(max(0, first), min(self.height, last)):
            shade = packed(mix(top, bottom, (row - first) / max(1, last - first - 1)))
            self.pixels[row * self.width:(row + 1) * self.width] = array("I", [shade]) * self.width

    def rect(self, left, top, width, height, fill):
        """Fills a rectangle; parts outside the picture are cut."""
        left, right = max(0, int(left)), min(self.width, int(left + width))
        shade = packed(colour(fill))
        for row in range(max(0, int(top)), min(self.height, int(top + height))):
            if right > left:
                start = row * self.width
                self.pixels[start + left:start + right] = array("I", [shade]) * (right - left)

    def ellipse(self, x, y, radius_x, radius_y, fill, opacity=1.0, soft=1.0):
        """Fills an ellipse round (x, y). soft is the width of its edge in pixels: 1 is crisp."""
        self._paint(x, y, radius_x, radius_y, soft, opacity, lambda dx, dy, rgb=colour(fill): rgb)

    def ball(self, x, y, radius_x, radius_y, fill):
        """Draws a lit ball: shaded by the angle to a light at the upper left, with a highlight."""
        base = colour(fill)
        dark = mix(base, (20, 16, 40), 0.55)
        light = mix(base, (255, 255, 255), 0.35)

        def shade(dx, dy):
            depth = max(0.0, 1 - dx * dx - dy * dy) ** 0.5
            lit = -0.45 * dx - 0.6 * dy + 0.66 * depth
            if lit > 0.93:
                return mix(light, (255, 255, 255), min(1.0, (lit - 0.93) * 13))
            # Steps of 1/24 keep the colour table small; the eye does not see them.
            level = round(max(0.0, lit) * 24) / 24
            return mix(dark, base, level / 0.6) if level < 0.6 else mix(base, light, (level - 0.6) / 0.36)

        self._paint(x, y, radius_x, radius_y, 1.0, 1.0, shade)

    def _paint(self, x, y, radius_x, radius_y, soft, opacity, shade):
        """Paints an ellipse; shade gets the place inside it, each of dx and dy in -1..1."""
        if radius_x <= 0 or radius_y <= 0:
            return
        pixels, width = self.pixels, self.width
        radius = min(radius_x, radius_y)
        # Half of a soft edge lies outside the radius.
        reach = 1 + 0.5 * soft / radius
        left, right = max(0, int(x - radius_x * reach)), min(width, int(x + radius_x * reach) + 1)
        top, bottom = max(0, int(y - radius_y * reach)), min(self.height, int(y + radius_y * reach) + 1)
        for row in range(top, bottom):
            dy = (row + 0.5 - y) / radius_y
            for column in range(left, right):
                dx = (column + 0.5 - x) / radius_x
                inside = (1 - (dx * dx + dy * dy) ** 0.5) * radius / soft + 0.5
                if inside <= 0:
                    continue
                alpha = min(1.0, inside) * opacity
                rgb = shade(dx, dy)
                if alpha < 1.0:
                    under = pixels[row * width + column]
                    rgb = mix(((under >> 16) & 255, (under >> 8) & 255, under & 255), rgb, alpha)
                pixels[row * width + column] = packed(rgb)
