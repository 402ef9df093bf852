"""Makes the files that scripts of the public document skills work on, and decodes their results: each step is a run in a sandbox of its own.

    python3 document_skills.py rows          the table: JSON
    python3 document_skills.py make ROW      writes what the script reads below inputs/
    python3 document_skills.py check ROW     reads what it left, and what it printed (stdout.txt); ends well or says what is wrong
"""

import json
import os
import pathlib
import sys
import zipfile

import docx
import openpyxl
import pptx
import pypdf
from lxml import etree
from PIL import Image, ImageStat
from reportlab.pdfgen.canvas import Canvas

INPUTS = pathlib.Path("inputs")
WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
CHANGED = ('<w:p><w:r><w:t xml:space="preserve">kept </w:t></w:r><w:ins w:id="90" w:author="Ann" w:date="2026-01-01T00:00:00Z"><w:r><w:t>added</w:t></w:r></w:ins>'
           '<w:del w:id="91" w:author="Ann" w:date="2026-01-01T00:00:00Z"><w:r><w:delText>removed</w:delText></w:r></w:del></w:p>')
FIELDS = {"pages": [{"page_number": 1, "image_width": 1000, "image_height": 1000}], "form_fields": [
    {"page_number": 1, "description": "name", "field_label": "Name", "label_bounding_box": [100, 100, 200, 130],
     "entry_bounding_box": [220, 100, 500, 130], "entry_text": {"text": "Ada", "font_size": 12}}]}


def want(found, wanted, what):
    if found != wanted:
        sys.exit("%s: %r and not %r" % (what, found, wanted))


def has(text, *parts):
    for part in parts:
        if part not in text:
            sys.exit("%r is not in %r" % (part, text[:2000]))


def said():
    return pathlib.Path("stdout.txt").read_text(encoding="utf-8")


# What scripts read.

def word(name="a.docx"):
    made = docx.Document()
    made.add_heading("Quarterly report", 1)
    made.add_paragraph("Rent is \u201c1200\u201d euros.")
    made.save(INPUTS / name)


def changed_word():
    word()
    edited("a.docx", "word/document.xml", "<w:sectPr", CHANGED + "<w:sectPr")


def edited(name, part, old, new):
    """Replaces a text in one part of a document."""
    with zipfile.ZipFile(INPUTS / name) as file:
        parts = {each: file.read(each) for each in file.namelist()}
    text = parts[part].decode()
    has(text, old)
    parts[part] = text.replace(old, new, 1).encode()
    with zipfile.ZipFile(INPUTS / name, "w") as file:
        for each, data in parts.items():
            file.writestr(each, data)


def broken_word():
    word()
    edited("a.docx", "word/document.xml", "<w:sectPr", "<w:nothing/><w:sectPr")


def slides():
    made = pptx.Presentation()
    for text in ("First slide", "Second slide"):
        page = made.slides.add_slide(made.slide_layouts[5])
        page.shapes.title.text = text
        page.shapes.add_shape(1, 914400, 2743200, 2743200, 1828800)
    made.save(INPUTS / "a.pptx")


def broken_slides():
    slides()
    # Slides themselves are not compared with a schema.
    edited("a.pptx", "ppt/slides/_rels/slide1.xml.rels", "slideLayout6.xml", "slideLayout99.xml")


def sheet(formula="=A1*A2"):
    made = openpyxl.Workbook()
    made.active["A1"], made.active["A2"], made.active["A3"] = 2, 21, formula
    made.active["B1"] = "Total"
    made.save(INPUTS / "a.xlsx")


def wrong_sheet():
    sheet("=A1/0")


def form():
    page = Canvas(str(INPUTS / "form.pdf"), pagesize=(600, 800))
    page.drawString(50, 700, "Name")
    page.acroForm.textfield(name="name", x=150, y=690, width=200, height=20)
    page.acroForm.checkbox(name="agreed", x=150, y=650, size=15)
    # Pairs of value and text: of plain texts the script takes the first letters.
    page.acroForm.choice(name="size", options=[("Small", "small"), ("Large", "large")], value="small", x=150, y=600, width=100, height=20)
    page.save()


def fill(name, value):
    values = [{"field_id": name, "page": 1, "value": value}, {"field_id": "size", "page": 1, "value": "large"}]
    (INPUTS / "values.json").write_text(json.dumps(values), encoding="utf-8")


def flat():
    page = Canvas(str(INPUTS / "flat.pdf"), pagesize=(600, 800))
    page.drawString(50, 700, "Surname")
    page.line(50, 680, 550, 680)
    page.line(50, 640, 550, 640)
    page.rect(150, 600, 10, 10)
    page.save()


def fields(entry=(220, 100, 500, 130)):
    told = json.loads(json.dumps(FIELDS))
    told["form_fields"][0]["entry_bounding_box"] = list(entry)
    (INPUTS / "fields.json").write_text(json.dumps(told), encoding="utf-8")


def image():
    Image.new("RGB", (1000, 1000), "white").save(INPUTS / "page.png")


def unpacked(name):
    with zipfile.ZipFile(INPUTS / name) as file:
        file.extractall(INPUTS / "unpacked")


def orphan():
    """A slide and a picture that nothing refers to."""
    unpacked("a.pptx")
    folder = INPUTS / "unpacked" / "ppt"
    (folder / "slides" / "slide9.xml").write_bytes((folder / "slides" / "slide1.xml").read_bytes())
    (folder / "media").mkdir(exist_ok=True)
    (folder / "media" / "unused.png").write_bytes(b"x")


# What they left.

def text_of_word(file):
    return "\n".join(each.text for each in docx.Document(file).paragraphs)


def is_unpacked(original, part, *parts):
    """Every part is there, and each is XML."""
    with zipfile.ZipFile(INPUTS / original) as file:
        names = set(file.namelist())
    there = {str(each.relative_to("unpacked")) for each in pathlib.Path("unpacked").rglob("*") if each.is_file()}
    want(names - there, set(), "parts that are missing")
    for name in names:
        if name.endswith((".xml", ".rels")):
            etree.parse(os.path.join("unpacked", name))
    has(pathlib.Path("unpacked", part).read_text(encoding="utf-8"), *parts)


def is_commented():
    part = etree.parse("inputs/unpacked/word/comments.xml")
    want(["".join(each.itertext()).strip() for each in part.iter(WORD + "comment")], ["Is this right?"], "comments")
    for name in ("word/_rels/document.xml.rels", "[Content_Types].xml"):
        has(pathlib.Path("inputs/unpacked", name).read_text(encoding="utf-8"), "comments.xml")


def is_accepted():
    part = etree.fromstring(zipfile.ZipFile("clean.docx").read("word/document.xml"))
    want([each.tag for each in part.iter(WORD + "ins", WORD + "del")], [], "tracked changes")
    text = text_of_word("clean.docx")
    has(text, "kept added")
    want("removed" in text, False, "removed text is there")


def is_slide_added():
    slide = pathlib.Path("inputs/unpacked/ppt/slides/slide3.xml").read_text(encoding="utf-8")
    has(slide, "First slide")
    has(pathlib.Path("inputs/unpacked/[Content_Types].xml").read_text(encoding="utf-8"), "/ppt/slides/slide3.xml")
    has(pathlib.Path("inputs/unpacked/ppt/_rels/presentation.xml.rels").read_text(encoding="utf-8"), "slides/slide3.xml")


def is_cleaned():
    has(said(), "slide9.xml", "unused.png")
    want("slide1.xml" in said(), False, "a slide in use is removed")


def is_picture(file):
    with Image.open(file) as picture:
        picture.load()
        want(max(ImageStat.Stat(picture.convert("L")).var) > 1, True, "the picture shows something")
        return picture.size


def is_pdf(file, *parts):
    has("".join(page.extract_text() for page in pypdf.PdfReader(file).pages), *parts)


def is_calculated():
    want(openpyxl.load_workbook("inputs/a.xlsx", data_only=True).active["A3"].value, 42, "A3")
    want(openpyxl.load_workbook("inputs/a.xlsx").active["A3"].value, "=A1*A2", "the formula")
    told = json.loads(said())
    want((told["status"], told["total_formulas"]), ("success", 1), "what it says")


def is_wrong_sheet_told():
    told = json.loads(said())
    want((told["status"], told["error_summary"]), ("errors_found", {"#DIV/0!": {"count": 1, "locations": ["Sheet!A3"]}}), "what it says")


def is_read_form():
    told = {each["field_id"]: each for each in json.loads(pathlib.Path("fields.json").read_text())}
    want({name: each["type"] for name, each in told.items()}, {"name": "text", "agreed": "checkbox", "size": "choice"}, "fields")


def is_filled():
    told = pypdf.PdfReader("filled.pdf").get_fields()
    want((told["name"]["/V"], told["size"]["/V"]), ("Ada", "large"), "values")


def is_structure():
    told = json.loads(pathlib.Path("structure.json").read_text())
    want(([each["text"] for each in told["labels"]], len(told["lines"]), len(told["checkboxes"])), (["Surname"], 2, 1), "structure")


def is_annotated():
    notes = [each.get_object() for each in pypdf.PdfReader("filled.pdf").pages[0]["/Annots"]]
    want([(each["/Subtype"], each["/Contents"]) for each in notes], [("/FreeText", "Ada")], "annotations")


def is_marked():
    with Image.open("marked.png") as picture:
        want((picture.getpixel((220, 100)), picture.getpixel((100, 100))), ((255, 0, 0), (0, 0, 255)), "boxes")


def row(script, makes, words, check, ends=0):
    return {"script": script, "makes": makes, "words": words, "check": check, "ends": ends}


ROWS = {
    "docx unpacked": row("docx/scripts/office/unpack.py", [word], ["inputs/a.docx", "unpacked/"],
                         lambda: is_unpacked("a.docx", "word/document.xml", "Quarterly report", "&#x201C;1200")),
    "docx packed": row("docx/scripts/office/pack.py", [word, lambda: unpacked("a.docx")],
                       ["inputs/unpacked", "b.docx", "--original", "inputs/a.docx"],
                       lambda: (has(said(), "All validations PASSED!"), has(text_of_word("b.docx"), "Quarterly report", "\u201c1200\u201d"))),
    "docx valid": row("docx/scripts/office/validate.py", [word], ["inputs/a.docx", "--original", "inputs/a.docx"], lambda: has(said(), "All validations PASSED!")),
    "docx broken": row("docx/scripts/office/validate.py", [broken_word], ["inputs/a.docx"], lambda: has(said(), "FAILED", "nothing"), 1),
    "docx commented": row("docx/scripts/comment.py", [word, lambda: unpacked("a.docx")], ["inputs/unpacked", "0", "Is this right?"], is_commented),
    "docx changes accepted": row("docx/scripts/accept_changes.py", [changed_word], ["inputs/a.docx", "clean.docx"], is_accepted),
    "docx to pdf": row("docx/scripts/office/soffice.py", [word], ["--headless", "--convert-to", "pdf", "inputs/a.docx"],
                       lambda: is_pdf("a.pdf", "Quarterly report", "1200")),
    "pptx unpacked": row("pptx/scripts/office/unpack.py", [slides], ["inputs/a.pptx", "unpacked/"],
                         lambda: is_unpacked("a.pptx", "ppt/slides/slide2.xml", "Second slide")),
    "pptx packed": row("pptx/scripts/office/pack.py", [slides, lambda: unpacked("a.pptx")], ["inputs/unpacked", "b.pptx", "--original", "inputs/a.pptx"],
                       lambda: want([page.shapes.title.text for page in pptx.Presentation("b.pptx").slides], ["First slide", "Second slide"], "titles")),
    "pptx valid": row("pptx/scripts/office/validate.py", [slides], ["inputs/a.pptx", "--original", "inputs/a.pptx"], lambda: has(said(), "All validations PASSED!")),
    "pptx broken": row("pptx/scripts/office/validate.py", [broken_slides], ["inputs/a.pptx"], lambda: has(said(), "FAILED", "slideLayout99.xml"), 1),
    "pptx slide added": row("pptx/scripts/add_slide.py", [slides, lambda: unpacked("a.pptx")], ["inputs/unpacked", "slide1.xml"], is_slide_added),
    "pptx cleaned": row("pptx/scripts/clean.py", [slides, orphan], ["inputs/unpacked"], is_cleaned),
    "pptx thumbnails": row("pptx/scripts/thumbnail.py", [slides], ["inputs/a.pptx"], lambda: is_picture("thumbnails.jpg")),
    "pptx to pdf": row("pptx/scripts/office/soffice.py", [slides], ["--headless", "--convert-to", "pdf", "inputs/a.pptx"],
                       lambda: is_pdf("a.pdf", "First slide", "Second slide")),
    "xlsx calculated": row("xlsx/scripts/recalc.py", [sheet], ["inputs/a.xlsx"], is_calculated),
    "xlsx error found": row("xlsx/scripts/recalc.py", [wrong_sheet], ["inputs/a.xlsx"], is_wrong_sheet_told),
    "xlsx unpacked": row("xlsx/scripts/office/unpack.py", [sheet], ["inputs/a.xlsx", "unpacked/"],
                         lambda: is_unpacked("a.xlsx", "xl/worksheets/sheet1.xml", "A1*A2")),
    "xlsx packed": row("xlsx/scripts/office/pack.py", [sheet, lambda: unpacked("a.xlsx")], ["inputs/unpacked", "b.xlsx"],
                       lambda: want(openpyxl.load_workbook("b.xlsx").active["A3"].value, "=A1*A2", "A3")),
    "xlsx to pdf": row("xlsx/scripts/office/soffice.py", [sheet], ["--headless", "--convert-to", "pdf", "inputs/a.xlsx"], lambda: is_pdf("a.pdf", "Total", "42")),
    "pdf with fields": row("pdf/scripts/check_fillable_fields.py", [form], ["inputs/form.pdf"], lambda: has(said(), "has fillable form fields")),
    "pdf without fields": row("pdf/scripts/check_fillable_fields.py", [flat], ["inputs/flat.pdf"], lambda: has(said(), "does not have fillable")),
    "pdf fields read": row("pdf/scripts/extract_form_field_info.py", [form], ["inputs/form.pdf", "fields.json"], is_read_form),
    "pdf fields filled": row("pdf/scripts/fill_fillable_fields.py", [form, lambda: fill("name", "Ada")],
                             ["inputs/form.pdf", "inputs/values.json", "filled.pdf"], is_filled),
    "pdf unknown field": row("pdf/scripts/fill_fillable_fields.py", [form, lambda: fill("nobody", "Ada")],
                             ["inputs/form.pdf", "inputs/values.json", "filled.pdf"], lambda: has(said(), "`nobody` is not a valid field ID"), 1),
    "pdf structure": row("pdf/scripts/extract_form_structure.py", [flat], ["inputs/flat.pdf", "structure.json"], is_structure),
    "pdf boxes valid": row("pdf/scripts/check_bounding_boxes.py", [fields], ["inputs/fields.json"], lambda: has(said(), "SUCCESS")),
    "pdf boxes overlap": row("pdf/scripts/check_bounding_boxes.py", [lambda: fields((150, 100, 500, 130))], ["inputs/fields.json"],
                             lambda: has(said(), "FAILURE: intersection")),
    "pdf boxes drawn": row("pdf/scripts/create_validation_image.py", [fields, image], ["1", "inputs/fields.json", "inputs/page.png", "marked.png"], is_marked),
    "pdf to images": row("pdf/scripts/convert_pdf_to_images.py", [form], ["inputs/form.pdf", "."], lambda: want(is_picture("page_1.png")[1], 1000, "height")),
    "pdf annotated": row("pdf/scripts/fill_pdf_form_with_annotations.py", [flat, fields], ["inputs/flat.pdf", "inputs/fields.json", "filled.pdf"], is_annotated),
}


def main():
    if sys.argv[1] == "rows":
        print(json.dumps([[name, each["script"], each["words"], each["ends"]] for name, each in ROWS.items()]))
    elif sys.argv[1] == "make":
        INPUTS.mkdir()
        for make in ROWS[sys.argv[2]]["makes"]:
            make()
    else:
        ROWS[sys.argv[2]]["check"]()


if __name__ == "__main__":
    main()
