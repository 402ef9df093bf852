#!/usr/bin/env python3
"""Which items of the product its programs reach, by the text of the sources.

reached.py [FOLDER]           lint: items that no program reaches, unless tools/unreached.txt says why they are kept
reached.py vectors [FOLDER]   for each op of the behaviour vectors, `FILE OP`, and the functions of its adapter that no program reaches

Programs are the `main` functions of src/, crates/*/src/ and their bin/. A program reaches what `main` names, and what the text of everything
reached names, without tests and without what the feature `fixture` adds. What one name can mean:

- `module::name`, `Type::name`: the item of that module or type; where the product has no such module or type, nothing;
- `.name(`: every method of that name that takes `self`, of types that are reached; without the bracket it is a field;
  `self.name(`: the method of the own type, where it has one;
- `name`: the item of its file, or the one that the file imports by that name. Imports and re-exports alone are not uses.

Only crates that the text's crate depends on are meant. Implementations of traits are reached with their type. So more counts as reached than a
linker would keep, never less: what is listed here can be deleted, and everything still compiles but tests.
"""
import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

from cycles import leaves

KEPT = "tools/unreached.txt"
ITEM = re.compile(r"(?:\b(pub)(?:\([^)]*\))?\s+)?(?:default\s+)?(?:(?:async|const|unsafe|extern \"\")\s+)*"
                  r"\b(fn|struct|enum|union|const|static|type|trait|macro_rules!|impl|mod)\b\s*(?=[<A-Za-z_])")
NAME = re.compile(r"(?:mut\s+)?([A-Za-z_]\w*)")
TOKEN = re.compile(r"'[A-Za-z_]\w*|[A-Za-z_]\w*|::|\.\.|[.>]|[^\s\w]|\d\w*")
STRING = re.compile(r'b?r(#*)".*?"\1|b?"(?:[^"\\]|\\.)*"', re.S)
CHARACTER = re.compile(r"b?'(?:[^'\\\n]|\\(?:u\{[^}]*\}|x..|.))'")
IMPORT = re.compile(r"^[ \t]*(?:pub(?:\([^)]*\))? )?use ([^;]*);", re.M)
NOT_PRODUCT = re.compile(r"#\[cfg\((?:test|(?:all|any)\(test[^\]]*|feature = \"fixture\"|any\(test, feature = \"fixture\"\))\)\]\s*(?:#\[[^\]]*\]\s*)*")


def names_in(string, before):
    """Names that macros read in a string: `{NAME}` of formatting, `name = "path::of::function"` of attributes."""
    inner = string[string.index('"') + 1:-1]
    found = re.findall(r"(?<!\{)\{([A-Za-z_]\w*)", inner)
    if re.search(r"\w\s*=\s*$", before) and re.fullmatch(r"[A-Za-z_]\w*(?:::\w+)*", inner):
        found.append(inner)
    return found


def plain(text):
    """The text without comments and literals; names inside of literals stay."""
    out, at = [], 0
    token = re.compile(r"//[^\n]*|/\*.*?\*/|" + STRING.pattern + "|" + CHARACTER.pattern, re.S)
    for found in token.finditer(text):
        out.append(text[at:found.start()])
        at = found.end()
        if '"' in found[0] and not found[0].startswith("/"):
            before = text[max(0, found.start() - 8):found.start()]
            out.append('""' if re.search(r"extern\s*$", before) else f' {" ; ".join(names_in(found[0], before))} ')
        else:
            out.append(" ")
    return "".join(out) + text[at:]


def end_of(text, start):
    """Where the item that starts here ends: its closing brace or its semicolon."""
    depth = 0
    for found in re.compile(r"[{}()\[\];]").finditer(text, start):
        letter = found[0]
        if letter in "{([":
            depth += 1
        elif letter in "})]":
            depth -= 1
            if letter == "}" and depth <= 0:
                # `struct A {..}` ends here, `const A: T = T {..};` with its semicolon.
                return found.end() if not re.match(r"\s*[;.?]", text[found.end():found.end() + 20]) else text.index(";", found.end()) + 1
        elif depth == 0:
            return found.end()
    return len(text)


def product(text):
    """The text of the product: no tests, no fixtures."""
    kept, at = [], 0
    marked = re.compile(NOT_PRODUCT)
    while found := marked.search(text, at):
        kept.append(text[at:found.start()])
        at = end_of(text, found.end())
    return plain("".join(kept) + text[at:])


def mentions(text):
    """Names in a text, each with what qualifies it (`before::name`) and whether a dot is before it;
    `self.name(` is qualified by `Self`. No fields, set (`name: value`) or read."""
    tokens = ["", "", *TOKEN.findall(text), ""]
    for place, token in enumerate(tokens):
        if (token[:1].isalpha() or token[:1] == "_") and tokens[place + 1] != ":":
            sign = tokens[place - 1]
            if sign == "." and tokens[place + 1] not in ("(", "::"):
                continue
            is_of_self = sign == "." and tokens[place - 2] == "self" and tokens[place - 3] != "."
            yield "Self" if is_of_self else tokens[place - 2] if sign == "::" else "", sign == ".", token


def imports_of(text):
    """What a file imports: by the name that it has there, (the name of the item, what qualifies it); `*` has what is imported whole."""
    found = defaultdict(set)
    for tree in IMPORT.findall(text):
        renamed = dict(re.findall(r"(\w+)\s+as\s+(\w+)", tree))
        for leaf in leaves(tree):
            *before, name = leaf.replace(" ", "").replace("\n", "").split("::")
            for known in {name, renamed.get(name, name)}:
                found[known].add((name, before[-1] if before else ""))
    return found


class Item:
    """A named item: where it is, its crate, the module or type that it belongs to, and the text that is its own."""

    def __init__(self, file, crate, kind, name, owner, module, is_public):
        self.file, self.crate, self.kind, self.name, self.owner, self.module = file, crate, kind, name, owner, module
        self.is_public, self.text, self.signature = is_public, "", ""

    def is_method(self):
        """Whether it is called on a value: `value.name(..)`."""
        return re.match(r"\s*\(\s*(?:&\s*)?(?:'\w+\s+)?(?:mut\s+)?self\b", without_generics(self.signature)) is not None

    def self_type(self):
        """What `Self` means in its text."""
        return self.owner or (self.name if self.kind not in ("fn", "const", "static") else None)

    def __str__(self):
        return f"{self.owner or self.module}::{self.name}"


def without_generics(text):
    depth, out = 0, []
    for letter in text.replace("->", ""):
        depth += letter == "<"
        if depth == 0:
            out.append(letter)
        depth -= letter == ">"
    return "".join(out)


def items_of(text, file, crate, module, owner=None, by=None):
    """Items in a text. A method of a trait's implementation, and what a body holds, is text of the item around it."""
    found, rest, at = [], [], 0
    while match := ITEM.search(text, at):
        end = end_of(text, match.end())
        kind, body = match[2], text[match.end():end]
        if kind == "mod":
            rest.append(text[at:match.start()])
            brace = body.find("{")
            inner = module if brace < 0 else NAME.match(body)[1]
            more, left = items_of(body[brace + 1:-1] if brace >= 0 else "", file, crate, inner)
            found += more
            rest.append(left)
            at = end
            continue
        if kind == "impl":
            head, brace, inner = body.partition("{")
            words = without_generics(head.split(" where ")[0].split("\nwhere")[0])
            is_trait = re.search(r"\bfor\b", words)
            type_name = (re.findall(r"[A-Za-z_]\w*", words.split(" for ")[-1]) or [""])[-1]
            rest.append(text[at:match.start()])
            if not brace:
                at = match.end()
                continue
            if is_trait:
                item = Item(file, crate, "impl", type_name, None, module, False)
                item.text = head + inner
                found.append(item)
            else:
                more, left = items_of(inner, file, crate, module, owner=type_name)
                item = Item(file, crate, "impl", type_name, None, module, False)
                item.text = head + left
                found += [*more, item]
            at = end
            continue
        name = NAME.match(body)
        if not name or name[1] in ("fn", "unsafe", "for") or kind == "const" and name[1] == "_":
            rest.append(text[at:match.end()])
            at = match.end()
            continue
        item = Item(file, crate, kind, name[1], owner, module, bool(match[1]))
        # The attributes before it, and all of its text.
        attributes = re.search(r"(?:#\[(?:[^\[\]]|\[[^\]]*\])*\]\s*)*$", text[at:match.start()])
        item.text = attributes[0] + body[name.end():]
        item.signature = body[name.end():].partition("{")[0] if kind == "fn" else ""
        rest.append(text[at:match.start() - len(attributes[0])])
        found.append(item)
        at = end
    rest.append(text[at:])
    return found, " ".join(rest)


class Crate:
    def __init__(self, name, folder, programs=("main.rs", "bin")):
        self.name, self.items, self.imports, self.loose = name, [], {}, []
        self.modules, self.roots = set(), []
        for file in sorted(folder.rglob("*.rs")):
            parts = list(file.relative_to(folder).with_suffix("").parts)
            if parts[-1].endswith("tests") or parts[-1] == "fixture" or "tests" in parts:
                continue
            is_program = parts[0] in ("main", "bin")
            module = (parts[-2] if len(parts) > 1 else name) if parts[-1] in ("mod", "lib", "main") else parts[-1]
            text = product(file.read_text())
            self.imports[file] = imports_of(text)
            text = IMPORT.sub("", text)
            found, rest = items_of(text, file, name, module)
            self.items += found
            self.loose.append((file, rest))
            self.modules.add(module)
            if is_program:
                self.roots += [item for item in found if item.name == "main"]


class Product:
    def __init__(self, root):
        self.root = root
        self.crates, self.needs = {}, {}
        for manifest in [root / "Cargo.toml", *sorted(root.glob("crates/*/Cargo.toml"))]:
            data = tomllib.loads(manifest.read_text())
            if "package" not in data:
                continue
            name = data["package"]["name"].replace("-", "_")
            self.crates[name] = Crate(name, manifest.parent / "src")
            self.needs[name] = {other.replace("-", "_") for other in data.get("dependencies", {})}
        for name in self.crates:
            self.needs[name] = self.closure(name)
        self.index()

    def closure(self, name):
        found, wait = {name}, [name]
        while wait:
            for other in self.needs.get(wait.pop(), ()):
                if other in self.crates and other not in found:
                    found.add(other)
                    wait.append(other)
        return found

    def index(self):
        self.by_name, self.plain_types, self.modules = defaultdict(list), set(), set()
        for crate in self.crates.values():
            self.modules |= crate.modules | {crate.name}
            for item in crate.items:
                self.by_name[item.name].append(item)
        types = [item for crate in self.crates.values() for item in crate.items if item.kind in ("struct", "enum", "union", "trait", "type")]
        self.aliases = defaultdict(set)
        texts = [f"type {item.name}{item.text}" if item.kind == "type" else item.text for crate in self.crates.values() for item in crate.items]
        for name, meaning in re.findall(r"\btype (\w+)[^=;{]*=([^;]*);", "\n".join(texts)):
            self.aliases[name].update(re.findall(r"\w+", meaning))
        self.plain_types = {item.name for item in types} - {item.name for item in types if item.kind == "type"}

    def meant(self, crate, file, owner, text):
        """Items that a text of a file names: (item, whether it is a method by its name alone)."""
        visible, imports = self.needs[crate], self.crates[crate].imports[file]
        for before, dot, name in mentions(text):
            before = owner or "" if before == "Self" else before
            befores = {before} | {old for old, _ in imports.get(before, ())}
            names = {name} | {old for old, _ in imports.get(name, ()) if not before}
            is_own = dot and before and any(item.owner == before for item in self.by_name.get(name, ()))
            for item in (item for each in names for item in self.by_name.get(each, ()) if item.crate in visible):
                if dot or item.owner:
                    if dot and item.owner and item.is_method() and (not is_own or item.owner == before):
                        yield item, True
                    elif not dot and item.owner in befores:
                        yield item, False
                    elif not dot and (re.fullmatch("[A-Z]", before) or any(item.owner in self.aliases.get(alias, ()) for alias in befores)):
                        # `T::name` and `Alias::name`: any type that is reached, and that the alias is made of.
                        yield item, True
                elif befores & self.plain_types:
                    continue
                elif before:
                    if before in (">", "crate", "super", "self") or not befores & self.modules or any(self.gives(module, item) for module in befores):
                        yield item, False
                elif item.file == file or "*" in imports or any(self.gives(module, item) for _, module in imports.get(name, ())):
                    yield item, False

    def gives(self, module, item):
        """Whether a path may end `module::item`: the module has it, or may re-export it from a module below."""
        if module in ("crate", "super", "self", "") or module not in self.modules:
            return True
        # Folders of the repository, not those that a clone lies in.
        return module in (item.module, item.crate) or module in item.file.relative_to(self.root).parts

    def reached(self):
        seen, waiting = set(), defaultdict(list)
        types = set()
        wait = [item for crate in self.crates.values() for item in crate.roots]
        loose = [(crate.name, file, None, text) for crate in self.crates.values() for file, text in crate.loose]
        seen.update(map(id, wait))

        def add(item):
            if id(item) not in seen:
                seen.add(id(item))
                wait.append(item)

        def read(crate, file, owner, text):
            for item, by_name_alone in self.meant(crate, file, owner, text):
                if by_name_alone and (item.crate, item.owner) not in types:
                    waiting[item.crate, item.owner].append(item)
                else:
                    add(item)

        for each in loose:
            read(*each)
        while wait:
            item = wait.pop()
            if item.kind in ("struct", "enum", "union", "trait", "type", "impl"):
                key = item.crate, item.name
                types.add(key)
                for other in waiting.pop(key, ()):
                    add(other)
                for other in self.by_name[item.name]:
                    if other.kind == "impl" and other.crate in self.needs and item.crate in self.needs[other.crate]:
                        add(other)
            elif item.owner:
                types.add((item.crate, item.owner))
                for other in waiting.pop((item.crate, item.owner), ()):
                    add(other)
                for other in self.by_name[item.owner]:
                    if other.crate == item.crate:
                        add(other)
            read(item.crate, item.file, item.self_type(), item.text)
        return seen


def unreached(product):
    """Named items of the product that no program reaches: visible outside of their file, so that rustc says nothing of them."""
    seen = product.reached()
    for crate in product.crates.values():
        for item in crate.items:
            if item.is_public and item.kind not in ("impl", "mod") and id(item) not in seen:
                yield item


def kept(root):
    """By file and name, the reason for which an item that no program reaches stays."""
    file = root / KEPT
    for line in file.read_text().splitlines() if file.exists() else []:
        words, _, reason = line.partition("#")
        path, *names = words.split() or [None]
        for name in names:
            yield (path, name), reason.strip()


def lint(root):
    reasons = dict(kept(root))
    found = {(str(item.file.relative_to(root)), str(item)): item for item in unreached(Product(root))}
    wrong = [f"{path}: {item.kind} {name}" for (path, name), item in found.items() if (path, name) not in reasons]
    wrong += [f"{KEPT}: {path} {name} is reached, or gone; take it out" for path, name in reasons if (path, name) not in found]
    wrong += [f"{KEPT}: {path} {name} has no reason" for (path, name), reason in reasons.items() if not reason]
    if wrong:
        sys.exit("lint: items that no program reaches. Delete them, move them to the tests that use them, or give a reason in "
                 f"{KEPT}:\n" + "\n".join(f"  {line}" for line in wrong))


OPS = re.compile(r'Op::new\(\s*(?:"(\w+)"|FILE)\s*,\s*"([\w.]+)"\s*,\s*(?:(\w+)::)?(\w+)')


def vectors(root):
    """(file, op, what its adapter names of the product and no program reaches) of each row of the adapters' tables."""
    product = Product(root)
    seen = product.reached()
    tests = Crate("vectors", root / "tests/vectors/src")
    product.crates["vectors"] = tests
    product.needs["vectors"] = {"vectors", *product.crates}
    product.index()
    for file in sorted((root / "tests/vectors/src/adapters").rglob("*.rs")):
        text = file.read_text()
        own = re.search(r'const FILE: &str = "(\w+)"', text)
        for stem, op, module, function in OPS.findall(text):
            places = [item for item in product.by_name[function] if item.crate == "vectors" and (item.module == module if module else item.file == file)]
            if len(places) != 1:
                sys.exit(f"reached: {file.relative_to(root)}: the adapter {function} of {op} is there {len(places)} times")
            yield stem or own[1], op, sorted({str(item) for item in named_by(product, places[0]) if id(item) not in seen})


def named_by(product, adapter):
    """What an adapter and the functions of its crate below it name of the product by a path, and of the crate's own `facts`."""
    done, wait = set(), [adapter]
    while wait:
        item = wait.pop()
        for other, by_name_alone in product.meant(item.crate, item.file, item.self_type(), item.text):
            if other.crate != "vectors" and not by_name_alone and other.kind != "impl":
                yield other
            elif other.crate == "vectors" and "facts" in other.file.parts:
                if not by_name_alone and other.kind != "impl":
                    yield other
            elif other.crate == "vectors" and id(other) not in done and other.module not in ("registry", "mod"):
                done.add(id(other))
                wait.append(other)


def main():
    words = sys.argv[1:]
    is_of_vectors = words[:1] == ["vectors"]
    root = Path((words[1:] if is_of_vectors else words)[0] if words[is_of_vectors:] else Path(__file__).parent.parent).resolve()
    if is_of_vectors:
        for stem, op, missing in vectors(root):
            print(stem, op, *missing, sep="\t")
    else:
        lint(root)


if __name__ == "__main__":
    main()
