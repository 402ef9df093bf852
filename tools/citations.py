#!/usr/bin/env python3
"""Checks that what the code and the pages cite is there: pages, headings, files. Standard library only.

    tools/citations.py [DIRECTORY]      default: this repository; only files that git tracks are read

A citation is a path from the root, with the anchor that GitHub makes of a heading: docs/<page>.md#<heading>, or one of
the pages at the root. Links of Markdown are relative to their file. Refused by file and line:

- a page or a heading that is not there, and a link to a file that is not there;
- a page of docs/design/ that the code cites without a heading;
- a section of a page that is named without its path, or of a page that nobody has;
- a public type of an error that the page of errors does not name;
- a page of docs/design/ that its README does not list, and a path in backticks there, or in ARCHITECTURE.md, that does
  not exist; behind a path, `path`: `words`, words that the code of that file does not have.
"""
import os
import re
import subprocess
import sys

ROOT_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md")
DESIGN = "docs/design/"
ERRORS = f"{DESIGN}errors.md"
PRODUCT = re.compile(r"(?:src|crates/(?!mock-provider/)[^/]+/src)/.*\.rs$")
ERROR_TYPE = re.compile(r"pub(?:\(crate\))? (?:enum|struct) (\w*(?:Error|Failure|Fault|Problem|Refusal))\b")
# Data of other programs, in which such names mean other files, and the tests of this program, which plant wrong ones.
IGNORED = ("tests/vectors/cases/", "crates/wire/tests/fixtures/", "Cargo.lock", "fuzz/Cargo.lock", "tests/tools/lint.py",
           "tests/tools/main.py")

NOT_IN_A_PATH = r"(?<![\w./-])"
CITED = re.compile(NOT_IN_A_PATH + r"(docs/[\w./-]*?\w\.md|" + "|".join(map(re.escape, ROOT_PAGES)) + r")(?:#([\w-]+))?")
# Three ways to point at a place in a page without saying which file of this repository it is.
BARE = re.compile(NOT_IN_A_PATH + r"([a-z][a-z0-9-]*\.md)(?:`?,? (?:section|rule|point)\b|`? \(?\d)")
NUMBERED = re.compile(r"\bseeds/\d|\bchecklist section\b")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`]+)`")
NAMED = re.compile(r"`([^`]+)`: `([^`]+)`")
PLACE = re.compile(r"(?:\.github|src|crates|tests|benches|fuzz|tools|charts|crds|deploy|images|examples|docs)(?:/[\w.-]+)+/?")


def tracked(root):
    """Paths that git knows, sorted; in a working tree also those that are new and not ignored."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True, capture_output=True)
    paths = {path for path in listed.stdout.decode().split("\0") if path}
    return sorted(path for path in paths if os.path.isfile(os.path.join(root, path)))


def text_of(root, path):
    """The text of a file, or nothing where it is not UTF-8."""
    with open(os.path.join(root, path), "rb") as file:
        data = file.read()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""


def outside_of_fences(text):
    """(line number, line) of Markdown that is no fenced code."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r" {0,3}(`{3,}|~{3,})", line)
        if fence is None and mark:
            fence = mark[1]
        elif fence is not None:
            if mark and mark[1].startswith(fence) and line.strip() == mark[1]:
                fence = None
        else:
            yield number, line


def slug(heading):
    """The anchor that GitHub makes of a heading: lower case, punctuation left out, blanks as hyphens."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def anchors(text):
    """All anchors of a page; a heading that stands there again gets a number."""
    found, seen = set(), {}
    for _, line in outside_of_fences(text):
        heading = re.match(r" {0,3}#{1,6}\s+(.*?)\s*#*\s*$", line)
        if heading:
            name = slug(heading[1])
            count = seen.get(name, 0)
            seen[name] = count + 1
            found.add(f"{name}-{count}" if count else name)
    return found


class Repository:
    """What is there: files, folders, and the headings of pages."""

    def __init__(self, root):
        self.root = root
        self.files = tracked(root)
        self.known = set(self.files)
        self.folders = {os.path.dirname(path)[:end] for path in self.files for end in ends(os.path.dirname(path))}
        self.pages = {path: anchors(text_of(root, path)) for path in self.files if path.endswith(".md")}
        self.names = {os.path.basename(path) for path in self.pages if path.startswith("docs/")}

    def page(self, path, anchor):
        """Why a page and its heading cannot be cited; None: they can."""
        if path not in self.pages:
            return f"there is no page {path}"
        if anchor and anchor not in self.pages[path]:
            return f"{path} has no heading #{anchor}"
        return None

    def link(self, source, target):
        """Why a link in a page leads nowhere; None: it leads somewhere."""
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            return None
        path, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(source), path)) if path else source
        if path.endswith(".md"):
            return self.page(path, anchor)
        return None if path in self.known or path in self.folders or path == "." else f"the link leads to {path}, which is not there"


def ends(folder):
    """Where each leading folder of a path ends."""
    return [match.start() for match in re.finditer("/", folder)] + [len(folder)]


def of_code(repository, line):
    """What is wrong with the citations in one line that is not Markdown."""
    for path, anchor in CITED.findall(line):
        problem = repository.page(path, anchor)
        if problem:
            yield problem
        elif path.startswith(DESIGN) and not anchor:
            yield f"{path} is cited without a heading; write {path}#<heading>"
    yield from of_text(repository, line)


def of_text(repository, line):
    """What is wrong with pages that a line names without their paths."""
    for match in BARE.finditer(line):
        where = "write its path from the root, with the heading" if match[1] in repository.names else "there is no such page"
        yield f"{match[1]} is named without its path: {where}"
    for match in NUMBERED.finditer(line):
        yield f"{match[0]!r} is no page of this repository; cite {DESIGN}<page>.md#<heading>"


def of_page(repository, path, line):
    """What is wrong with the links and citations in one line of Markdown."""
    for target in LINK.findall(CODE.sub("", line)):
        problem = repository.link(path, target)
        if problem:
            yield problem
    rest = LINK.sub("", line)
    for cited, anchor in CITED.findall(rest):
        problem = repository.page(cited, anchor)
        if problem:
            yield problem
    yield from of_text(repository, rest)
    if path == "ARCHITECTURE.md" or path.startswith(DESIGN):
        for place in CODE.findall(line):
            exists = place.rstrip("/") in repository.folders or place in repository.known
            if PLACE.fullmatch(place) and not exists:
                yield f"`{place}` does not exist"
        for place, words in NAMED.findall(line):
            if place in repository.known and not has_words(text_of(repository.root, place), words):
                yield f"`{place}` has no `{words}`"


def has_words(code, words):
    """Whether code has these words as they are written, whole and outside of comments."""
    lines = (line for line in code.splitlines() if not line.lstrip().startswith(("//", "#")))
    return any(re.search(rf"(?<!\w){re.escape(words)}(?!\w)", line) for line in lines)


def of_file(repository, path):
    """(line number, problem) of one file."""
    text = text_of(repository.root, path)
    if path.endswith(".md"):
        for number, line in outside_of_fences(text):
            yield from ((number, problem) for problem in of_page(repository, path, line))
    elif ".md" in text or "seeds/" in text or "checklist" in text:
        for number, line in enumerate(text.splitlines(), 1):
            yield from ((number, problem) for problem in of_code(repository, line))


def unlisted(repository):
    """Pages of the design that nobody finds from its README."""
    readme = f"{DESIGN}README.md"
    if readme not in repository.pages:
        return
    text = text_of(repository.root, readme)
    for path in repository.pages:
        name = path.removeprefix(DESIGN)
        if path.startswith(DESIGN) and path != readme and f"({name})" not in text:
            yield f"{readme}: does not list {name}"


def unnamed(repository):
    """Public types of errors in the products that the page of errors, if there is one, does not name."""
    if ERRORS not in repository.pages:
        return
    page = text_of(repository.root, ERRORS)
    for path in repository.files:
        if PRODUCT.match(path) and not path.endswith("_tests.rs"):
            for number, line in enumerate(text_of(repository.root, path).splitlines(), 1):
                found = ERROR_TYPE.match(line)
                if found and not (f"`{found[1]}`" in page and f"`{path}`" in page):
                    yield f"{path}:{number}: {ERRORS} does not say what becomes of `{found[1]}` (`{path}`)"


def main():
    root = os.path.realpath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), ".."))
    repository = Repository(root)
    problems = [
        f"{path}:{number}: {problem}"
        for path in repository.files
        if not path.startswith(IGNORED)
        for number, problem in of_file(repository, path)
    ]
    problems += [*unlisted(repository), *unnamed(repository)]
    if problems:
        print("lint: citations that lead nowhere:", *(f"  {problem}" for problem in problems), sep="\n", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
