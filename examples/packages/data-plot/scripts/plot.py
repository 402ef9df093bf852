"""Statistical plots of a CSV file: plot.py histogram|scatter|box|correlations IN.csv OUT.png [options]"""

import argparse
import csv
import math
import os
import sys

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot

COLOUR, LINE = "#3e63dd", "#f76b15"
FORMATS = (".png", ".svg", ".pdf")
MAX_GROUPS = 40


def number(text):
    try:
        value = float(text.replace(",", "").strip())
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def read(path):
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        sys.exit(f"{path}: {error}")
    if len(rows) < 2:
        sys.exit(f"{path}: a header and at least one row are needed")
    header = [name.strip() for name in rows[0]]
    columns = zip(*(row + [""] * (len(header) - len(row)) for row in rows[1:]))
    return dict(zip(header, ([cell.strip() for cell in column] for column in columns)))


def texts(table, name):
    if name not in table:
        sys.exit(f"no column {name!r}; there are: {', '.join(table)}")
    return table[name]


def numbers(table, name):
    values = np.array([number(text) for text in texts(table, name)])
    if np.isnan(values).all():
        sys.exit(f"column {name!r} has no numbers")
    return values


def left_out(mask):
    missing = int((~mask).sum())
    if missing:
        print(f"{missing} rows without numbers are left out")


def histogram(axes, table, args):
    values = numbers(table, args.column)
    left_out(~np.isnan(values))
    values = values[~np.isnan(values)]
    axes.hist(values, bins=args.bins or "auto", color=COLOUR, edgecolor="white")
    axes.axvline(values.mean(), color=LINE, label=f"mean {values.mean():.4g}")
    axes.set(xlabel=args.column, ylabel="rows")
    axes.legend()
    print(f"{args.column}: {len(values)} values, mean {values.mean():.4g}, median {np.median(values):.4g}, "
          f"standard deviation {values.std(ddof=1) if len(values) > 1 else 0:.4g}")


def scatter(axes, table, args):
    x, y = numbers(table, args.x), numbers(table, args.y)
    both = ~(np.isnan(x) | np.isnan(y))
    left_out(both)
    x, y = x[both], y[both]
    if len(x) < 2 or np.ptp(x) == 0:
        sys.exit(f"a scatter plot needs at least two rows with different values of {args.x}")
    axes.scatter(x, y, color=COLOUR, alpha=0.7)
    axes.set(xlabel=args.x, ylabel=args.y)
    if args.fit:
        slope, start = np.polyfit(x, y, 1)
        ends = np.array([x.min(), x.max()])
        axes.plot(ends, slope * ends + start, color=LINE, label=f"{args.y} = {slope:.4g} {args.x} {start:+.4g}")
        axes.legend()
        r = np.corrcoef(x, y)[0, 1] if np.ptp(y) else 0.0
        print(f"{len(x)} rows, {args.y} = {slope:.4g} * {args.x} {start:+.4g}, r = {r:.3f}")
    else:
        print(f"{len(x)} rows")


def box(axes, table, args):
    values = numbers(table, args.column)
    left_out(~np.isnan(values))
    groups = {}
    for name, value in zip(texts(table, args.by) if args.by else [args.column] * len(values), values):
        if not math.isnan(value):
            groups.setdefault(name, []).append(value)
    if len(groups) > MAX_GROUPS:
        sys.exit(f"{len(groups)} different values of {args.by}, more than {MAX_GROUPS}")
    axes.boxplot(list(groups.values()), medianprops={"color": LINE}, boxprops={"color": COLOUR})
    axes.set_xticks(range(1, len(groups) + 1), list(groups), rotation=30 if len(groups) > 6 else 0)
    axes.set(ylabel=args.column, xlabel=args.by or "")
    for name, group in groups.items():
        print(f"{name}: {len(group)} values, median {np.median(group):.4g}, from {min(group):.4g} to {max(group):.4g}")


def correlations(axes, table, args):
    columns = {name: np.array([number(text) for text in cells]) for name, cells in table.items()}
    columns = {name: values for name, values in columns.items() if not np.isnan(values).any() and np.ptp(values)}
    if len(columns) < 2:
        sys.exit("correlations need at least two columns of numbers, without gaps, that are not all equal")
    matrix = np.corrcoef(list(columns.values()))
    names = list(columns)
    picture = axes.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu")
    axes.figure.colorbar(picture)
    axes.set_xticks(range(len(names)), names, rotation=30)
    axes.set_yticks(range(len(names)), names)
    for row, first in enumerate(names):
        for column, second in enumerate(names):
            axes.text(column, row, f"{matrix[row, column]:.2f}", ha="center", va="center")
            if column > row:
                print(f"{first} and {second}: r = {matrix[row, column]:.3f}")


def size_of(text):
    try:
        width, height = (float(part) for part in text.lower().split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not WIDTHxHEIGHT in inches") from None
    if not (1 <= width <= 40 and 1 <= height <= 40):
        raise argparse.ArgumentTypeError("width and height must be 1 to 40 inches")
    return width, height


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for draw, needed, optional in (
        (histogram, ["--column"], []), (scatter, ["--x", "--y"], []),
        (box, ["--column"], ["--by"]), (correlations, [], []),
    ):
        kind = kinds.add_parser(draw.__name__)
        kind.set_defaults(draw=draw)
        kind.add_argument("source")
        kind.add_argument("target")
        for name in needed:
            kind.add_argument(name, required=True)
        for name in optional:
            kind.add_argument(name)
        kind.add_argument("--title")
        kind.add_argument("--size", type=size_of, default=(9, 6))
        if draw is histogram:
            kind.add_argument("--bins", type=int, choices=range(1, 501), metavar="1..500")
        if draw is scatter:
            kind.add_argument("--fit", action="store_true")
    args = parser.parse_args()
    if os.path.splitext(args.target)[1].lower() not in FORMATS:
        sys.exit(f"{args.target}: the name must end in {', '.join(FORMATS)}")
    figure, axes = pyplot.subplots(figsize=args.size)
    args.draw(axes, read(args.source), args)
    if args.title:
        axes.set_title(args.title)
    figure.tight_layout()
    figure.savefig(args.target, dpi=100)
    print(f"{args.target}: {args.kind}")


if __name__ == "__main__":
    main()
