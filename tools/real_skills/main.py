#!/usr/bin/env python3
"""Accepts a folder of real skills: each is loaded, listed to a model, given its packages, and every import of every Python
script is done inside the sandbox; every program that a script starts is looked for there.

    tools/real_skills/main.py --knack target/release/knack DIR [--constraint "mcp<2"]...

Prints a table, what failed, and a count. Exit code 1 if a skill does not load, is not listed, lacks its packages, or has an
import that does not resolve. Missing programs are told and fail nothing: whoever runs the skill installs them.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
# An environment of forty packages takes a minute to install on a slow line, and each script's imports some seconds.
SECONDS = 1800
START_SECONDS = 120
# Whatever is listed is told, so that a long list is not cut at the default.
RUNTIME = """apiVersion: knack.dev/v1alpha1
kind: SkillRuntime
metadata: {name: real-skills}
spec:
  gateway: {injection: {maxListingTokens: 32000}}
  packages: {constraints: %s}
"""


class Failure(Exception):
    """Something that ends the whole program, for a person."""


def knack(options, *words, code=(0, 1)):
    """One command with JSON output. Errors of the command end everything: they are not about one skill."""
    result = subprocess.run([options.knack, *words, "--output", "json"], capture_output=True, text=True, timeout=SECONDS,
                            cwd=options.folder)
    if result.returncode not in code or not result.stdout.startswith("{"):
        raise Failure("knack %s: %s" % (" ".join(words), result.stderr.strip()[-2000:] or "exit %d" % result.returncode))
    return json.loads(result.stdout)


def gather(options):
    """Copies the skills beside a runtime of our own, so that one set of rules counts for all commands."""
    found = []
    for base, folders, files in os.walk(options.source, followlinks=True):
        folders.sort()
        if "SKILL.md" in files:
            found.append(base)
            folders.clear()
    if not found:
        raise Failure("%s: no folder with a SKILL.md" % options.source)
    for path in found:
        name = os.path.basename(os.path.abspath(path))
        target = os.path.join(options.folder, "skills", name)
        if os.path.exists(target):
            raise Failure("%s: two folders have this name; accept them one by one" % name)
        shutil.copytree(path, target)
    with open(os.path.join(options.folder, "skills", "real-skills.yaml"), "w", encoding="utf-8") as file:
        file.write(RUNTIME % json.dumps(options.constraint))


def load(options):
    """What validate says: name in the catalog, problems."""
    rows = {}
    for skill in knack(options, "skill", "validate", "skills")["skills"]:
        name = skill["skill"].split("/")[-1]
        errors = [problem["message"] for problem in skill["problems"] if problem["severity"] == "error"]
        folder = os.path.join(options.folder, "skills", name)
        scripts = sum(file.endswith(".py") for _, _, files in os.walk(folder) for file in files)
        rows[name] = {"name": name, "all": scripts, "loads": skill["valid"], "problems": errors, "listed": False, "packages": "",
                      "state": "", "scripts": []}
    return rows


def listed(options, rows):
    """Asks a gateway with a scripted model that answers only where the skill stands in the request."""
    names = [name for name, row in rows.items() if row["loads"]]
    turns = [{"user": "is %s. listed" % name, "rounds": [{"expect": {"system": '<skill name="%s">' % name},
                                                         "reply": {"text": "it is"}}]} for name in names]
    with open(os.path.join(options.folder, "script.yaml"), "w", encoding="utf-8") as file:
        json.dump({"models": ["m"], "turns": turns}, file)
    port_file, log = (os.path.join(options.folder, name) for name in ("port", "console.txt"))
    with open(log, "wb") as console:
        dev = subprocess.Popen([options.knack, "dev", "skills", "--listen", "127.0.0.1:0", "--print-port-file", port_file,
                                "--files-dir", os.path.join(options.folder, "files"), "--upstream", "mock=script.yaml"],
                               stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT, cwd=options.folder,
                               # It installs nothing here: that is the next step, and told by itself.
                               env={**os.environ, "KNACK_UV": "/nonexistent"})
    try:
        end = time.monotonic() + START_SECONDS
        while not (os.path.exists(port_file) and os.path.getsize(port_file)):
            if dev.poll() is not None or time.monotonic() > end:
                with open(log, encoding="utf-8", errors="replace") as console:
                    raise Failure("knack dev did not start:\n" + console.read()[-2000:])
            time.sleep(0.05)
        with open(port_file) as file:
            port = int(file.read())
        for name in names:
            rows[name]["listed"] = asked(port, "is %s. listed" % name)
    finally:
        dev.terminate()
        try:
            dev.wait(30)
        except subprocess.TimeoutExpired:
            dev.kill()
            dev.wait()


def asked(port, words):
    body = {"model": "m", "messages": [{"role": "user", "content": words}]}
    request = urllib.request.Request("http://127.0.0.1:%d/v1/chat/completions" % port, json.dumps(body).encode(),
                                     {"content-type": "application/json", "authorization": "Bearer real-skills"})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return json.load(answer)["choices"][0]["message"]["content"] == "it is"
    except urllib.error.HTTPError:
        return False


def packages(options, rows):
    """Builds every environment."""
    for skill in knack(options, "skill", "packages", "--build", "skills")["skills"]:
        row, about = rows[skill["skill"]], skill["environment"]
        row["state"] = skill["state"]
        if skill["state"] == "NotDeclared":
            row["packages"] = "none"
        elif skill["state"] == "Ready":
            source = "standard" if skill["source"].startswith("inferred") else "declared"
            row["packages"] = "%s (%d)" % (source, len(about["packages"]))
        else:
            row["packages"] = skill["state"]
            row["problems"].append("packages: %s" % " ".join(skill["reason"].split())[:400])


def probe(options, row):
    """Does the imports, in the sandbox, with the environment of the skill."""
    words = ["skill", "run", "skills", "--skill", row["name"], "--input", os.path.join(HERE, "probe.py"), "--timeout", "900",
             "--files-dir", os.path.join(options.folder, "files")]
    result = subprocess.run([options.knack, *words, "--output", "json", "--", "python3", "inputs/probe.py", row["name"], json.dumps(unusable())],
                            capture_output=True, text=True, timeout=SECONDS, cwd=options.folder)
    try:
        ended = json.loads(result.stdout)
        row["scripts"] = json.loads(ended["stdout"])
    except ValueError:
        said = json.loads(result.stdout)["stderr"] if result.stdout.startswith("{") else result.stderr
        row["problems"].append("its scripts were not looked at: %s" % " ".join(said.split())[-300:])


def unusable():
    """Programs that runs on this machine cannot use, and why."""
    with open(os.path.join(HERE, "../../crates/packages/src/data/programs.txt"), encoding="utf-8") as table:
        lines = [line.strip().split(" | ") for line in table if not line.startswith("#")]
    return {words[0].split(" ")[0]: words[1] for words in lines if len(words) == 2}


def count(scripts, *keys):
    return sum(not any(script[key] for key in keys) for script in scripts)


def is_ready(row):
    return row["loads"] and row["state"] in ("Ready", "NotDeclared")


def is_good(row):
    return is_ready(row) and row["listed"] and not row["problems"] and count(row["scripts"], "imports") == row["all"]


def cells(row):
    scripts = row["scripts"]
    missing = sorted({program for script in scripts for program in script["programs"]})
    return [row["name"], "yes" if row["loads"] else "NO", "yes" if row["listed"] else "NO", row["packages"] or "-",
            "%d of %d" % (count(scripts, "imports"), row["all"]) if row["all"] else "-",
            "missing: " + ", ".join(missing) if missing else "-"]


def print_table(rows):
    lines = [["skill", "loads", "listed", "packages", "imports", "programs"], *map(cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(6)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    of_no_use = unusable()
    for row in rows:
        for problem in row["problems"]:
            print("%s: %s" % (row["name"], problem))
        for script in row["scripts"]:
            for text in script["imports"]:
                print("%s/%s: %s" % (row["name"], script["script"], text))
            for program in script["programs"]:
                why = of_no_use.get(program)
                print("%s/%s: the program %s %s" % (row["name"], script["script"], program, "cannot be used by runs: " + why if why else "is not found"))
    scripts = [script for row in rows for script in row["scripts"]]
    print("%d of %d skills are accepted; of %d scripts %d resolve every import, %d of them find every program too" % (
        sum(map(is_good, rows)), len(rows), sum(row["all"] for row in rows), count(scripts, "imports"), count(scripts, "imports", "programs")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a folder that holds folders of skills")
    parser.add_argument("--knack", required=True, help="path of the knack binary; knack-runner stands beside it")
    parser.add_argument("--constraint", action="append", default=[], help="a version that may be chosen; repeat for several")
    options = parser.parse_args()
    options.knack = os.path.abspath(options.knack)
    with tempfile.TemporaryDirectory(prefix="real-skills-") as folder:
        options.folder = folder
        try:
            gather(options)
            rows = load(options)
            listed(options, rows)
            packages(options, rows)
            for row in rows.values():
                if row["all"] and is_ready(row):
                    probe(options, row)
        except (Failure, subprocess.TimeoutExpired) as error:
            sys.exit("real skills: %s" % error)
    table = [rows[name] for name in sorted(rows)]
    print_table(table)
    sys.exit(0 if all(map(is_good, table)) else 1)


if __name__ == "__main__":
    main()
