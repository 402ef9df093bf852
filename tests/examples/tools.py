"""The declared tools of the examples, and what every example must be: run as the gateway runs them, by argv."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from check import ROOT, SKILLS, equal, fails, holds, main, run

STATS = os.path.join(SKILLS, "text-stats", "stats.py")
DATES = os.path.join(SKILLS, "date-math")
QUOTES = os.path.join(SKILLS, "price-quote")
HARNESS = os.path.join(ROOT, "crates", "skill", "src", "functions", "harness.py")
MANIFESTS = os.path.join(ROOT, "examples", "manifests")


def stats(folder, *arguments):
    result = run(STATS, *arguments, cwd=folder)
    equal((result.returncode, result.stderr), (0, ""))
    return json.loads(result.stdout)


def dates(folder, function, **arguments):
    """Calls a function as the gateway does, with the folder as working directory."""
    with open(HARNESS, encoding="utf-8") as file:
        command = ["-c", file.read(), "dates.py", function, json.dumps(arguments)]
    return run(*command, cwd=DATES, env={"KNACK_WORK_DIR": folder})


def dated(folder, function, **arguments):
    result = dates(folder, function, **arguments)
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


def test_dates_count_days_and_working_days(folder):
    seen = dated(folder, "days_between", start="2026-11-25", end="2026-12-24", holidays=["2026-12-08"])
    equal((seen["days"], seen["weeks"], seen["days_over"], seen["working_days"]), (29, 4, 1, 20))
    equal((seen["start"], seen["end"]), ("Wednesday, 2026-11-25", "Thursday, 2026-12-24"))
    back = dated(folder, "days_between", start="2026-12-24", end="2026-11-25")
    equal((back["days"], back["weeks"], back["working_days"]), (-29, -4, -21))
    equal(dated(folder, "days_between", start="2028-02-28", end="2028-03-01")["days"], 2)


def test_dates_after_a_span(folder):
    for arguments, expected in (
        ({"start": "2026-01-31", "months": 1}, "2026-02-28"),
        ({"start": "2028-01-31", "months": 1}, "2028-02-29"),
        ({"start": "2026-11-27", "working_days": 1}, "2026-11-30"),
        ({"start": "2026-11-30", "working_days": -1}, "2026-11-27"),
        ({"start": "2026-11-27", "working_days": 1, "holidays": ["2026-11-30"]}, "2026-12-01"),
        ({"start": "2026-12-31", "months": -13, "weeks": 1, "days": -7}, "2025-11-30"),
    ):
        equal(dated(folder, "date_after", **arguments)["date"], expected)


def test_dates_make_a_calendar(folder):
    result = dates(folder, "month_calendar", year=2026, month=11, marked=[25])
    equal((result.returncode, result.stdout), (0, '[Artifact: November 2026]\n{"type": "markdown"}\n'))
    with open(os.path.join(folder, "November-2026.md"), encoding="utf-8") as file:
        text = file.read()
    holds("| 48 | 23 | 24 | **25** | 26 | 27 | 28 | 29 |" in text, text)
    for year, month in ((1, 1), (9999, 12)):
        equal(dates(folder, "month_calendar", year=year, month=month).returncode, 0)


def test_dates_refuse_nonsense(folder):
    for function, arguments, expected in (
        ("days_between", {"start": "soon", "end": "2026-01-01"}, "start: 'soon' is no date; write YYYY-MM-DD"),
        ("days_between", {"start": "0001-01-01", "end": "9999-01-01"}, "the dates are 3651694 days apart; at most 150000 are counted"),
        ("date_after", {"start": "9999-12-31", "days": 1}, "the result is not between the years 1 and 9999"),
        ("date_after", {"start": "0001-01-01", "months": -1}, "the result is not between the years 1 and 9999"),
        ("date_after", {"start": "2026-01-01", "working_days": 10 ** 9}, "working_days must be from -150000 to 150000"),
        ("month_calendar", {"year": 2026, "month": 2, "marked": [30]}, "marked: 30 is no day of this month, which has 28"),
    ):
        result = dates(folder, function, **arguments)
        equal((result.returncode, result.stdout), (1, expected + "\n"))


def test_dates_are_locked_as_they_are(folder):
    import hashlib
    with open(os.path.join(DATES, "python-tools.lock"), encoding="utf-8") as file:
        locked = json.load(file)["files"]["dates.py"]
    with open(os.path.join(DATES, "dates.py"), "rb") as file:
        equal(locked["sha256"], hashlib.sha256(file.read()).hexdigest())
    equal([function["name"] for function in locked["functions"]], ["days_between", "date_after", "month_calendar"])


def quoted(folder, items, values, secrets=()):
    """Calls the function with these settings as the gateway does: over its defaults, secrets by variables of their own."""
    with open(os.path.join(QUOTES, "python-tools.lock"), encoding="utf-8") as file:
        declared = json.load(file)["files"]["quote.py"]["functions"][0]["config"]
    params = {param["name"]: param for param in declared}
    config = {"tool": "quote", "values": {**{name: param["default"] for name, param in params.items()}, **values}, "secrets": {}}
    env = {"KNACK_WORK_DIR": folder}
    for name, value in dict(secrets).items():
        config["values"].pop(name)
        config["secrets"][name] = {"variable": "KNACK_CONFIG_" + name, "param": params[name]}
        env["KNACK_CONFIG_" + name] = value
    env["KNACK_CONFIG"] = json.dumps(config)
    with open(HARNESS, encoding="utf-8") as file:
        command = ["-c", file.read(), "quote.py", "quote", json.dumps({"items": items})]
    return run(*command, cwd=QUOTES, env=env)


DESK = {"name": "Desk", "count": 2, "price": 149.5}


def test_a_quote_is_made_by_the_settings_of_whoever_runs_it(folder):
    for values, secrets, expected in (
        ({}, {}, {"currency": "EUR", "net": "299.00", "tax": "0.00", "total": "299.00"}),
        ({"currency": "GBP", "taxPercent": 20}, {}, {"currency": "GBP", "net": "299.00", "tax": "59.80", "total": "358.80"}),
        ({"taxPercent": 19}, {"signingKey": "top-secret-4711"},
         {"currency": "EUR", "net": "299.00", "tax": "56.81", "total": "355.81", "signature": "e9d5d2bed6b7cccc1d44"}),
    ):
        result = quoted(folder, [DESK], values, secrets)
        equal((result.returncode, result.stderr), (0, ""))
        found = json.loads(result.stdout)
        equal(found.pop("items"), [{"name": "Desk", "total": "299.00"}])
        equal(found, expected)


def test_quotes_refuse_what_nobody_may_offer(folder):
    for item, values, expected in (
        (DESK, {"maxTotal": 298.99}, "the total 299.00 is above 298.99, the highest amount that is quoted without approval"),
        ({"name": " ", "price": 1}, {}, "items: entry 1 has no name"),
        ({"name": "Desk", "price": "1"}, {}, "items: the price of 'Desk' must be a number from 0 to 1000000"),
        ({"name": "Desk", "price": 1, "count": -1}, {}, "items: the count of 'Desk' must be a number from 0 to 1000000"),
    ):
        result = quoted(folder, [item], values)
        equal((result.returncode, result.stdout), (1, expected + "\n"))


def test_quotes_are_locked_as_they_are(folder):
    import hashlib
    with open(os.path.join(QUOTES, "python-tools.lock"), encoding="utf-8") as file:
        locked = json.load(file)["files"]["quote.py"]
    with open(os.path.join(QUOTES, "quote.py"), "rb") as file:
        equal(locked["sha256"], hashlib.sha256(file.read()).hexdigest())


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
    # tukuy is the gateway's own stand-in where that package is not installed.
    allowed = {"argparse", "array", "calendar", "collections", "csv", "datetime", "hashlib", "hmac", "io", "json", "math", "os", "re",
               "struct", "sys", "tukuy", "unicodedata", "xml", "zlib"}
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
