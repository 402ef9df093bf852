#!/usr/bin/env python3
"""What the programs of a release build are made of: writes the tables of docs/release.md. Standard library and binutils.

sizes.py [--print] [FOLDER]: FOLDER has the programs, target/release if it is left out. With --print the page stays as it is.

Bytes of code are those of symbols (`nm -S`), so a function that was made from a generic one counts for the crate that
defines it. Whole sizes and sections are `size -A`'s, which do not depend on names.
"""

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "release.md"
PROGRAMS = ("knack", "knack-gateway")
BEGIN, END = "<!-- sizes: written by make sizes -->", "<!-- end of sizes -->"
# Crates of one project count as one.
FAMILIES = (
    ("knack", "Knack itself"),
    ("kube", "kube and k8s-openapi"),
    ("k8s_openapi", "kube and k8s-openapi"),
    ("serde", "serde and serde_json"),
    ("tokio", "tokio"),
    ("hyper", "hyper, h2, axum and reqwest"),
    ("h2", "hyper, h2, axum and reqwest"),
    ("axum", "hyper, h2, axum and reqwest"),
    ("http", "hyper, h2, axum and reqwest"),
    ("reqwest", "hyper, h2, axum and reqwest"),
    ("tower", "hyper, h2, axum and reqwest"),
    ("core", "Rust's own library"),
    ("alloc", "Rust's own library"),
    ("std", "Rust's own library"),
    ("hashbrown", "Rust's own library"),
    ("jsonschema", "jsonschema"),
    ("referencing", "jsonschema"),
    ("regex", "regular expressions"),
    ("fancy_regex", "regular expressions"),
    ("aho_corasick", "regular expressions"),
    ("rmcp", "rmcp"),
    ("rustls", "rustls and ring"),
    ("ring", "rustls and ring"),
    ("C ring", "rustls and ring"),
    ("granit", "serde_saphyr with its parser"),
    ("saphyr", "serde_saphyr with its parser"),
    ("clap", "clap"),
    ("schemars", "schemars"),
    ("C ts", "tree-sitter"),
    ("tree_sitter", "tree-sitter"),
)
# Families below this are one row.
SHOWN_MIN_BYTES = 300_000


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def sections(program):
    """Bytes of each section."""
    rows = (line.split() for line in output("size", "-A", str(program)).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 3 and row[1].isdigit()}


def crate_of(symbol):
    """The crate that defines a mangled symbol; `C name` for one that is not Rust's."""
    if match := re.match(r"_ZN(\d+)(.*)", symbol):
        name = match[2][: int(match[1])]
        if not name.startswith("_$LT$"):
            return name
        # An implementation: `<Type as Trait>` counts for the crate of its type.
        words = re.match(r"_\$LT\$(?:\$[A-Za-z0-9]+\$|dyn\$u20\$|mut\$u20\$)*([a-z_0-9]+)\.\.", name)
        return words[1] if words else "core"
    if symbol.startswith("_R"):
        match = re.search(r"C[a-z0-9]*_(\d+)_?([a-z_]+)", symbol)
        return match[2][: int(match[1])] if match else "core"
    match = re.match(r"([A-Za-z]+)", symbol)
    return f"C {match[1]}" if match else "C"


def family_of(crate):
    # serde_saphyr reads YAML; the other crates of that name are the framework.
    if "saphyr" in crate:
        return "serde_saphyr with its parser"
    return next((family for name, family in FAMILIES if crate.startswith(name)), None)


def code_by_family(program):
    total = collections.Counter()
    for line in output("nm", "-S", str(program)).splitlines():
        row = line.split()
        if len(row) == 4 and row[2] in "tT":
            total[family_of(crate_of(row[3]))] += int(row[1], 16)
    return total


def millions(count):
    return f"{count / 1e6:.1f} MB"


def table(folder):
    programs = [folder / name for name in PROGRAMS]
    parts = [sections(program) for program in programs]
    stripped = [sum(size for name, size in part.items() if not name.startswith((".debug", ".comment", "Total"))) for part in parts]
    unwinding = [sum(part.get(name, 0) for name in (".eh_frame", ".eh_frame_hdr", ".gcc_except_table")) for part in parts]
    rows = [
        ("as built, with the symbol table", [program.stat().st_size for program in programs]),
        ("as in the images", stripped),
        ("code", [part[".text"] for part in parts]),
        ("tables for unwinding", unwinding),
        ("constants", [part[".rodata"] for part in parts]),
    ]
    families = [code_by_family(program) for program in programs]
    names = sorted({name for family in families for name in family if name}, key=lambda name: -families[0][name])
    shown = [name for name in names if max(family[name] for family in families) >= SHOWN_MIN_BYTES]
    rows += [(f"code of {name}", [family[name] for family in families]) for name in shown]
    rows.append(("code of all else", [family.total() - sum(family[name] for name in shown) for family in families]))
    head = "| part | " + " | ".join(f"`{name}`" for name in PROGRAMS) + " |\n|---|" + "---|" * len(PROGRAMS) + "\n"
    return head + "".join(f"| {name} | {' | '.join(map(millions, sizes))} |\n" for name, sizes in rows)


def main(words):
    prints = "--print" in words
    folders = [word for word in words if word != "--print"]
    made = table(pathlib.Path(folders[0]) if folders else ROOT / "target" / "release")
    if prints:
        sys.stdout.write(made)
        return
    page = PAGE.read_text()
    before, rest = page.split(BEGIN + "\n", 1)
    _, after = rest.split(END, 1)
    PAGE.write_text(f"{before}{BEGIN}\n{made}{END}{after}")


if __name__ == "__main__":
    main(sys.argv[1:])
