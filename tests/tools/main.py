"""What tools/ must refuse, each with a doctored input beside a good one."""
import contextlib
import datetime
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import images  # noqa: F401  its cases
import lint  # noqa: F401  its cases
import peers  # noqa: F401  its cases
from harness import CASES, ROOT, case, expect

# Tracked binaries.

def judge(files):
    """What tools/binaries.sh says of a repository with these files: (accepted, text)."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "init", "-q", folder], check=True)
        for path, (data, mode) in files.items():
            path = os.path.join(folder, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
            os.chmod(path, mode)
        subprocess.run(["git", "-C", folder, "add", "-A"], check=True)
        with open(os.path.join(folder, "untracked"), "wb") as file:
            file.write(b"\x7fELF\0")
        done = subprocess.run([f"{ROOT}/tools/binaries.sh", folder], capture_output=True, text=True)
        return done.returncode == 0, done.stderr


@case
def tracked_binaries_are_refused_by_path():
    text = {"a.rs": (b"fn main() {}\n", 0o644), "run.sh": (b"#!/bin/sh\n", 0o755), "\u00e9.md": ("\u00e9\n".encode(), 0o644), "MZ.txt": (b"MZ is text", 0o644)}
    accepted, said = judge(text)
    expect(accepted, said)
    with open("/bin/true", "rb") as file:
        true = file.read()
    for path, data, mode, what in [
        ("evil", true, 0o755, "an ELF program"),
        ("deep/in/a/folder", true, 0o644, "an ELF program"),
        ("a.zip", b"PK\x03\x04rest", 0o644, "a zip archive"),
        ("logo.png", b"\x89PNG\r\n\x1a\n\0", 0o644, "NUL"),
        ("latin1.txt", b"caf\xe9", 0o644, "not UTF-8"),
        ("program", b"no script", 0o755, "no script"),
    ]:
        accepted, said = judge({**text, path: (data, mode)})
        expect(not accepted, f"{path} was accepted")
        expect(re.search(rf"^  {re.escape(path)}: .*{what}", said, re.M), f"{path}: {said}")
        expect("a.rs" not in said, said)


# Citations.

GOOD = {
    "docs/design/README.md": "# Design\n\n[pages](pages.md), [one](pages.md#one-place), [code](../../src), `src/a.rs`\n",
    "docs/design/pages.md": "# Pages\n\n## One `place`\n\n## Calls, and *results*\n\n## Twice\n\n## Twice\n\n```\n## In a fence\n[no](link.md)\n```\n",
    "docs/other.md": "# Other\n\n[above](../README.md) [here](#other) [web](https://example.com/x.md#y) `[code](nowhere.md)`\n",
    "README.md": "# Readme\n\n[design](docs/design/README.md) docs/other.md\n",
    "ARCHITECTURE.md": "# Here\n\n`src/named.rs`: `fn named` and `src/`\n",
    "src/named.rs": "// in_a_comment\npub fn named() {}\n",
    "src/a.rs": "// docs/design/pages.md#one-place, docs/design/pages.md#calls-and-results, docs/design/pages.md#twice-1, docs/other.md\n// a.md and README.md are names of files\n",
}


def cite(files):
    """What tools/citations.py says of a repository with these files: (accepted, text)."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "init", "-q", folder], check=True)
        for path, text in files.items():
            path = os.path.join(folder, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        done = subprocess.run([sys.executable, "-B", f"{ROOT}/tools/citations.py", folder], capture_output=True, text=True)
        return done.returncode == 0, done.stderr


@case
def citations_that_lead_nowhere_are_refused_by_file_and_line():
    accepted, said = cite(GOOD)
    expect(accepted, said)
    pages = "docs/design/pages.md"
    for path, text, line, what in [
        ("src/a.rs", f"fn a() {{}}\n// {pages}#no-such-place\n", 2, f"{pages} has no heading #no-such-place"),
        ("src/a.rs", f"// {pages}#in-a-fence\n", 1, "has no heading #in-a-fence"),
        ("src/a.rs", f"// {pages}#twice-2\n", 1, "has no heading #twice-2"),
        ("src/a.rs", f"// {pages}\n", 1, "is cited without a heading"),
        ("src/a.rs", "// docs/design/gone.md#x\n", 1, "there is no page docs/design/gone.md"),
        ("charts/values.yaml", "a: 1\n\n# see docs/page.md\n", 3, "there is no page docs/page.md"),
        ("tests/a.json", '{"reason": "see README.md#nowhere"}\n', 1, "README.md has no heading #nowhere"),
        ("src/a.rs", "/// As said (page.md section 3).\n", 1, "page.md is named without its path: there is no such page"),
        ("src/a.rs", "/// As said (page.md 3.1).\n", 1, "page.md is named without its path"),
        ("src/a.rs", "/// As said (other.md, rule 1).\n", 1, "write its path from the root"),
        ("src/a.rs", "/// Source: `seeds/4`.\n", 1, "is no page of this repository"),
        ("README.md", "# Readme\n\n[x](docs/page.md)\n", 3, "there is no page docs/page.md"),
        ("README.md", "# Readme\n[x](docs/other.md#x)\n", 2, "docs/other.md has no heading #x"),
        ("docs/other.md", "# Other\n[x](#elsewhere)\n", 2, "docs/other.md has no heading #elsewhere"),
        ("docs/other.md", "# Other\n[x](../src/b.rs)\n", 2, "the link leads to src/b.rs, which is not there"),
        (pages, "# One place\n\n`src/b.rs`\n", 3, "`src/b.rs` does not exist"),
        ("ARCHITECTURE.md", "# Here\n\n`src/b.rs`: `fn named`\n", 3, "`src/b.rs` does not exist"),
        ("ARCHITECTURE.md", "# Here\n\nA name: `src/named.rs`: `fn named`, `src/named.rs`: `fn name`\n", 3, "`src/named.rs` has no `fn name`"),
        ("ARCHITECTURE.md", "# Here\n`src/named.rs`: `in_a_comment`\n", 2, "`src/named.rs` has no `in_a_comment`"),
    ]:
        accepted, said = cite({**GOOD, path: text})
        expect(not accepted, f"{text!r} was accepted")
        expect(f"  {path}:{line}: " in said and what in said, f"{text!r}: {said}")
    accepted, said = cite({**GOOD, "docs/design/lonely.md": "# Lonely\n"})
    expect(not accepted and "docs/design/README.md: does not list lonely.md" in said, said)


@case
def a_type_of_an_error_that_the_page_of_errors_does_not_name_is_refused():
    readme = "# Design\n\n[pages](pages.md), [errors](errors.md)\n"
    for text, accepted in [("`NoRoom`", False), ("`NoRoomError` (`src/b.rs`)", False), ("`NoRoomError` (`src/error.rs`)", True)]:
        found, said = cite({
            **GOOD,
            "docs/design/README.md": readme,
            "docs/design/errors.md": f"# Errors\n\n{text}\n",
            "src/b.rs": "enum Private { Error }\nfn error() {}\n",
            "src/error.rs": "/// Why.\npub enum NoRoomError {}\n",
        })
        expect(found == accepted, f"{text}: {said}")
        expect(accepted or "src/error.rs:2: docs/design/errors.md does not say what becomes of `NoRoomError`" in said, said)


# The audit.

def checker():
    spec = importlib.util.spec_from_file_location("dependencies", f"{ROOT}/tools/dependencies.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@case
def licence_expressions_are_judged_as_spdx_means_them():
    allows = checker().allows
    allowed = {"MIT", "Apache-2.0", "BSD-3-Clause", "Apache-2.0 WITH LLVM-exception"}
    for expression, expected in [
        ("MIT", True), ("GPL-3.0", False), ("MIT OR GPL-3.0", True), ("MIT AND GPL-3.0", False), ("MIT/GPL-2.0", True),
        ("(MIT OR GPL-3.0) AND BSD-3-Clause", True), ("(MIT OR Apache-2.0) AND GPL-3.0", False),
        ("GPL-3.0 OR MIT AND BSD-3-Clause", True), ("Apache-2.0 WITH LLVM-exception", True), ("MIT WITH LLVM-exception", False),
    ]:
        expect(allows(expression, allowed) == expected, expression)
    for broken in ["", "MIT AND", "(MIT", "MIT)", "OR MIT", "MIT MIT"]:
        try:
            allows(broken, allowed)
        except ValueError:
            continue
        raise AssertionError(f"{broken!r} was read")


def package(name, version, license="MIT", source=None, path="/r/Cargo.toml"):
    return {"name": name, "version": version, "license": license, "source": source, "manifest_path": path}


@case
def each_rule_of_the_audit_refuses_what_breaks_it():
    module = checker()
    io_source = module.CRATES_IO
    rules = {
        "bans": {"multiple-versions": "deny", "deny": [{"name": "openssl-sys"}], "skip": [{"crate": "old@1.2", "reason": "x"}]},
        "licenses": {"allow": ["MIT"]},
    }

    def problems(*packages):
        by_id = {str(place): value for place, value in enumerate(packages)}
        users = {id: {"user"} for id in by_id}
        used = set()
        found = [*module.bans(by_id, users, rules), *module.versions(by_id, users, rules, used), *module.licences(by_id, rules),
                 *module.sources(by_id, "/r")]
        return found, used

    good = [package("a", "1.0.0", source=io_source), package("own", "0.1.0", license=None, path="/r/own/Cargo.toml")]
    expect(problems(*good) == ([], set()), problems(*good))
    for bad, part in [
        (package("openssl-sys", "0.9.0", source=io_source), "is banned; user depends on it"),
        (package("a", "2.0.0", source=io_source), "a is there in several versions"),
        (package("b", "1.0.0", license="GPL-3.0", source=io_source), "is under 'GPL-3.0'"),
        (package("b", "1.0.0", license=None, source=io_source), "names no licence"),
        (package("b", "1.0.0", license="MIT AND", source=io_source), "cannot be read"),
        (package("b", "1.0.0", source="git+https://example.com/b"), "not from crates.io"),
        (package("b", "1.0.0", path="/elsewhere/Cargo.toml"), "outside of the repository"),
    ]:
        found, _ = problems(*good, bad)
        expect(len(found) == 1 and part in found[0], f"{bad}: {found}")
    # The older of two versions, with a reason.
    old = [package("old", "1.2.9", source=io_source), package("old", "2.0.0", source=io_source)]
    expect(problems(*old) == ([], {"old@1.2"}), problems(*old))
    found, _ = problems(*old, package("old", "1.20.0", source=io_source))
    expect(len(found) == 1, found)
    expect(list(module.unknown({"bans": {"wildcards": "deny"}})), "an unknown rule was accepted")


@case
def a_skip_that_nothing_needs_fails_the_audit():
    module = checker()
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{ROOT}/deny.toml") as file:
            rules = file.read()
        with open(f"{folder}/deny.toml", "w") as file:
            file.write(rules.replace("skip = [", 'skip = [\n  { crate = "nobody@1", reason = "none" },'))
        module.metadata = lambda *_: ({}, {})
        sys.argv = ["dependencies.py", folder]
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            failed = module.main()
        expect(failed and "nobody@1 is not needed any more" in said.getvalue(), said.getvalue())


# The summary.

@case
def a_test_that_did_nothing_counts_as_skipped():
    with tempfile.TemporaryDirectory() as folder:
        log = "\n".join([
            "test a ... ok", "", "SKIPPED test b: KNACK_NO_CLUSTER=1", "test b ... ", "SKIPPED test c: KNACK_NO_CLUSTER=1", "ok",
            "test result: ok. 5 passed; 1 failed; 1 ignored; 0 measured",
        ])
        environment = {**os.environ, "CARGO_TARGET_DIR": folder}
        subprocess.run([f"{ROOT}/tools/summary.sh", "run", "rust", "echo", log], check=True, capture_output=True, env=environment)
        subprocess.run([f"{ROOT}/tools/summary.sh", "run", "chart", "echo", "chart: 4 passed, 0 failed, 2 skipped"], check=True, capture_output=True, env=environment)
        done = subprocess.run([f"{ROOT}/tools/summary.sh"], capture_output=True, text=True, env=environment)
        expect(done.stdout.splitlines()[-1] == "7 passed, 1 failed, 5 skipped", done.stdout)
        expect(done.returncode != 0, "a failure ended well")


@case
def what_failed_is_said_again_at_the_end():
    with tempfile.TemporaryDirectory() as folder:
        log = "\n".join([
            "test a ... FAILED", "failures:", "", "---- a stdout ----", "", "panicked at a.rs:1:", "left is not right", "", "failures:", "    a", "",
            "test result: FAILED. 1 passed; 1 failed",
        ])
        environment = {**os.environ, "CARGO_TARGET_DIR": folder}
        subprocess.run([f"{ROOT}/tools/summary.sh", "run", "rust", "echo", log], check=True, capture_output=True, env=environment)
        done = subprocess.run([f"{ROOT}/tools/summary.sh"], capture_output=True, text=True, env=environment)
        expect(done.stdout.splitlines()[:3] == ["---- a stdout ----", "  panicked at a.rs:1:", "  left is not right"], done.stdout)


@case
def failed_checks_of_our_own_runners_are_said_again_at_the_end():
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "CARGO_TARGET_DIR": folder}

        def summary(name, lines):
            subprocess.run([f"{ROOT}/tools/summary.sh", "run", name, "sh", "-c", 'printf "%s\\n" "$1"; exit 1', "sh", "\n".join(lines)],
                           capture_output=True, env=environment)
            done = subprocess.run([f"{ROOT}/tools/summary.sh"], capture_output=True, text=True, env=environment)
            expect(done.returncode == 1, done)
            return done.stdout.splitlines()[:-2]

        # tests/examples: a traceback below the name; only its end is shown.
        said = summary("examples", ["-- a.py", "3 passed, 0 failed", "-- b.py", "FAILED test_b", "Traceback (most recent call last):",
                                    *(f"  frame {number}" for number in range(9)), "AssertionError: seen 1, expected 2", "",
                                    "1 passed, 1 failed"])
        expect(said == ["---- FAILED test_b", *(f"    frame {number}" for number in range(4, 9)),
                        "  AssertionError: seen 1, expected 2"], said)
        # tests/chart, tests/dist, tests/cluster_packages and tests/tools: the reason beside the name, which may have several lines.
        said = summary("chart", ["ok      a  (0.1 s)", "FAILED  b: AssertionError: got", "more", "SKIPPED c: why", "noise",
                                 "FAILED  d: TimeoutError: e", "ok      f  (0.1 s)", "noise", "2 passed, 2 failed, 1 skipped"])
        expect(said == ["---- FAILED  b: AssertionError: got", "  more", "---- FAILED  d: TimeoutError: e"], said)
        # tests/sdk: a label before the name, and the log of what they talked to at the end.
        said = summary("sdk", ["ok   openai 2.1 test_a", "FAIL openai 2.1 test_b", "Traceback (most recent call last):", "E: no",
                               "openai 2.1: 1 passed, 1 failed", "--- log of knack dev (end)", "noise", "1 passed, 1 failed"])
        expect(said == ["---- FAIL openai 2.1 test_b", "  Traceback (most recent call last):", "  E: no"], said)
        # Many are named as long as there is room, and then counted.
        said = summary("chart", [*(f"FAILED  check {number}: why" for number in range(40)), "0 passed, 40 failed, 0 skipped"])
        expect(len(said) == 26 and said[-1] == "---- and 15 more failed checks, in the log above", said)
        # A suite that counts a failure and names none, as the SDKs' where one does not come to its end.
        said = summary("sdk", ["Segmentation fault", "0 passed, 1 failed"])
        expect(said == ["---- sdk ended with 1, its last lines:", "  Segmentation fault", "  0 passed, 1 failed"], said)


@case
def the_counts_are_those_of_the_whole_log():
    """Also where what writes the log is slower than the suite, and where the suite leaves a process behind."""
    with tempfile.TemporaryDirectory() as folder:
        slow = os.path.join(folder, "tee")
        with open(slow, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nsleep 1\nexec /usr/bin/tee \"$@\"\n")
        os.chmod(slow, 0o755)
        environment = {**os.environ, "CARGO_TARGET_DIR": folder, "PATH": folder + ":" + os.environ["PATH"]}
        for name, script in (("rust", "echo 4 passed, 0 failed"), ("left", "sleep 3 & echo 3 passed, 0 failed")):
            subprocess.run([f"{ROOT}/tools/summary.sh", "run", name, "sh", "-c", script], check=True, capture_output=True, env=environment)
        done = subprocess.run([f"{ROOT}/tools/summary.sh"], capture_output=True, text=True, env=environment)
        rows = done.stdout.splitlines()
        expect(rows[-1] == "7 passed, 0 failed, 0 skipped", done.stdout)
        # Beside the counts stands how long each took: `rust` waited for its slow log.
        expect(re.search(r"^rust +4 passed .* +[1-9]\d* s$", done.stdout, re.MULTILINE), done.stdout)


@case
def a_suite_that_ends_badly_without_a_failed_test_is_named():
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "CARGO_TARGET_DIR": folder}
        for name, script in (("lint", "echo the reason; exit 3"), ("rust", "echo 4 passed, 0 failed")):
            subprocess.run([f"{ROOT}/tools/summary.sh", "run", name, "sh", "-c", script], capture_output=True, env=environment)
        done = subprocess.run([f"{ROOT}/tools/summary.sh"], capture_output=True, text=True, env=environment)
        expect(done.stdout.splitlines()[:2] == ["---- lint ended with 3, its last lines:", "  the reason"], done.stdout)
        expect(done.stdout.splitlines()[-1] == "4 passed, 0 failed, 0 skipped" and done.returncode != 0, done)


# What is fetched.

@case
def an_environment_is_made_once_by_suites_beside_one_another_and_a_download_that_fails_is_tried_again():
    with tempfile.TemporaryDirectory() as folder:
        log, pins = os.path.join(folder, "log"), os.path.join(folder, "pins")
        for name, text in (("python3", f'echo venv >>{log}\nmkdir -p "$3/bin" && cp {folder}/pip "$3/bin/python"\n'),
                           # The first download fails; each ends well only if nobody has taken the environment away meanwhile.
                           ("pip", f'echo "$*" >>{log}\nsleep 1\n[ -x "$0" ] && [ "$(grep -c pip {log})" -gt 1 ]\n')):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n" + text)
            os.chmod(os.path.join(folder, name), 0o755)
        with open(pins, "w", encoding="utf-8") as file:
            file.write("one==1\n")
        environment = {**os.environ, "XDG_CACHE_HOME": os.path.join(folder, "cache"), "PATH": folder + ":" + os.environ["PATH"]}
        command = [f"{ROOT}/tools/environment.sh", "name", pins, "--no-deps"]
        suites = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
        said = [suite.communicate() for suite in suites]
        expect([suite.returncode for suite in suites] == [0, 0] and said[0][0] == said[1][0] != "", said)
        with open(log, encoding="utf-8") as file:
            made = file.read().splitlines()
        install = f"-m pip install --quiet --disable-pip-version-check --no-deps -r {pins}"
        expect(made == ["venv", install, install], made)


# The Makefile.

@case
def a_dry_run_of_make_test_does_nothing():
    """GNU make runs recipe lines that name $(MAKE) in a dry run as well."""
    done = subprocess.run(["make", "--no-print-directory", "-n", "test"], cwd=ROOT, capture_output=True, text=True, check=True)
    expect(done.stdout == "tools/test.sh\n", done.stdout)


# The attacks, which leave programs behind.

@case
def attacks_do_not_run_in_a_checkout():
    with tempfile.TemporaryDirectory() as folder:
        inside = os.path.join(folder, "a", "b")
        os.makedirs(inside)
        os.mkdir(os.path.join(folder, ".git"))
        # Its parts in the order in which the suites join them.
        with open(f"{ROOT}/tests/attacks/program.rs") as file:
            order = re.findall(r'include_str!\("(program/\w+\.py)"\)', file.read())
        parts = []
        for part in order:
            with open(f"{ROOT}/tests/attacks/{part}") as file:
                parts.append(file.read())
        attack = [sys.executable, "-B", "-c", "\n\n".join(parts)]
        for words in (["--control", "dropped_binary"], ["dropped_binary"], ["--each", "dropped_binary"]):
            done = subprocess.run([*attack, *words], cwd=inside, capture_output=True, text=True)
            expect(done.returncode == 1 and "in a git tree" in done.stderr, f"{words}: {done}")
            expect(not os.listdir(inside), os.listdir(inside))
        shutil.rmtree(os.path.join(folder, ".git"))
        subprocess.run([*attack, "--control", "dropped_binary"], cwd=inside, capture_output=True, check=True)
        expect(os.listdir(inside) == ["evil"], os.listdir(inside))


# The recording of the demo.

@case
def a_recording_shows_every_line_and_refuses_what_it_cannot_draw():
    spec = importlib.util.spec_from_file_location("recording", f"{ROOT}/tools/recording.py")
    recording = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recording)
    long = " ".join(f"word{n}" for n in range(60))
    text = f"\x1b[1myou\x1b[0m  <b> & \x1b[32mgreen\x1b[0m\n\n{long}\n{'x' * 300}\n"
    picture = recording.svg(text, [("a&b.gif", "image/gif", b"GIF89a")])
    root = xml.etree.ElementTree.fromstring(picture)
    rows = ["".join(row.itertext()) for row in root.iter("{http://www.w3.org/2000/svg}text")]
    expect(rows[0] == "you  <b> & green" and rows[-1] == "a&b.gif", rows)
    expect(all(len(row) <= recording.COLUMNS for row in rows), rows)
    middle = rows[1:-1]
    expect(" ".join(row.strip() for row in middle if "word" in row) == long, rows)
    expect("".join(row.strip() for row in middle if "xxx" in row) == "x" * 300, rows)
    styles = [(span.get("class"), span.text) for span in root.iter("{http://www.w3.org/2000/svg}tspan")]
    expect(("b", "you") in styles and ("g", "green") in styles, styles)
    expect('data:image/gif;base64,R0lGODlh"' in picture, picture)
    for moved in ["\x1b[2Jcleared", "one\rtwo", "\x1b[5Aup"]:
        try:
            recording.svg(moved, [])
        except ValueError:
            continue
        raise AssertionError(f"{moved!r} was drawn")


# Times.

@case
def times_are_measured_in_a_clone_and_judged_by_their_limits():
    with tempfile.TemporaryDirectory() as folder:
        repository, programs = os.path.join(folder, "repository"), os.path.join(folder, "programs")
        os.makedirs(os.path.join(repository, "tools"))
        os.makedirs(os.path.join(repository, "crates", "gateway", "src"))
        os.makedirs(programs)
        os.makedirs(os.path.join(repository, "docs"))
        page = os.path.join(repository, "docs", "benchmarks.md")
        with open(page, "w") as file:
            file.write("Before.\n<!-- times: written by make times -->\n"
                       "| `ci_cold_s` | 4000.0 | 3600 | over | 2026-01-02 |\n"
                       "| `gateway_edit_to_its_tests_green_s` | 99.0 | 20 | over | 2026-01-02 |\n<!-- end of times -->\nAfter.\n")
        for tool in ("times.sh", "bench_page.sh"):
            shutil.copy(f"{ROOT}/tools/{tool}", os.path.join(repository, "tools"))
        with open(os.path.join(repository, "crates", "gateway", "src", "app.rs"), "w") as file:
            file.write("// the gateway\n")
        # Takes a tenth of a second more for each line that was added.
        with open(os.path.join(programs, "cargo"), "w") as file:
            file.write('#!/bin/sh\n[ "$*" = "test -q -p knack-gateway" ] || exit 2\nsleep 0.$(grep -c const crates/gateway/src/app.rs)\n')
        with open(os.path.join(repository, "Makefile"), "w") as file:
            file.write("demo:\n\t@test ! -e made && touch made\n")
        os.chmod(os.path.join(programs, "cargo"), 0o755)
        git = ["git", "-C", repository, "-c", "user.name=a", "-c", "user.email=a@b"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "a"]):
            subprocess.run([*git, *words], check=True)
        environment = {**os.environ, "PATH": programs + ":" + os.environ["PATH"]}
        begun = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        times = os.path.join(repository, "tools", "times.sh")
        done = subprocess.run([times, "edit"], capture_output=True, text=True, env=environment)
        rows = {row.split()[1]: row.split()[2:] for row in done.stdout.splitlines()}
        expect(done.returncode == 0, done)
        seconds, limit, verdict = rows["gateway_edit_to_its_tests_green_s"]
        expect((limit, verdict) == ("20", "ok") and float(seconds) >= 0.2, rows)
        expect(rows["gateway_tests_with_nothing_to_build_s"][1:] == ["-", "floor"], rows)
        changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True).stdout
        expect(changed == " M docs/benchmarks.md\n", changed)
        # What was measured is written with its date; what was not keeps its row and its date.
        with open(page) as file:
            written = file.read().splitlines()
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        expect(written[0] == "Before." and written[-1] == "After.", written)
        expect(written[4] == "| `ci_cold_s` | 4000.0 | 3600 | over | 2026-01-02 |", written)
        # Before midnight, or after it.
        expect(written[5] in [f"| `gateway_edit_to_its_tests_green_s` | {seconds} | 20 | ok | {day} |" for day in (begun, today)], written)
        expect(written[6].startswith("| `gateway_tests_with_nothing_to_build_s` |") and len(written) == 9, written)
        done = subprocess.run([times, "edits"], capture_output=True, text=True, env=environment)
        expect(done.returncode == 2 and "no part edits" in done.stderr, done)
        # Its second make demo fails: no time is printed for what did not work.
        done = subprocess.run([times, "demo"], capture_output=True, text=True, env=environment)
        expect(done.returncode == 1 and "failed: make demo" in done.stderr, done)
        expect("demo_with_nothing_to_build_s" not in done.stdout, done)
        # A limit that is not met fails the command.
        with open(times) as file:
            text = file.read().replace("tests_green_s 20", "tests_green_s 0.1")
        with open(times, "w") as file:
            file.write(text)
        done = subprocess.run([times, "edit"], capture_output=True, text=True, env=environment)
        expect(done.returncode == 1 and " 0.1 over" in done.stdout, done)


failed = 0
for run in CASES:
    try:
        run()
        print(f"ok     {run.__name__}")
    except Exception as error:
        failed += 1
        print(f"FAILED {run.__name__}: {type(error).__name__}: {error}")
print(f"{len(CASES) - failed} passed, {failed} failed")
sys.exit(failed > 0)
