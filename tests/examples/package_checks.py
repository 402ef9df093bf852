"""What is tried of the examples that need packages: each run's files are decoded by other means.

A check is a function test_*(sandbox). `sandbox.run(skill, script, *words, inputs=())` runs a script of an example with files, given by
name and content (text or bytes): its exit code, output and errors, and the files that it left, as bytes by name.
"""

import io
import os
import re
import xml.etree.ElementTree
import zipfile

from check import ROOT, equal, holds
from images import colours, decode_png

SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def made(sandbox, skill, script, *words, inputs=()):
    code, said, errors, files = sandbox.run(skill, script, *words, inputs=inputs)
    holds(code == 0 and "Traceback" not in errors, "%s %s: exit %s: %s%s" % (skill, script, code, said, errors))
    return said, files


def refused(sandbox, words, skill, script, *arguments, inputs=()):
    """It ends with an error that says these words, and delivers nothing."""
    code, _, errors, files = sandbox.run(skill, script, *arguments, inputs=inputs)
    holds(code != 0 and words in errors and "Traceback" not in errors, "exit %s: %r is not in %r" % (code, words, errors))
    equal(files, {})


def test_every_example_is_locked(_):
    packages = os.path.join(ROOT, "examples", "packages")
    for skill in sorted(os.listdir(packages)):
        with open(os.path.join(packages, skill, "requirements.lock")) as file:
            holds("--hash=sha256:" in file.read(), skill)


def test_a_table_becomes_a_workbook(sandbox):
    table = "city,revenue,day\nUlm,10.5,2026-01-02\nBonn,20,2026-01-03\n"
    said, files = made(sandbox, "spreadsheet", "to_xlsx.py", "inputs/t.csv", "t.xlsx", "--total", "revenue", "--chart",
                       "revenue", inputs=[("t.csv", table)])
    holds("2 rows, 3 columns, 1 totals, 1 charts" in said, said)
    with zipfile.ZipFile(io.BytesIO(files["t.xlsx"])) as book:
        sheet = xml.etree.ElementTree.fromstring(book.read("xl/worksheets/sheet1.xml"))
        holds("xl/charts/chart1.xml" in book.namelist(), "no chart")
    cells = {cell.get("r"): cell for cell in sheet.iter(SHEET + "c")}
    equal((cells["B2"].find(SHEET + "v").text, cells["B3"].find(SHEET + "v").text), ("10.5", "20"))
    equal(cells["B4"].find(SHEET + "f").text, "SUM(B2:B3)")
    equal(sheet.find(".//%spane" % SHEET).get("topLeftCell"), "A2")


def form():
    """A PDF form written by hand: text, check box, choice, radio buttons."""
    def widget(extra, top, kids=""):
        return "<< /Type /Annot /Subtype /Widget /Rect [50 %d 250 %d] /P 3 0 R %s %s >>" % (top, top + 20, extra, kids)
    def states(on):
        return "/AS /Off /AP << /N << /%s 12 0 R /Off 12 0 R >> >>" % on
    objects = [
        "<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [4 0 R 5 0 R 6 0 R 7 0 R] /DR << /Font << /Helv 11 0 R >> >> "
        "/DA (/Helv 12 Tf 0 g) >> >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] /Resources << >> /Annots [4 0 R 5 0 R 6 0 R 8 0 R 9 0 R] >>",
        widget("/FT /Tx /T (name) /Ff 2 /MaxLen 20 /DA (/Helv 12 Tf 0 g)", 250),
        widget("/FT /Btn /T (member) " + states("Yes"), 200),
        widget("/FT /Ch /Ff 131072 /T (size) /Opt [(S) (M) (L)] /DA (/Helv 12 Tf 0 g)", 150),
        "<< /FT /Btn /Ff 32768 /T (pay) /Kids [8 0 R 9 0 R] >>",
        widget("/Parent 7 0 R " + states("card"), 100),
        widget("/Parent 7 0 R " + states("cash"), 50),
        "<< >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        "<< /Type /XObject /Subtype /Form /BBox [0 0 20 20] /Length 0 >>\nstream\n\nendstream",
    ]
    out, places = b"%PDF-1.7\n", []
    for number, text in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, text.encode())
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return out + b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Root 1 0 R /Size %d >>\nstartxref\n%d\n%%%%EOF\n" % (
        len(objects) + 1, table, len(objects) + 1, len(out))


def fields(pdf):
    """The objects of a PDF that are named fields, as text."""
    objects = re.findall(rb"\d+ 0 obj\s(.*?)endobj", pdf, re.S)
    named = [(re.search(rb"/T \((\w+)\)", text), text) for text in objects]
    return {name.group(1).decode(): text.decode("latin-1") for name, text in named if name}


def test_a_form_is_listed(sandbox):
    said, _ = made(sandbox, "pdf-form", "form.py", "list", "inputs/form.pdf", inputs=[("form.pdf", form())])
    equal(said.splitlines(), [
        "name | text | at most 20 characters | required | empty",
        "member | check box | one of: yes, no | empty",
        "size | choice | one of: S, M, L | empty",
        "pay | radio | one of: card, cash | empty",
    ])


def test_a_form_is_filled_in(sandbox):
    said, files = made(sandbox, "pdf-form", "form.py", "fill", "inputs/form.pdf", "out.pdf", "--set", "name=Ada Lovelace",
                       "--values", "inputs/v.json", inputs=[("form.pdf", form()), ("v.json", '{"member": true, "pay": "cash"}')])
    equal(said.splitlines(), ["out.pdf: 3 of 4 fields filled in", "still empty: size"])
    found = fields(files["out.pdf"])
    holds("/V (Ada Lovelace)" in found["name"] and "/AP" in found["name"], found["name"])
    holds("/V /Yes" in found["member"] and "/AS /Yes" in found["member"], found["member"])
    holds("/V /cash" in found["pay"] and "/V" not in found["size"], found["pay"])
    holds(files["out.pdf"].count(b"/AS /cash") == 1 and b"/AS /card" not in files["out.pdf"], "the wrong button is on")
    # What the script reads back is what a viewer shows.
    said, _ = made(sandbox, "pdf-form", "form.py", "list", "inputs/out.pdf", inputs=[("out.pdf", files["out.pdf"])])
    holds("now: Ada Lovelace" in said and "now: cash" in said, said)


def test_what_a_form_does_not_have_is_told_and_nothing_is_written(sandbox):
    for words, value in (("no field 'nme'; there are: name, member", "nme=x"), ("neither yes nor no", "member=perhaps"),
                         ("there are: S, M, L", "size=XL"), ("the field holds 20", "name=" + "x" * 21)):
        refused(sandbox, words, "pdf-form", "form.py", "fill", "inputs/form.pdf", "out.pdf", "--set", value,
                inputs=[("form.pdf", form())])
    refused(sandbox, "not a PDF file", "pdf-form", "form.py", "list", "inputs/no.pdf", inputs=[("no.pdf", "hello")])


CITIES = "city,area,price\n" + "".join("%s,%d,%d\n" % ("AB"[n % 2], n, 3 * n + 7) for n in range(10, 60)) + "A,x,1\n"


def plot(sandbox, *words):
    return made(sandbox, "data-plot", "plot.py", *words, inputs=[("c.csv", CITIES)])


def test_a_fitted_line_has_the_slope_of_the_data(sandbox):
    said, files = plot(sandbox, "scatter", "inputs/c.csv", "out.png", "--x", "area", "--y", "price", "--fit", "--size", "6x4")
    holds("50 rows, price = 3 * area +7, r = 1.000" in said and "1 rows without numbers" in said, said)
    width, height, rgb = decode_png(files["out.png"])
    equal((width, height), (600, 400))
    holds(len(colours(rgb)) > 20 and rgb.count(b"\xf7\x6b\x15") > 100, "the line is missing")


def test_groups_and_formats(sandbox):
    said, files = plot(sandbox, "box", "inputs/c.csv", "out.svg", "--column", "price", "--by", "city", "--title", "Prices")
    holds("B: 25 values, median" in said, said)
    equal(xml.etree.ElementTree.fromstring(files["out.svg"]).tag, "{http://www.w3.org/2000/svg}svg")
    said, files = plot(sandbox, "histogram", "inputs/c.csv", "out.pdf", "--column", "area")
    holds("50 values, mean 34.5" in said and files["out.pdf"].startswith(b"%PDF-"), said)


def test_data_that_cannot_be_drawn_is_told(sandbox):
    for words, arguments in (("no column 'size'; there are: city, area, price", ["histogram", "inputs/c.csv", "o.png", "--column", "size"]),
                             ("column 'city' has no numbers", ["histogram", "inputs/c.csv", "o.png", "--column", "city"]),
                             ("must end in .png, .svg, .pdf", ["correlations", "inputs/c.csv", "o.gif"])):
        refused(sandbox, words, "data-plot", "plot.py", *arguments, inputs=[("c.csv", CITIES)])


def bitmap(width, height, colour):
    """A BMP of one colour: a format that needs no library to write."""
    row = bytes(colour[::-1]) * width
    row += bytes(-len(row) % 4)
    head = b"BM" + (54 + len(row) * height).to_bytes(4, "little") + bytes(4) + (54).to_bytes(4, "little")
    info = (40).to_bytes(4, "little") + width.to_bytes(4, "little") + height.to_bytes(4, "little") + b"\1\0\x18\0" + bytes(24)
    return head + info + row * height


RED, BLUE = (224, 32, 32), (32, 32, 224)


def test_an_image_is_cropped_and_made_smaller(sandbox):
    said, files = made(sandbox, "image-tools", "images.py", "convert", "inputs/a.bmp", "out.png", "--crop", "1:1", "--max",
                       "100", inputs=[("a.bmp", bitmap(400, 300, RED))])
    width, height, rgb = decode_png(files["out.png"])
    equal((width, height, colours(rgb)), (100, 100, {RED}))
    holds(said.startswith("out.png: 100 x 100"), said)


def test_a_stamp_is_in_its_corner(sandbox):
    _, files = made(sandbox, "image-tools", "images.py", "convert", "inputs/a.bmp", "out.png", "--text", "draft",
                    inputs=[("a.bmp", bitmap(300, 300, RED))])
    width, height, rgb = decode_png(files["out.png"])
    half = len(rgb) // 2
    holds(colours(rgb[:half]) == {RED} and len(colours(rgb[half:])) > 3, "the text is elsewhere")


def test_a_sheet_shows_every_image(sandbox):
    _, files = made(sandbox, "image-tools", "images.py", "sheet", "sheet.png", "inputs/a.bmp", "inputs/b.bmp", "--columns", "2",
                    inputs=[("a.bmp", bitmap(400, 300, RED)), ("b.bmp", bitmap(50, 50, BLUE))])
    width, height, rgb = decode_png(files["sheet.png"])
    equal((width, height), (430, 238))
    found = [sum(tuple(rgb[place:place + 3]) == colour for place in range(0, len(rgb), 3)) for colour in (RED, BLUE)]
    equal(found, [200 * 150, 50 * 50])


def test_what_is_no_image_is_told(sandbox):
    refused(sandbox, "not an image", "image-tools", "images.py", "info", "inputs/a.png", inputs=[("a.png", "hello")])
    refused(sandbox, "must end in", "image-tools", "images.py", "convert", "inputs/a.bmp", "a.doc",
            inputs=[("a.bmp", bitmap(4, 4, RED))])
