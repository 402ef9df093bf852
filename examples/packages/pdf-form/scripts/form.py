"""PDF forms: form.py list FORM.pdf | form.py fill FORM.pdf OUT.pdf [--set FIELD=VALUE]... [--values FILE.json] [--read-only]"""

import argparse
import json
import sys

from pypdf import PdfReader, PdfWriter
from pypdf.errors import PyPdfError
from pypdf.generic import NameObject, NumberObject

YES = {"yes": True, "true": True, "on": True, "x": True, "no": False, "false": False, "off": False, "": False}
MAX_DEPTH = 32
READ_ONLY, REQUIRED, RADIO, PUSH_BUTTON = 1, 1 << 1, 1 << 15, 1 << 16


def kind_of(field):
    flags = int(field.get("/Ff", 0))
    if field.get("/FT") == "/Btn":
        return "button" if flags & PUSH_BUTTON else "radio" if flags & RADIO else "check box"
    return {"/Tx": "text", "/Ch": "choice", "/Sig": "signature"}.get(field.get("/FT"), "unknown")


def widgets(pages):
    """Each place of a field on a page: the field's whole name, its object there, and the objects above it."""
    for page in pages:
        for widget in page.get("/Annots") or []:
            chain, place = [], widget.get_object()
            # A damaged file may name itself as its parent.
            while place is not None and len(chain) < MAX_DEPTH:
                chain.append(place)
                place = place["/Parent"].get_object() if "/Parent" in place else None
            names = [str(part["/T"]) for part in reversed(chain) if "/T" in part]
            if widget.get_object().get("/Subtype") == "/Widget" and names:
                yield ".".join(names), chain


def longest(reader):
    """How many characters fields hold, where they say it."""
    limits = {}
    for name, chain in widgets(reader.pages):
        limits.update((name, int(part["/MaxLen"])) for part in chain if "/MaxLen" in part)
    return limits


def states(field):
    """The names of a button's states, without the one that means off."""
    found = [state.lstrip("/") for state in field.get("/_States_", [])]
    return [state for state in found if state not in ("Off", "")]


def options(field):
    """What a choice may hold: pairs of value and text, or plain texts."""
    listed = field.get("/_States_") or field.get("/Opt") or []
    return [str(item[0]) if isinstance(item, list) else str(item).lstrip("/") for item in listed]


def shown(field):
    value = field.get("/V")
    return "" if value is None or value == "/Off" else str(value).lstrip("/")


def allowed(field):
    kind = kind_of(field)
    if kind == "check box":
        return "yes, no"
    if kind == "radio":
        return ", ".join(states(field))
    if kind == "choice":
        return ", ".join(options(field))
    return ""


def open_form(path):
    try:
        reader = PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            sys.exit(f"{path}: it is protected by a password")
        fields = reader.get_fields() or {}
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    except (PyPdfError, ValueError, KeyError, RecursionError) as error:
        sys.exit(f"{path}: not a PDF file that can be read ({error})")
    fields = {name: field for name, field in fields.items() if "/FT" in field}
    if not fields:
        sys.exit(f"{path}: the PDF has no form fields")
    return reader, fields


def list_fields(path):
    reader, fields = open_form(path)
    limits = longest(reader)
    for name, field in fields.items():
        parts = [name, kind_of(field)]
        if allowed(field):
            parts.append("one of: " + allowed(field))
        if name in limits:
            parts.append(f"at most {limits[name]} characters")
        if int(field.get("/Ff", 0)) & REQUIRED:
            parts.append("required")
        parts.append("now: " + shown(field) if shown(field) else "empty")
        print(" | ".join(parts))


def value_for(name, field, value, limits):
    """The value as the form holds it. The form's own words count, so a wrong one is told with them."""
    kind = kind_of(field)
    if kind == "check box":
        if str(value).lower() not in YES:
            sys.exit(f"{name}: {value!r} is neither yes nor no")
        return "/" + (states(field) or ["Yes"])[0] if YES[str(value).lower()] else "/Off"
    if kind in ("radio", "choice"):
        known = states(field) if kind == "radio" else options(field)
        if str(value) not in known:
            sys.exit(f"{name}: no value {value!r}; there are: {', '.join(known)}")
        return "/" + str(value) if kind == "radio" else str(value)
    if kind != "text":
        sys.exit(f"{name}: a {kind} cannot be filled in")
    if len(str(value)) > limits.get(name, sys.maxsize):
        sys.exit(f"{name}: {len(str(value))} characters, and the field holds {limits[name]}")
    return str(value)


def wanted(args):
    values = {}
    if args.values:
        try:
            with open(args.values, encoding="utf-8") as file:
                values = json.load(file)
        except (OSError, ValueError) as error:
            sys.exit(f"{args.values}: {error}")
        if not isinstance(values, dict):
            sys.exit(f"{args.values}: an object of field names and values is needed")
    for pair in args.set:
        name, equals, value = pair.partition("=")
        if not equals:
            sys.exit(f"--set {pair!r}: write FIELD=VALUE")
        values[name] = value
    if not values:
        sys.exit("nothing to fill in; use --set FIELD=VALUE or --values FILE.json")
    return {name: {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
            for name, value in values.items()}


def fill(args):
    reader, fields = open_form(args.source)
    values, limits = {}, longest(reader)
    for name, value in wanted(args).items():
        if name not in fields:
            sys.exit(f"no field {name!r}; there are: {', '.join(fields)}")
        values[name] = value_for(name, fields[name], value, limits)
    writer = PdfWriter(clone_from=reader)
    for page in writer.pages:
        # Viewers draw what they find, so the appearance is made here.
        writer.update_page_form_field_values(page, values, auto_regenerate=False)
    for name, chain in widgets(writer.pages):
        field = next(part for part in chain if "/T" in part)
        if name in values and kind_of(fields[name]) in ("check box", "radio"):
            field[NameObject("/V")] = NameObject(values[name])
        if args.read_only:
            field[NameObject("/Ff")] = NumberObject(int(field.get("/Ff", fields[name].get("/Ff", 0))) | READ_ONLY)
    writer.write(args.target)
    empty = [name for name, field in fields.items() if name not in values and not shown(field)]
    print(f"{args.target}: {len(values)} of {len(fields)} fields filled in")
    if empty:
        print("still empty: " + ", ".join(empty))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list")
    listing.add_argument("source")
    filling = commands.add_parser("fill")
    filling.add_argument("source")
    filling.add_argument("target")
    filling.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    filling.add_argument("--values", metavar="FILE.json")
    filling.add_argument("--read-only", action="store_true")
    args = parser.parse_args()
    if args.command == "list":
        list_fields(args.source)
    else:
        fill(args)


if __name__ == "__main__":
    main()
