#!/usr/bin/env python3
"""Files of one crate that import each other in a circle, unless tools/cycles.txt says why they may.

cycles.py [FOLDER]   FOLDER is a repository; this one when absent. Says nothing if all is well.

A circle means that none of its files can be read, tested or moved without the others. Mostly one misplaced type ties it: give the type a file
of its own. Read are `use` declarations and paths from `crate` or `super` outside of tests; a name that a module re-exports counts for
the file that has it.
"""
import re
import subprocess
import sys
from pathlib import Path

ALLOWED = "tools/cycles.txt"
PATH = re.compile(r"\b((?:crate|super|self)(?:::(?:super|[A-Za-z_]\w*))+)")
USE = re.compile(r"^[ \t]*(pub(?:\([^)]*\))? )?use ([\w:]+[^;]*);", re.M)


def code_of(text):
    """The text without comments, strings and test modules."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r'r#"(?:.|\n)*?"#|"(?:[^"\\]|\\.)*"', '""', text)
    return re.sub(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))? )?(?:mod \w+ \{.*\Z|\w[^;{]*;)", "", text, flags=re.S)


def leaves(tree):
    """The paths of a use tree: `a::{b, c::{d, self}}` is a::b, a::c::d and a::c."""
    tree = re.sub(r"\s+as\s+\w+", "", tree).strip()
    if "{" not in tree:
        return [tree]
    head, rest = tree.split("{", 1)
    inner, found, depth, start = rest[: rest.rindex("}")], [], 0, 0
    for at, letter in enumerate(inner + ","):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if inner[start:at].strip():
                found += [head + leaf for leaf in leaves(inner[start:at])]
            start = at + 1
    return [leaf.removesuffix("::self") for leaf in found]


class Crate:
    """Modules of one crate by their path, as tuples of names."""

    def __init__(self, root):
        self.files, self.code, self.given = {}, {}, {}
        for file in sorted(root.rglob("*.rs")):
            parts = list(file.relative_to(root).with_suffix("").parts)
            if parts[0] in ("main", "bin") or parts[-1].endswith("tests"):
                continue
            if parts[-1] in ("mod", "lib"):
                parts.pop()
            self.files[tuple(parts)] = file
            self.code[tuple(parts)] = code_of(file.read_text())
        for module, code in self.code.items():
            for is_public, tree in USE.findall(code):
                for leaf in leaves(tree) if is_public else []:
                    self.given[module + (leaf.split("::")[-1],)] = self.absolute(module, leaf)

    def absolute(self, module, path):
        names = path.replace(" ", "").replace("\n", "").split("::")
        here = list(module)
        if names[0] == "crate":
            here = []
        elif names[0] == "super":
            here = here[:-1]
        elif names[0] != "self":
            return tuple(here + names) if tuple(here + names[:1]) in self.files else None
        rest = names[1:]
        while rest and rest[0] == "super":
            here, rest = here[:-1], rest[1:]
        return tuple(here + rest)

    def home(self, path):
        """The module whose file has what this path names."""
        for _ in range(8):
            if path not in self.given or self.given[path] in (None, path):
                break
            path = self.given[path]
        while path and path not in self.files:
            if path[:-1] + (path[-1],) in self.given and self.given[path] not in (None, path):
                return self.home(self.given[path])
            path = path[:-1]
        return path

    def edges(self):
        """By module, the modules that it names and what it takes from each."""
        graph = {module: {} for module in self.files}
        for module, code in self.code.items():
            uses = [leaf for public, tree in USE.findall(code) if not public for leaf in leaves(tree)]
            uses += PATH.findall(re.sub(USE, "", code))
            for use in uses:
                path = self.absolute(module, use)
                home = self.home(path) if path is not None else None
                if home is not None and home in self.files and home != module:
                    graph[module].setdefault(home, set()).add(path[len(home)] if len(path) > len(home) else use.split("::")[-1])
        return graph


def circles(graph):
    """Strongly connected groups of more than one module (Tarjan)."""
    index, low, stack, found, counter = {}, {}, [], [], [0]

    def visit(node):
        index[node] = low[node] = counter[0]
        counter[0] += 1
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = []
            while not group or group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    allowed = [set(line.split("#")[0].split()) for line in (root / ALLOWED).read_text().splitlines() if line.split("#")[0].strip()]
    used, wrong = [], []
    for source in [root / "src", *sorted((root / "crates").glob("*/src"))]:
        crate = Crate(source)
        graph = crate.edges()
        name = lambda module: str(crate.files[module].relative_to(root))
        for group in circles(graph):
            names = {name(module) for module in group}
            if names in allowed:
                used.append(names)
                continue
            wrong.append("  " + ", ".join(sorted(names)))
            wrong += [f"    {name(a)} -> {name(b)}: {', '.join(sorted(graph[a][b]))}" for a in group for b in sorted(graph[a]) if b in group]
    wrong += ["  no longer a circle, take it out of the list: " + " ".join(sorted(a)) for a in allowed if a not in used]
    if wrong:
        sys.exit("lint: files that import each other (tools/cycles.py says what to do):\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
