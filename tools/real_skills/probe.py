"""Runs inside the sandbox: does every import of a skill's Python scripts, and looks for every program that they start.

    python3 inputs/probe.py SKILL

Prints one JSON document: for each script what failed. Each script's imports are done in a process of their own, as if it
had been started by its path, or as a module of the skill's folder.
"""

import ast
import importlib
import json
import os
import shutil
import subprocess
import sys

# A library that takes longer to import hangs.
SECONDS = 120
STARTERS = {"run", "Popen", "call", "check_call", "check_output", "create_subprocess_exec", "system", "popen"}
CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


def catches(handler):
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return handler.type is None or any(isinstance(kind, ast.Name) and kind.id in CAUGHT for kind in kinds)


def imports_of(node, optional=False):
    """Every import below a node: module, level, names, whether the script does without."""
    if isinstance(node, ast.Import):
        return [(alias.name, 0, [], optional) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [(node.module or "", node.level, [alias.name for alias in node.names if alias.name != "*"], optional)]
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        optional = True
    found = []
    for field, value in ast.iter_fields(node):
        may_fail = optional or (field == "body" and isinstance(node, ast.Try) and any(map(catches, node.handlers)))
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                found += imports_of(child, may_fail)
    return found


def programs_of(tree):
    """First words of what is started: constants only, without paths of the skill's own files and without python."""
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        first = node.args[0]
        if isinstance(first, ast.List) and first.elts:
            first = first.elts[0]
        is_text = isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value.strip()
        if name in STARTERS and is_text:
            word = first.value.split()[0]
            if not word.startswith(("python", ".", "-")) and word.replace("-", "").replace("_", "").isalnum():
                found.add(word)
    # The usual shape: a list of its own, such as cmd = ["pandoc", ...], started later.
    starts = any(isinstance(node, ast.Attribute) and node.attr in STARTERS for node in ast.walk(tree))
    for node in ast.walk(tree) if starts else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List) and len(node.value.elts) > 1:
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            first = node.value.elts[0]
            if names & {"cmd", "command", "args", "argv"} and isinstance(first, ast.Constant) and isinstance(first.value, str):
                if first.value and not first.value.startswith(("python", ".", "-", "/")):
                    found.add(first.value)
    return sorted(found)


def one(root, script):
    """Does the imports of one script, in this process."""
    folder = os.path.dirname(os.path.join(root, script))
    sys.path[:1] = [folder, root]
    failed = []
    with open(os.path.join(root, script), encoding="utf-8") as file:
        wanted = imports_of(ast.parse(file.read()))
    package = script.split("/")[:-1]
    for module, level, names, optional in wanted:
        above = package[:len(package) - level + 1] if level else []
        whole = ".".join([*above, *([module] if module else [])])
        try:
            loaded = importlib.import_module(whole)
            for name in names:
                if not hasattr(loaded, name):
                    importlib.import_module(f"{whole}.{name}")
        except BaseException as error:
            if not optional:
                failed.append(f"{type(error).__name__}: {error}"[:200])
    return list(dict.fromkeys(failed))


def judged(root, script, unusable):
    """One script: what failed, in a process of its own."""
    try:
        with open(os.path.join(root, script), encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (SyntaxError, ValueError) as error:
        return {"script": script, "imports": [f"not Python: {error}"], "programs": []}
    try:
        child = subprocess.run([sys.executable, os.path.abspath(__file__), "--one", root, script], stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=SECONDS)
        # Modules may print while they are imported; the answer is the last line.
        failed = json.loads(child.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        failed = [f"its imports took more than {SECONDS} s"]
    except (ValueError, IndexError):
        failed = [f"its imports ended the interpreter: exit {child.returncode}, {child.stderr[-200:]}"]
    missing = [program for program in programs_of(tree) if program in unusable or not shutil.which(program)]
    return {"script": script, "imports": failed, "programs": missing}


def main():
    if sys.argv[1] == "--one":
        print("\n" + json.dumps(one(*sys.argv[2:])), flush=True)
        # Threads of libraries do not keep the answer waiting.
        os._exit(0)
    root = os.path.abspath(os.path.join("skills", sys.argv[1]))
    scripts = []
    for base, folders, files in os.walk(root):
        folders.sort()
        scripts += [os.path.relpath(os.path.join(base, name), root) for name in sorted(files) if name.endswith(".py")]
    unusable = json.loads(sys.argv[2])
    print(json.dumps([judged(root, script, unusable) for script in scripts]))


if __name__ == "__main__":
    main()
