"""Turns a CSV file into a bar or line chart, as PNG or SVG.

    python3 skills/csv-chart/scripts/chart.py inputs/sales.csv chart.png --kind bar --title "Sales"
"""

import argparse
import math
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import table as csv_table
from png_surface import PngSurface
from svg_surface import SvgSurface

COLOURS = ["#3e63dd", "#f76b15", "#30a46c", "#e5484d", "#8e4ec6", "#12a594", "#c9a227", "#8b8d98"]
INK, FAINT, GRID = "#1c2024", "#60646c", "#e6e8ec"
KINDS = ("bar", "line")


def ticks(low, high, wanted=6):
    """Round numbers that cover low..high: steps of 1, 2, 2.5 or 5 times a power of ten."""
    if low == high:
        low, high = (low - 1, high + 1) if low else (0.0, 1.0)
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [place * step for place in range(first, last + 1)]


def label_of(value, step):
    """A tick as text: thousands as k, M or G, no more decimals than the step needs."""
    for limit, mark in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if step >= limit / 10 and abs(value) >= limit:
            return "%s%s" % (_plain(value / limit, step / limit), mark)
    return _plain(value, step)


def _plain(value, step):
    decimals = 0
    while decimals < 6 and abs(round(step, decimals) - step) > step * 1e-6:
        decimals += 1
    text = "%.*f" % (decimals, value)
    return "0" if float(text) == 0 else text


def short(value):
    """A value above a bar."""
    return "%d" % value if value == int(value) and abs(value) < 1e6 else "%.4g" % value


class Plot:
    """Where the axes stand: from values and places to coordinates of a surface."""

    def __init__(self, surface, data, title, y_label):
        values = [value for _, series in data.series for value in series if value is not None]
        self.marks = ticks(min(0.0, min(values)), max(0.0, max(values)))
        self.step = self.marks[1] - self.marks[0]
        self.left = 34 + max(surface.text_width(label_of(mark, self.step)) for mark in self.marks) + (22 if y_label else 0)
        self.top = 34 + (34 if title else 0) + (30 if len(data.series) > 1 else 0)
        self.right = surface.width - 28
        self.bottom = surface.height - 74
        self.slot = (self.right - self.left) / len(data.labels)

    def y(self, value):
        low, high = self.marks[0], self.marks[-1]
        return self.bottom - (value - low) / (high - low) * (self.bottom - self.top)

    def centre(self, place):
        return self.left + (place + 0.5) * self.slot


def draw(data, surface, kind="bar", title="", y_label=""):
    """Draws a Table onto a surface."""
    plot = Plot(surface, data, title, y_label)
    if title:
        surface.text(24, 44, fit(surface, title, surface.width - 48, 3), INK, 3)
    if len(data.series) > 1:
        legend(surface, data, 78 if title else 42)
    for mark in plot.marks:
        surface.rect(plot.left, plot.y(mark), plot.right - plot.left, 1, GRID)
        surface.text(plot.left - 10, plot.y(mark) + 7, label_of(mark, plot.step), FAINT, 2, "end")
    (bars if kind == "bar" else lines)(surface, data, plot)
    surface.rect(plot.left, plot.y(0) - 1, plot.right - plot.left, 2, FAINT)
    category_labels(surface, data, plot)
    surface.text((plot.left + plot.right) / 2, surface.height - 18, data.label_name, FAINT, 2, "middle")
    if y_label:
        surface.text(30, (plot.top + plot.bottom) / 2, y_label, FAINT, 2, "middle", turned=True)


def bars(surface, data, plot):
    """Groups of bars; values stand above them if there is room."""
    wide = plot.slot * 0.76 / len(data.series)
    for order, (_, values) in enumerate(data.series):
        for place, value in enumerate(values):
            if value is None:
                continue
            left = plot.centre(place) - plot.slot * 0.38 + order * wide
            top, bottom = sorted((plot.y(value), plot.y(0)))
            surface.rect(left, top, max(1, wide - (2 if wide > 6 else 0)), max(1, bottom - top), COLOURS[order])
            if surface.text_width(short(value)) < wide:
                surface.text(left + wide / 2, top - 6 if value >= 0 else bottom + 20, short(value), INK, 2, "middle")


def lines(surface, data, plot):
    """One line per series; a missing value leaves a gap."""
    for order, (_, values) in enumerate(data.series):
        points = [(plot.centre(place), plot.y(value)) if value is not None else None for place, value in enumerate(values)]
        for start, end in zip(points, points[1:]):
            if start and end:
                surface.line(start[0], start[1], end[0], end[1], COLOURS[order], 3)
        if plot.slot > 14:
            for point in filter(None, points):
                surface.disc(point[0], point[1], 5, COLOURS[order])
                surface.disc(point[0], point[1], 2, "#ffffff")
        else:
            for place, point in enumerate(points):
                alone = point and not any(points[near] for near in (place - 1, place + 1) if 0 <= near < len(points))
                if alone:
                    surface.disc(point[0], point[1], 2, COLOURS[order])


def category_labels(surface, data, plot):
    """Labels under the axis: all, or every n-th if they would touch."""
    widest = max(surface.text_width(label) for label in data.labels)
    room = max(40.0, min(widest + 12, 150))
    every = max(1, math.ceil(room / plot.slot))
    for place in range(0, len(data.labels), every):
        words = fit(surface, data.labels[place], plot.slot * every - 8, 2)
        surface.text(plot.centre(place), plot.bottom + 26, words, INK, 2, "middle")


def legend(surface, data, y):
    x = 24
    for order, (name, _) in enumerate(data.series):
        words = fit(surface, name, 160, 2)
        surface.rect(x, y - 13, 14, 14, COLOURS[order])
        surface.text(x + 22, y, words, INK, 2)
        x += 44 + surface.text_width(words)


def fit(surface, words, room, size):
    """Cuts a text to a width, with two dots at the end."""
    # A letter is at least two dots wide: what is beyond that cannot fit.
    longest = int(max(0, room) / (2 * size)) + 1
    if len(words) <= longest and surface.text_width(words, size) <= room:
        return words
    words = words[:longest]
    while words and surface.text_width(words + "..", size) > room:
        words = words[:-1]
    return words + ".." if words else ""


def render(text, out, kind="bar", title="", y_label="", label=None, columns=None, width=960, height=600):
    """Writes the chart of a CSV text to a .png or .svg file and returns a line that says what it shows."""
    if kind not in KINDS:
        raise ValueError("kind must be bar or line, not %r" % kind)
    if not (200 <= width <= 4000 and 150 <= height <= 3000):
        raise ValueError("width must be 200 to 4000, height 150 to 3000")
    if not out.lower().endswith((".png", ".svg")):
        raise ValueError("the file must end in .png or .svg, not %r" % out)
    data = csv_table.read(text, label, columns)
    surface = (SvgSurface if out.lower().endswith(".svg") else PngSurface)(width, height)
    draw(data, surface, kind, title, y_label)
    with open(out, "wb") as file:
        file.write(surface.to_bytes())
    names = ", ".join(name for name, _ in data.series)
    missing = sum(value is None for _, values in data.series for value in values)
    note = "; %d values are missing or no numbers" % missing if missing else ""
    return "%s: %s chart of %s by %s, %d rows%s" % (out, kind, names, data.label_name, len(data.labels), note)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", help="the CSV file, e.g. inputs/sales.csv")
    parser.add_argument("out", help="the image to write: .png or .svg")
    parser.add_argument("--kind", choices=KINDS, default="bar")
    parser.add_argument("--title", default="")
    parser.add_argument("--y-label", default="")
    parser.add_argument("--label", help="column for the axis; default: the first")
    parser.add_argument("--columns", help="columns to draw, separated by commas; default: all with numbers")
    parser.add_argument("--width", type=int, default=960)
    parser.add_argument("--height", type=int, default=600)
    options = parser.parse_args()
    columns = [name for name in options.columns.split(",") if name.strip()] if options.columns else None
    try:
        with open(options.csv, encoding="utf-8-sig", errors="replace", newline="") as file:
            text = file.read()
        print(render(text, options.out, options.kind, options.title, options.y_label, options.label, columns,
                     options.width, options.height))
    except (OSError, ValueError) as error:
        sys.exit("chart: %s" % error)


if __name__ == "__main__":
    main()
