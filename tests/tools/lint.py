"""What `make lint` must refuse: each fault is planted in a copy of this repository, or in a small one with its rules."""
import os
import re
import shutil
import subprocess
import tempfile

from harness import ROOT, case, expect

# Programs that compile; a repository of their own for clippy has the others.
CARGO = ("cargo", "cargo-fmt", "cargo-clippy", "clippy-driver", "rustc", "rustfmt")


def write(folder, path, text, mode="w"):
    path = os.path.join(folder, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, mode) as file:
        file.write(text)


def copy_of_the_repository(folder):
    """Every file that git knows, as it is in the working tree; another repository, with everything added."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True, capture_output=True)
    for path in filter(None, listed.stdout.decode().split("\0")):
        if os.path.isfile(os.path.join(ROOT, path)):
            os.makedirs(os.path.join(folder, os.path.dirname(path)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, path), os.path.join(folder, path))
    subprocess.run(["git", "init", "-q", folder], check=True)
    subprocess.run(["git", "-C", folder, "add", "-A"], check=True)


def lint(folder, programs):
    """tools/lint.sh of a repository, with these programs before those of the system: (accepted, text)."""
    environment = {**os.environ, "PATH": f"{programs}:/usr/bin:/bin", "CARGO_TARGET_DIR": f"{folder}-target"}
    done = subprocess.run([f"{folder}/tools/lint.sh"], capture_output=True, text=True, env=environment)
    return done.returncode == 0, done.stdout + done.stderr


@case
def lint_refuses_what_is_planted_in_a_copy_of_this_repository():
    with tempfile.TemporaryDirectory() as temporary:
        # A clone may lie below folders of any name; these two are modules of the product.
        folder, programs = os.path.join(temporary, "tools", "tree"), os.path.join(temporary, "programs")
        copy_of_the_repository(folder)
        # What cargo finds, and what its trees say, have cases of their own; here they would take minutes.
        write(programs, "cargo", """#!/bin/sh\nwhile [ $# -gt 1 ]; do\n  [ "$1" != -p ] || echo "$2 v0.0.0"\n  shift\ndone\n""")
        os.chmod(f"{programs}/cargo", 0o755)
        accepted, said = lint(folder, programs)
        expect(accepted and "lint: clean" in said, said)

        write(folder, "crates/skill/src/names.rs", "\n/// Planted.\npub fn planted_function() {}\n", "a")
        write(folder, "crates/skill/src/planted_one.rs", "use super::planted_two::Two;\npub(crate) struct One(Two);\n")
        write(folder, "crates/skill/src/planted_two.rs", "use super::planted_one::One;\n/// Of planted.\npub(crate) struct Two(Box<One>);\n")
        write(folder, "crates/skill/src/lib.rs", "\n// docs/design/planted.md#page docs/design/dialects.md#planted-section\n", "a")
        write(folder, "crates/skill/Cargo.toml", '\n[dependencies.planted]\nversion = "1"\n', "a")
        write(folder, "crates/memory/Cargo.toml", '\n[dependencies.knack-trust]\nworkspace = true\n', "a")
        write(folder, "crates/mock-provider/Cargo.toml", '\n[dependencies.knack-skill]\nworkspace = true\n[dependencies.knack-wire]\nworkspace = true\n', "a")
        with open(f"{folder}/Cargo.toml") as file:
            profiles = file.read()
        write(folder, "Cargo.toml", profiles.replace("\n[profile.release.package]\n", "\n[profile.release.package]\nplanted = { opt-level = 3 }\nlibc = { opt-level = 3 }\n"))
        write(folder, "crates/skill/src/planted_long.rs", "// a line\n" * 601)
        shutil.copy("/bin/true", f"{folder}/planted")
        subprocess.run(["git", "-C", folder, "add", "-A"], check=True)
        accepted, said = lint(folder, programs)
        expect(not accepted and "lint: clean" not in said, said)
        # Columns are as wide as the longest name.
        said = re.sub(r"  +", "  ", said)
        for part in [
            "crates/skill/src/names.rs: fn names::planted_function",
            "crates/skill/src/planted_one.rs, crates/skill/src/planted_two.rs",
            "there is no page docs/design/planted.md",
            "docs/design/dialects.md has no heading #planted-section",
            "skill/Cargo.toml: planted in [dependencies]",
            "ARCHITECTURE.md lacks: memory  trust",
            "ARCHITECTURE.md has: memory  -",
            "mock-provider depends on both skill and wire",
            "[profile.demo.package] planted: write opt-level = 0",
            '[profile.runner.package] libc: write opt-level = "s"',
            "crates/skill/src/planted_long.rs: 601 lines",
            "crates/skill/src/planted_two.rs:2: Of planted.",
            "  planted: an ELF program",
        ]:
            expect(part in said, f"{part!r} is not in: {said}")


def small_repository(folder, planted, target):
    """A workspace with this repository's rules for rustc and clippy, one crate for each that lint.sh names, and a fuzz target."""
    with open(f"{ROOT}/Cargo.toml") as file:
        lints = re.search(r"^\[workspace\.lints\.rust\].*?(?=^\[package\])", file.read(), re.S | re.M)[0]
    with open(f"{ROOT}/tools/lint.sh") as file:
        script = file.read()
    names = sorted(set(re.findall(r"-p ([\w-]+)", script)) - {"knack"})
    expect(len(names) >= 3, names)
    package = '[package]\nname = "{}"\nversion = "0.0.0"\nedition = "2024"\n[features]\notel = []\n[lints]\nworkspace = true\n'
    write(folder, "Cargo.toml", f'[workspace]\nresolver = "3"\nmembers = ["crates/*"]\n{lints}\n' + package.format("knack"))
    write(folder, "src/lib.rs", f"//! A crate.\n{planted}")
    for name in names:
        write(folder, f"crates/{name}/Cargo.toml", package.format(name))
        write(folder, f"crates/{name}/src/lib.rs", "//! A crate.\n")
    write(folder, "fuzz/Cargo.toml", package.format("fuzz").partition("[lints]")[0] + "[workspace]\n")
    write(folder, "fuzz/src/main.rs", target)
    shutil.copy(f"{ROOT}/rust-toolchain.toml", folder)
    for tool in re.findall(r"tools/[\w.]+", script):
        write(folder, tool, "#!/bin/sh\n" if tool.endswith(".sh") else "")
        os.chmod(f"{folder}/{tool}", 0o755)
    write(folder, "tools/lint.sh", script)
    os.chmod(f"{folder}/tools/lint.sh", 0o755)
    # lint.sh takes the lock of the fuzz targets as it is.
    subprocess.run(["cargo", "generate-lockfile", "--offline", "-q"], cwd=f"{folder}/fuzz", check=True)
    subprocess.run(["git", "init", "-q", folder], check=True)
    subprocess.run(["git", "-C", folder, "add", "-A"], check=True)


@case
def lint_refuses_code_that_nothing_uses_and_what_the_rules_deny():
    good = "fn main() {}\n"
    for planted, part, *target in [
        ("", None),
        ("", "cannot find function `gone`", "fn main() {\n    gone();\n}\n"),
        ("fn planted() {}\n", "function `planted` is never used"),
        ("const PLANTED: u8 = 1;\n", "constant `PLANTED` is never used"),
        ("mod inner {\n    /// Planted.\n    pub fn planted() {}\n}\n", "function `planted` is never used"),
        ("/// Planted.\npub unsafe fn planted() {}\n", "unsafe"),
        ("/// Planted.\npub fn planted(one: Option<u8>) -> u8 {\n    one.unwrap()\n}\n", "unwrap"),
        ("pub fn planted() {}\n", "missing documentation"),
        ("fn  planted() {}\n", "run: cargo fmt --all"),
    ]:
        with tempfile.TemporaryDirectory() as temporary:
            folder, programs = os.path.join(temporary, "small"), os.path.join(temporary, "programs")
            os.mkdir(programs)
            # Not rustup: the other architecture needs no second run here.
            for program in CARGO:
                found = shutil.which(program)
                if found:
                    os.symlink(found, os.path.join(programs, program))
            small_repository(folder, planted, *target or [good])
            accepted, said = lint(folder, programs)
            expect(accepted == (part is None), f"{planted!r} {target}: {said}")
            expect(part is None or part in said, f"{planted!r} {target}: {said}")


def walls(tree, stub=None):
    """tools/walls.sh of a workspace of empty crates: (accepted, text). `tree` has the [dependencies] and [features] of each; `stub` is a program in cargo's place."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, programs = os.path.join(temporary, "walls"), os.path.join(temporary, "programs")
        os.mkdir(programs)
        if stub:
            write(programs, "cargo", stub)
            os.chmod(f"{programs}/cargo", 0o755)
        write(folder, "Cargo.toml", '[workspace]\nresolver = "3"\nmembers = ["crates/*"]\n')
        for name, text in tree.items():
            write(folder, f"crates/{name}/Cargo.toml", f'[package]\nname = "{name}"\nversion = "0.0.0"\nedition = "2024"\n{text}')
            write(folder, f"crates/{name}/src/lib.rs", "")
        shutil.copy(f"{ROOT}/rust-toolchain.toml", folder)
        os.mkdir(f"{folder}/tools")
        shutil.copy(f"{ROOT}/tools/walls.sh", f"{folder}/tools")
        subprocess.run(["cargo", "generate-lockfile", "--offline", "-q"], cwd=folder, check=True)
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        done = subprocess.run([f"{folder}/tools/walls.sh"], capture_output=True, text=True, env=environment)
        return done.returncode == 0, done.stdout + done.stderr


@case
def walls_refuse_what_a_crate_must_not_depend_on_and_trees_that_nobody_saw():
    with open(f"{ROOT}/tools/walls.sh") as file:
        crates = dict.fromkeys(re.findall(r"^(knack-[\w-]+):", file.read(), re.M), "")
    expect(len(crates) > 10, crates)

    def on(*names, kind="dependencies"):
        return f"[{kind}]\n" + "".join(f'{name} = {{ path = "../{name}" }}\n' for name in names)

    with_kube = {**crates, "kube": "", "between": on("kube")}
    executor = {**crates, "knack-execution": "[features]\nlocal = []\nrunner = []\n"}
    for tree, part, *stub in [
        (crates, None),
        ({**with_kube, "knack-skill": on("kube", kind="dev-dependencies")}, None),
        ({**with_kube, "knack-skill": on("kube")}, "knack-skill depends on kube"),
        ({**with_kube, "knack-skill": on("between")}, "knack-skill depends on kube"),
        ({**with_kube, "knack-vocabulary": on("between")}, "knack-vocabulary depends on between kube, and must depend on nothing"),
        ({**crates, "knack-runner": on("knack-python-schema")}, "knack-runner depends on knack-python-schema"),
        ({**executor, "knack-gateway": on("knack-execution")}, None),
        ({**executor, "knack-gateway": on("knack-execution").replace(" }", ', features = ["local"] }')}, "knack-gateway depends on knack-execution/local"),
        # A crate that has another name now.
        ({name: text for name, text in crates.items() if name != "knack-egress"}, "knack-egress: cargo tree failed"),
        (crates, "knack-skill: cargo tree does not name it", "#!/bin/sh\nexit 0\n"),
    ]:
        accepted, said = walls(tree, *stub)
        expect(accepted == (part is None), f"{part}: {said}")
        expect(part is None or part in said, f"{part}: {said}")


@case
def every_crate_takes_the_rules_of_the_workspace():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "*Cargo.toml"], check=True, capture_output=True, text=True)
    for path in listed.stdout.split():
        with open(os.path.join(ROOT, path)) as file:
            text = file.read()
        # Fuzz targets are no part of the workspace. The runner has a table of its own, since it has to have unsafe code.
        if path.startswith("fuzz/") or path == "crates/runner/Cargo.toml":
            continue
        expect("[lints]\nworkspace = true" in text, path)
