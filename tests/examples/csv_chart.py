"""The scripts of examples/skills/csv-chart, checked by an independent PNG decoder and an XML parser."""

import os
import sys
import xml.etree.ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from check import SKILLS, equal, fails, holds, main, run
from images import colours, decode_png

SCRIPTS = os.path.join(SKILLS, "csv-chart", "scripts")
CHART = os.path.join(SCRIPTS, "chart.py")
SALES = "quarter,north,south\n2025 Q1,120,80\n2025 Q2,150,95\n2025 Q3,90,-20\n2025 Q4,180,140\n"
BLUE, ORANGE = b"\x3e\x63\xdd", b"\xf7\x6b\x15"


def chart(folder, text, out, *options):
    with open(os.path.join(folder, "in.csv"), "w", encoding="utf-8", newline="") as file:
        file.write(text)
    return run(CHART, "in.csv", out, *options, cwd=folder)


def png(folder, text, *options):
    result = chart(folder, text, "out.png", *options)
    equal((result.returncode, result.stderr), (0, ""))
    with open(os.path.join(folder, "out.png"), "rb") as file:
        return decode_png(file.read()), result.stdout


def share(rgb, colour):
    """How many pixels have exactly this colour."""
    found = place = 0
    while (place := rgb.find(colour, place)) >= 0:
        aligned = place % 3 == 0
        found += aligned
        place += 3 if aligned else 1
    return found


def test_bar_chart_shows_both_series(folder):
    (width, height, rgb), said = png(folder, SALES, "--title", "Sales")
    equal((width, height), (960, 600))
    equal(said, "out.png: bar chart of north, south by quarter, 4 rows\n")
    holds(share(rgb, BLUE) > 20000 and share(rgb, ORANGE) > 10000, "the bars are missing")
    holds(share(rgb, b"\xff" * 3) > width * height / 3, "the background is not white")


def test_taller_bars_stand_for_larger_values(folder):
    (width, height, rgb), _ = png(folder, "a,b\nx,10\ny,40\n")
    def bar(first, last):
        return sum(share(rgb[(row * width + first) * 3:(row * width + last) * 3], BLUE) for row in range(height))
    left, right = bar(0, width // 2), bar(width // 2, width)
    holds(3.8 < right / left < 4.2, "%d and %d pixels" % (left, right))


def test_line_chart_draws_a_line(folder):
    rows = "".join("d%d,%d\n" % (day, (day * 7) % 31) for day in range(60))
    (_, _, rgb), _ = png(folder, "day,visits\n" + rows, "--kind", "line")
    holds(share(rgb, BLUE) > 800, "the line is missing")


def test_texts_are_drawn(folder):
    plain = png(folder, SALES)[0][2]
    titled = png(folder, SALES, "--title", "A title", "--y-label", "million EUR")[0][2]
    holds(plain != titled, "title and label change nothing")
    holds(len(colours(titled)) >= 6, "too few colours")


def test_svg_is_well_formed_and_keeps_the_texts(folder):
    text = "name,n\nD\u00fcsseldorf & <K\u00f6ln>,3\nbell\u0007,4\n"
    result = chart(folder, text, "out.svg", "--title", "\u00e9 < \u00f1 & co")
    equal((result.returncode, result.stderr), (0, ""))
    tree = xml.etree.ElementTree.parse(os.path.join(folder, "out.svg"))
    words = {element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")}
    holds({"D\u00fcsseldorf & <K\u00f6ln>", "\u00e9 < \u00f1 & co", "bell"} <= words, repr(words))


def test_numbers_as_people_write_them(folder):
    sys.path.insert(0, SCRIPTS)
    from table import number
    cases = {"1,234.5": 1234.5, " 12 % ": 12, "$5": 5, "-$5.25": -5.25, "(3)": -3, "-4e2": -400, ".5": 0.5,
             "1 000": 1000, "\u22127": -7, "x": None, "": None, "1e999": None, "nan": None, "1e400": None, "--3": None}
    for text, expected in cases.items():
        equal((text, number(text)), (text, expected))
    equal(number("1.234,5", True), 1234.5)


def test_csv_dialects_are_understood(folder):
    sys.path.insert(0, SCRIPTS)
    import table
    data = table.read("\ufeffname;wert;note\r\n\"a;b\";1,5;x\r\nc;2;y\r\n")
    equal((data.labels, data.series), (["a;b", "c"], [("wert", [1.5, 2.0])]))
    data = table.read("k\tv\nx\t1\n\ny\t\nz\tn/a\nw\t4\nu\t4\n")
    equal(data.series, [("v", [1.0, None, None, 4.0, 4.0])])
    equal(table.read(SALES, "quarter", ["South"]).series[0][0], "south")


def test_ticks_are_round_and_cover_the_values(folder):
    sys.path.insert(0, SCRIPTS)
    from chart import label_of, ticks
    for low, high in ((0, 1), (0, 7), (-20, 180), (0, 1e9), (0, 0), (-5, -5), (0, 0.0003), (-1e15, 1e15)):
        marks = ticks(low, high)
        holds(marks[0] <= low and marks[-1] >= high and 3 <= len(marks) <= 14, "%r %r" % ((low, high), marks))
        labels = [label_of(mark, marks[1] - marks[0]) for mark in marks]
        equal(len(set(labels)), len(labels))


def test_missing_values_are_told_and_leave_a_gap(folder):
    result = chart(folder, "a,b\nx,1\ny,\nz,3\n", "out.png", "--kind", "line")
    equal(result.returncode, 0)
    holds("1 values are missing" in result.stdout, result.stdout)


def test_odd_tables_do_not_fail(folder):
    for text in ("a,b\nonly,5\n", "a,b\nx,0\ny,0\n", "a,b\n" + "".join("r%d,%d\n" % (n, n) for n in range(500)),
                 "a,b\n" + "w" * 4000 + ",1\n", "x,\n,3\n", "a,b\n\u6280\u80fd,3\n", "a,b\nx,-1e15\ny,1e15\n"):
        for kind in ("bar", "line"):
            png(folder, text, "--kind", kind, "--width", "300", "--height", "200")


def test_bad_input_is_a_clear_error(folder):
    fails(chart(folder, "", "o.png"), "needs a header line")
    fails(chart(folder, "a,b\nx,y\n", "o.png"), "no column with numbers. Columns: a, b")
    fails(chart(folder, SALES, "o.png", "--columns", "west"), "no column west. Columns: quarter, north, south")
    fails(chart(folder, SALES, "o.gif"), "must end in .png or .svg")
    fails(chart(folder, SALES, "o.png", "--width", "10"), "width must be 200 to 4000")
    fails(chart(folder, "a,b\n" + "x,1\n" * 501, "o.png"), "too many for one chart")
    fails(run(CHART, "gone.csv", "o.png", cwd=folder), "gone.csv")


main(dict(globals()))
