"""The declared tools of the examples, and what every example must be: run as the gateway runs them, by argv."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from check import ROOT, SKILLS, equal, fails, holds, main, run

STATS = os.path.join(SKILLS, "text-stats", "stats.py")
MANIFESTS = os.path.join(ROOT, "examples", "manifests")


def stats(folder, *arguments):
    result = run(STATS, *arguments, cwd=folder)
    equal((result.returncode, result.stderr), (0, ""))
    return json.loads(result.stdout)


def inline_file(manifest, path):
    """The text of one inline file: a block scalar, indented by ten columns."""
    with open(os.path.join(MANIFESTS, manifest), encoding="utf-8") as file:
        lines = file.read().split("\n")
    start = lines.index("        %s: |" % path) + 1
    found = []
    for line in lines[start:]:
        if line and not line.startswith(" " * 10):
            break
        found.append(line[10:])
    return "\n".join(found)


def convert(folder, *arguments):
    path = os.path.join(folder, "convert.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(inline_file("unit-convert.yaml", "scripts/convert.py"))
    return run(path, *arguments, cwd=folder)


def test_stats_counts_a_text(folder):
    seen = stats(folder, "Knack runs skills. Skills are small! Are they? A skill is a folder.", "--top", "2")
    equal((seen["words"], seen["unique_words"], seen["sentences"]), (13, 10, 4))
    equal(seen["top_words"], [{"word": "skills", "count": 2}, {"word": "folder", "count": 1}])
    equal(seen["reading_seconds"], 3)


def test_stats_of_hard_prose_score_lower(folder):
    easy = stats(folder, "The cat sat on the mat. It was a red cat.")["reading_ease"]
    hard = stats(folder, "Organizational responsibilities necessitate comprehensive interdepartmental communication.")
    holds(easy > 90 > 30 > hard["reading_ease"], "%r %r" % (easy, hard))


def test_stats_of_odd_texts(folder):
    equal(stats(folder, "")["reading_ease"], None)
    equal(stats(folder, "no full stop")["sentences"], 1)
    equal(stats(folder, "3.5 of 10,000 e.g. this")["sentences"], 2)
    equal(stats(folder, "don't well-known na\u00efve")["words"], 3)
    equal(stats(folder, "a b", "--top", "0")["top_words"], [])
    equal(stats(folder, "alpha alpha beta", "--skip", "Alpha, gamma")["top_words"], [{"word": "beta", "count": 1}])


def test_stats_refuses_a_bad_number(folder):
    for top in ("x", "51", "1.5", "nan"):
        fails(run(STATS, "text", "--top", top, cwd=folder), "top must be a whole number from 0 to 50")


def test_convert_is_exact_where_definitions_are(folder):
    for arguments, expected in (
        (("26.2", "--from", "mi", "--to", "km"), "26.2 mi = 42.1648 km\n"),
        (("minus 40", "--from", "C", "--to", "F"), "-40 C = -40 F\n"),
        (("1", "--from", "pounds", "--to", "g"), "1 pounds = 453.592 g\n"),
        (("1,000", "--from", "feet", "--to", "Metres"), "1000 feet = 304.8 Metres\n"),
        (("2", "--from", "gallons", "--to", "litres"), "2 gallons = 7.57082 litres\n"),
    ):
        result = convert(folder, *arguments)
        equal((result.returncode, result.stdout), (0, expected))


def test_convert_refuses_nonsense_with_a_list_of_units(folder):
    fails(convert(folder, "1", "--from", "kg", "--to", "km"), "no conversion from kg to km. Units: C, F")
    fails(convert(folder, "ten", "--from", "kg", "--to", "g"), "'ten' is not a number")
    fails(convert(folder, "minus 300", "--from", "C", "--to", "K"), "below absolute zero")


def test_every_example_skill_has_its_files_and_no_other_dependency(folder):
    for name in sorted(os.listdir(SKILLS)):
        with open(os.path.join(SKILLS, name, "SKILL.md"), encoding="utf-8") as file:
            text = file.read()
        holds(text.startswith("---\n"), name)
        holds(name.replace("-", " ") in text.split("---")[1].lower().replace("-", " "), "the name is not " + name)
        for base, _, files in os.walk(os.path.join(SKILLS, name)):
            for script in (entry for entry in files if entry.endswith(".py")):
                check_imports(os.path.join(base, script), base)


def check_imports(path, folder):
    import ast
    allowed = {"argparse", "array", "collections", "csv", "io", "json", "math", "os", "re", "struct", "sys",
               "unicodedata", "xml", "zlib"}
    beside = {entry[:-3] for entry in os.listdir(folder) if entry.endswith(".py")}
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read(), feature_version=(3, 9))
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
        for name in names:
            holds(name.split(".")[0] in allowed | beside, "%s imports %s" % (path, name))


main(dict(globals()))
