"""Reads a CSV text into labels and series of numbers."""

import csv
import io
import re

MAX_ROWS = 500
MAX_SERIES = 8
LARGEST, SMALLEST = 1e15, 1e-9


class Table:
    """labels: one text per row. series: [(name, [number or None])], as long as the labels."""

    def __init__(self, label_name, labels, series):
        self.label_name = label_name
        self.labels = labels
        self.series = series


def number(text, comma_is_decimal=False):
    """Reads "1,234.5", "12 %", "$5", "(3)" or "-4e2"; None if it is not a number."""
    text = text.strip().replace("\u2212", "-").replace("\u00a0", "").replace("_", "")
    negative = text.startswith("(") and text.endswith(")")
    if negative:
        text = text[1:-1]
    text = re.sub(r"^([-+]?)\s*[$\u20ac\u00a3\u00a5]\s*", r"\1", text)
    text = re.sub(r"\s*[%$\u20ac\u00a3\u00a5]$", "", text).replace(" ", "")
    text = text.replace(".", "").replace(",", ".") if comma_is_decimal else text.replace(",", "")
    if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?", text):
        return None
    value = float(text)
    # A chart cannot show beyond this, and sums of such values overflow.
    if abs(value) > LARGEST:
        return None
    if abs(value) < SMALLEST:
        value = 0.0
    return -value if negative else value


def read(text, label=None, columns=None):
    """Builds a Table. label and columns are header names; without them the first column is
    the label and every column with a number in most rows is a series. ValueError says what
    is wrong and which columns there are."""
    lines = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    delimiter = max(",;\t|", key=lambda mark: lines.split("\n", 1)[0].count(mark))
    rows = [row for row in csv.reader(io.StringIO(lines), delimiter=delimiter) if any(cell.strip() for cell in row)]
    if len(rows) < 2:
        raise ValueError("the CSV needs a header line and at least one row")
    header = [cell.strip() or "column %d" % (place + 1) for place, cell in enumerate(rows[0])]
    body = [row + [""] * (len(header) - len(row)) for row in rows[1:]]
    if len(body) > MAX_ROWS:
        raise ValueError("%d rows are too many for one chart, at most %d: sum them up first" % (len(body), MAX_ROWS))
    comma = delimiter == ";"
    key = _place(header, label) if label else 0
    if columns:
        chosen = [_place(header, name) for name in columns]
    else:
        chosen = [place for place in range(len(header)) if place != key and _numeric(body, place, comma)]
    if not chosen:
        raise ValueError("no column with numbers. Columns: %s" % ", ".join(header))
    if len(chosen) > MAX_SERIES:
        raise ValueError("%d series are too many, at most %d: name some of %s" % (
            len(chosen), MAX_SERIES, ", ".join(header)))
    series = [(header[place], [number(row[place], comma) for row in body]) for place in chosen]
    for name, values in series:
        if all(value is None for value in values):
            raise ValueError("column %s holds no numbers" % name)
    return Table(header[key], [row[key].strip() for row in body], series)


def _place(header, name):
    folded = [cell.lower() for cell in header]
    if name.strip().lower() not in folded:
        raise ValueError("no column %s. Columns: %s" % (name, ", ".join(header)))
    return folded.index(name.strip().lower())


def _numeric(body, place, comma):
    cells = [row[place] for row in body if row[place].strip()]
    return bool(cells) and sum(number(cell, comma) is not None for cell in cells) * 2 > len(cells)
