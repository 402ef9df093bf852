"""CSV to Excel: to_xlsx.py IN.csv OUT.xlsx [--total COLUMN]... [--chart COLUMN]"""

import argparse
import csv
import datetime
import sys

from openpyxl import Workbook
from openpyxl.chart import BarChart, Reference
from openpyxl.styles import Font
from openpyxl.utils import get_column_letter

MAX_WIDTH = 40


def number(text):
    return float(text) if "." in text or "e" in text.lower() else int(text)


def typed(values):
    """The values of a column as numbers or dates if all of them are, empty ones apart."""
    for read in (number, datetime.date.fromisoformat):
        try:
            return [read(value) if value else None for value in values]
        except ValueError:
            continue
    return values


def read_table(path):
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file) if row]
    if len(rows) < 2:
        sys.exit(f"{path}: a header and at least one row are needed")
    header, body = rows[0], rows[1:]
    for line, row in enumerate(body, start=2):
        if len(row) != len(header):
            sys.exit(f"{path}: row {line} has {len(row)} values, the header has {len(header)}")
    return header, [typed(list(column)) for column in zip(*body)]


def column_of(header, name):
    if name not in header:
        sys.exit(f"no column {name!r}; there are: {', '.join(header)}")
    return header.index(name) + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--total", action="append", default=[])
    parser.add_argument("--chart")
    args = parser.parse_args()
    header, columns = read_table(args.source)
    last = len(columns[0]) + 1
    book = Workbook()
    sheet = book.active
    sheet.append(header)
    for row in zip(*columns):
        sheet.append(row)
    for index, (name, column) in enumerate(zip(header, columns), start=1):
        sheet.cell(1, index).font = Font(bold=True)
        width = max(len(str(value)) for value in [name, *column])
        sheet.column_dimensions[get_column_letter(index)].width = min(width + 2, MAX_WIDTH)
    sheet.freeze_panes = "A2"
    for name in args.total:
        index = column_of(header, name)
        letter = get_column_letter(index)
        cell = sheet.cell(last + 1, index, f"=SUM({letter}2:{letter}{last})")
        cell.font = Font(bold=True)
    if args.chart:
        index = column_of(header, args.chart)
        chart = BarChart()
        chart.title = args.chart
        chart.add_data(Reference(sheet, min_col=index, min_row=1, max_row=last), titles_from_data=True)
        chart.set_categories(Reference(sheet, min_col=1, min_row=2, max_row=last))
        sheet.add_chart(chart, f"{get_column_letter(len(header) + 2)}2")
    book.save(args.target)
    print(f"{args.target}: {last - 1} rows, {len(header)} columns, {len(args.total)} totals, {1 if args.chart else 0} charts")


if __name__ == "__main__":
    main()
