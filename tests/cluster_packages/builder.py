"""`knack packages build` on this machine: a loopback index, a real registry, and what ends up in it."""

import functools
import gzip
import hashlib
import http.server
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile

from parts import ROOT, Guard, Index, layer, node_lock, node_package, pulled, push, registry, wheel

ADDRESS = "127.0.0.1:5017"
REPOSITORY = ADDRESS + "/team/environments"
WHEELS = [
    wheel("greeter", "1.0", {"greeter/__init__.py": "def hello(): return 'hello of 1.0'\n", "INFO/entry_points.txt": "[console_scripts]\ngreet = greeter:hello\n"}, "Requires-Dist: helper\n"),
    wheel("helper", "2.1", {"helper.py": "NAME = 'helper'\n"}),
]
NODE_PACKAGES = [
    node_package("greeter", "1.0.0", {"index.cjs": "exports.hello = () => 'hello of ' + require('@s/helper').name;\n"}),
    node_package("@s/helper", "2.1.0", {"index.cjs": "exports.name = 'helper';\n"}),
]
# What the images of the test say that they are made for.
PYTHON = {}
NODE = {}


def key(request):
    """As crates/packages/src/environment.rs makes it."""
    def hashed(parts):
        whole = hashlib.sha256()
        for part in parts:
            whole.update(len(part.encode()).to_bytes(8, "big") + part.encode())
        return whole.hexdigest()
    given = request["input"]
    parts = [given["requirements"], given["lock"] or ""]
    for file, clauses in given["python"]:
        parts += [file, *[word for clause in clauses for word in clause]]
    if given.get("node"):
        parts += ["package-lock.json", given["node"]]
    is_locked = given["lock"] is not None or (not given["requirements"] and given.get("node"))
    constraints = "" if is_locked else "".join(sorted(line + "\n" for line in request["constraints"]))
    return hashed(["1", hashed(parts), constraints, request["base"]])[:32]


def build(request, index, folder, **more):
    """Runs a builder; what it says at its end."""
    with open(os.path.join(folder, "request.json.gz"), "wb") as file:
        file.write(gzip.compress(json.dumps(request).encode()))
    outcome = os.path.join(folder, "outcome")
    store = os.path.join(folder, "store")
    subprocess.run(["chmod", "-R", "u+w", store], stderr=subprocess.DEVNULL, check=False)
    shutil.rmtree(store, ignore_errors=True)
    environment = {"PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "KNACK_UV": os.environ["KNACK_UV"], "UV_DEFAULT_INDEX": index, "UV_HTTP_RETRIES": "0",
                   "NPM_CONFIG_REGISTRY": index.replace("/simple", "/npm"), "KNACK_SANDBOX_PYTHON": PYTHON["name"], "KNACK_SANDBOX_NODE": NODE["name"], **more.get("environment", {})}
    command = [os.environ["KNACK_PROGRAM"], "packages", "build", "--key", more.get("key") or key(request), "--request", os.path.join(folder, "request.json.gz"),
               "--repository", more.get("repository", REPOSITORY), "--store", store, "--plain-http", "--outcome", outcome, *more.get("arguments", [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    if not os.path.exists(outcome):
        raise AssertionError("no outcome: " + done.stderr[-2000:])
    with open(outcome, encoding="utf-8") as file:
        said = json.load(file)
    os.remove(outcome)
    if (done.returncode == 0) != (said["state"] == "Ready"):
        raise AssertionError("exit %d and %s" % (done.returncode, said))
    return said


def asked(requirements, base, constraints=(), lock=None, python=(), node=None):
    of_node = {"node": node} if node else {}
    return {"input": {"requirements": requirements, "lock": lock, "python": list(python), **of_node}, "constraints": list(constraints), "base": base}


def expect(said, state, part):
    if said["state"] != state or part not in said["message"]:
        raise AssertionError("%s with %r expected: %s" % (state, part, said))


def whole(base, index, folder):
    """The image is the base with one more layer, whose files are those of a virtual environment; the same build gives the same digest."""
    said = build(asked("greeter>=1\n", base), index.url, folder)
    expect(said, "Ready", "greeter 1.0, helper 2.1")
    below, config_below = pulled(base)
    manifest, config = pulled(said["image"])
    if manifest["layers"][:-1] != below["layers"] or config["rootfs"]["diff_ids"][:-1] != config_below["rootfs"]["diff_ids"]:
        raise AssertionError("the layers below are not those of the base")
    if config["config"] != config_below["config"]:
        raise AssertionError("the settings of the image are not those of the base")
    with layer(said["image"], -1) as tar:
        members = {"/" + member.name.rstrip("/"): member for member in tar}
        script = tar.extractfile(members[said["home"] + "/bin/greet"]).read()
    for member in members.values():
        writable = member.mode & 0o222 if not (member.issym() or said["home"].startswith("/" + member.name.rstrip("/"))) else 0
        if (member.uid, member.gid, member.mtime) != (0, 0, 0) or writable or member.mode & 0o7000:
            raise AssertionError("%s: %o %d %d" % (member.name, member.mode, member.uid, member.mtime))
    if not script.startswith(("#!%s/bin/python3\n" % said["home"]).encode()):
        raise AssertionError("the console script starts with %r" % script[:80])
    if not any(path.endswith("/site-packages/helper.py") for path in members):
        raise AssertionError("helper.py is not there")
    again = build(asked("greeter>=1\n", base), index.url, folder)
    if again != said:
        raise AssertionError("another image: %s %s" % (said["image"], again["image"]))


def refusals(base, index, folder):
    """Each failure has its state, and names no credential."""
    gone = Index("127.0.0.1", [])
    gone.close()
    lock = "helper==2.1 \\\n    --hash=sha256:%s\n" % ("0" * 64)
    for what, request, address, more, state, part in [
        ("unknown", asked("nosuch\n", base), index.url, {}, "PackageNotFound", "nosuch"),
        ("constrained", asked("greeter>=1\n", base, ["greeter<1"]), index.url, {}, "Conflict", "greeter<1"),
        ("another hash", asked("", base, lock=lock), index.url, {}, "HashMismatch", "helper"),
        ("another Python", asked("helper\n", base, python=[["scripts/a.py", [[">=", "4"]]]]), index.url, {}, "Refused", "scripts/a.py"),
        ("no index", asked("helper\n", base), gone.url.replace("//", "//user:secret@"), {}, "IndexUnreachable", ""),
        ("no base", asked("helper\n", base[:-64] + "0" * 64), index.url, {}, "RegistryRefused", "404"),
        ("no registry", asked("helper\n", base), index.url, {"repository": "127.0.0.1:9/x", "arguments": ["--base-repository", base.split("@")[0]]}, "RegistryRefused", "no connection"),
        ("a registry inside that nobody names", asked("helper\n", base), index.url, {"repository": "localhost:9/x"}, "RegistryRefused", "packages.baseRepositories"),
        ("another port of one", asked("helper\n", base), index.url, {"repository": "127.0.0.1:9/x"}, "RegistryRefused", "another port"),
        ("of others", asked("helper\n", base), index.url, {"environment": {"KNACK_SANDBOX_PYTHON": "python2"}}, "PackagesOff", "dev.knack.python"),
        ("another key", asked("helper\n", base), index.url, {"key": "0" * 32}, "Failed", "key"),
    ]:
        said = build(request, address, folder, **more)
        try:
            expect(said, state, part)
        except AssertionError as error:
            raise AssertionError("%s: %s" % (what, error)) from error
        if "secret" in said["message"] or "image" in said:
            raise AssertionError("%s: %s" % (what, said))


def hostile(base, folder):
    """Wheels that want out: what they write beside the environment is refused or harmless, and none of it runs."""
    outside = os.path.join(folder, "escaped")
    for what, files, modes in [
        ("a path that leads out", {"evil.py": "", "../../../../../../../../../.." + outside: "out"}, {}),
        ("an absolute path", {"evil.py": "", outside: "out"}, {}),
        ("a script that leads out", {"evil.py": "", "evil-1.0.data/scripts/../../../../../../../../.." + outside: "#!python\n"}, {}),
        ("a link to a file outside", {"evil.py": "", "evil_link": "/etc/passwd"}, {"evil_link": 0o120777}),
        ("a link, and a file below it", {"evil.py": "", "evil_link": folder, "evil_link/escaped": "out"}, {"evil_link": 0o120777}),
        ("setuid", {"evil.py": "", "evil-1.0.data/scripts/evil": "#!python\n"}, {"evil-1.0.data/scripts/evil": 0o106755}),
        ("code at the start of an interpreter", {"evil.py": "", "evil.pth": "import os; open(%r, 'w')\n" % outside}, {}),
        ("code at its import", {"evil.py": "open(%r, 'w')\n" % outside}, {}),
    ]:
        index = Index("127.0.0.1", [wheel("evil", "1.0", files, modes=modes)])
        said = build(asked("evil\n", base), index.url, folder)
        index.close()
        if os.path.lexists(outside):
            raise AssertionError("%s: it escaped: %s" % (what, said))
        if said["state"] != "Ready":
            if what.startswith(("setuid", "code")):
                raise AssertionError("%s is a wheel like any other: %s" % (what, said))
            continue
        with layer(said["image"], -1) as tar:
            for member in tar:
                inside = (("/" + member.name).rstrip("/") + "/").startswith(said["home"] + "/") or (said["home"] + "/").startswith("/" + member.name.rstrip("/") + "/")
                if not inside or ".." in member.name.split("/") or member.mode & 0o7000 or not (member.isfile() or member.isdir() or member.issym()):
                    raise AssertionError("%s: %s %o" % (what, member.name, member.mode))
                if member.issym() and "evil" in member.name:
                    raise AssertionError("%s: %s leads to %s" % (what, member.name, member.linkname))


def bomb(size):
    """A wheel whose one file unpacks to this many bytes; packed it is a thousandth of that."""
    name, data = wheel("bomb", "1.0", {"bomb.py": ""})
    packed = io.BytesIO(data)
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("bomb.bin", "w", force_zip64=True) as file:
        piece = bytes(1 << 20)
        for _ in range(size // len(piece)):
            file.write(piece)
    return name, packed.getvalue()


def too_large(base, folder):
    """A wheel that unpacks to more than a builder takes is stopped at its default bound, and leaves nothing there."""
    index = Index("127.0.0.1", [bomb(3 << 30)])
    said = build(asked("bomb\n", base), index.url, folder)
    index.close()
    expect(said, "TooLarge", "")
    left = sum(os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(folder) for name in names)
    if left > 1 << 30 or "image" in said:
        raise AssertionError("%d bytes are left: %s" % (left, said))


def killed(folder):
    """Index or registry that go while a build runs are named, nothing half is left, and the next build is whole."""
    address = "127.0.0.1:5018"
    with registry(address) as server:
        base = push(address, "sandbox-python", "sandbox-python")
        repository = address + "/team/environments"
        going = Index("127.0.0.1", WHEELS, on_file=lambda _: False)
        expect(build(asked("greeter>=1\n", base), going.url, folder, repository=repository), "IndexUnreachable", "")
        going.close()
        index = Index("127.0.0.1", WHEELS)
        whole_one = build(asked("greeter>=1\n", base), index.url, folder, repository=repository)
        expect(whole_one, "Ready", "greeter 1.0")
        index.close()

        def kill(name):
            if name.startswith("helper"):
                server.kill()
                server.wait()
        index = Index("127.0.0.1", WHEELS, on_file=kill)
        said = build(asked("helper\n", base), index.url, folder, repository=repository)
        index.close()
        expect(said, "RegistryRefused", "no connection")
        if "image" in said:
            raise AssertionError(said)


def of_node(python, folder):
    """Packages of Node stand in the same layer, and a link at the root of the image leads to them; an image without Node gets none."""
    node = push(ADDRESS, "sandbox-node", "sandbox-node")
    both = push(ADDRESS, "sandbox-both", "sandbox-node", labels={"dev.knack.python": PYTHON["name"]})
    index, lock = Index("127.0.0.1", WHEELS, node=NODE_PACKAGES), node_lock(NODE_PACKAGES)
    for what, requirements, base, part, has_wheel, has_node in [
        ("Node alone", "", node, "2 packages, 0 MB, Node: @s/helper 2.1.0, greeter 1.0.0", False, True),
        ("both", "helper\n", both, "3 packages, 0 MB, Python %s: helper 2.1; Node: @s/helper 2.1.0, greeter 1.0.0", True, True),
        ("an image without Node", "helper\n", python, "without packages of Node, since the sandbox image has no known Node (label dev.knack.node); 1 package", True, False),
    ]:
        said = build(asked(requirements, base, node=lock), index.url, folder)
        head, _, tail = part.partition("%s")
        expect(said, "Ready", head)
        expect(said, "Ready", tail)
        with layer(said["image"], -1) as tar:
            members = {"/" + member.name.rstrip("/"): member for member in tar}
        link = members.pop("/node_modules", None)
        if (link is not None) != has_node or (link is not None and (not link.issym() or link.linkname != said["home"] + "/node_modules" or link.uid != 0)):
            raise AssertionError("%s: the link is %s" % (what, link and link.linkname))
        files = [path[len(said["home"]):] for path in members if path.startswith(said["home"] + "/")]
        if ("/node_modules/@s/helper/index.cjs" in files) != has_node or any(path.endswith("/site-packages/helper.py") for path in files) != has_wheel:
            raise AssertionError("%s: %s" % (what, files))
        if build(asked(requirements, base, node=lock), index.url, folder) != said:
            raise AssertionError("%s: another image" % what)
    escaping = [node_package("greeter", "1.0.0", {"index.cjs": "", "link": b"/etc"})]
    absent = [node_package("nosuch", "1.0.0", {})]
    for what, base, packages, data, state, part in [
        ("no Node", python, NODE_PACKAGES, None, "PackagesOff", "dev.knack.node"),
        ("another file", node, NODE_PACKAGES, b"x", "HashMismatch", "is not the one of package-lock.json"),
        ("not in the index", node, absent, None, "PackageNotFound", "nosuch 1.0.0"),
        ("a link", node, escaping, None, "Refused", "link"),
    ]:
        of = Index("127.0.0.1", [], node=[] if packages is absent else packages)
        said = build(asked("", base, node=node_lock(packages, data)), of.url, folder)
        of.close()
        try:
            expect(said, state, part)
        except AssertionError as error:
            raise AssertionError("%s: %s" % (what, error)) from error
        if "image" in said:
            raise AssertionError("%s: %s" % (what, said))
    index.close()
    guarded, npmrc = Index("127.0.0.1", [], password="reader:secret", node=NODE_PACKAGES), os.path.join(folder, "npmrc")
    for line, state in [("//127.0.0.1:%d/npm/:_auth=cmVhZGVyOnNlY3JldA==", "Ready"), ("//127.0.0.1:%d/npm/:_authToken=secret", "IndexUnreachable"), ("//127.0.0.2:%d/:_auth=secret", "IndexUnreachable")]:
        with open(npmrc, "w", encoding="utf-8") as file:
            file.write(line % guarded.port + "\n")
        said = build(asked("", node, node=lock), guarded.url, folder, environment={"KNACK_NPMRC": npmrc})
        expect(said, state, "")
        if "secret" in said["message"]:
            raise AssertionError("a password is told: %s" % said)
    guarded.close()


def passwords(base, folder):
    """An index that asks for a password and a registry that asks for a token; without them the reason is told."""
    guard, index = Guard(ADDRESS, "robot:secret"), Index("127.0.0.1", WHEELS, password="reader:secret")
    netrc, config = os.path.join(folder, "netrc"), os.path.join(folder, "config.json")
    with open(netrc, "w", encoding="utf-8") as file:
        file.write("machine 127.0.0.1 login reader password secret\n")
    inner, repository = base.replace(ADDRESS, guard.address), guard.address + "/team/environments"
    with_netrc, listed = {"NETRC": netrc}, ["--base-repository", inner.split("@")[0]]
    other = ["--base-repository", guard.address + "/team/other"]
    for user, password, environment, bases, state, part in [
        ("robot", "secret", with_netrc, listed, "Ready", "greeter 1.0"),
        ("robot", "secret", with_netrc, listed + ["--only-base-repositories"], "Ready", "greeter 1.0"),
        ("robot", "wrong", with_netrc, listed, "RegistryRefused", ""),
        ("robot", "secret", {}, listed, None, ""),
        # What a SkillRuntime names is not read with the installation's account, unless the installation lists it.
        ("robot", "secret", with_netrc, other, "RegistryRefused", "packages.baseRepositories"),
        ("robot", "secret", with_netrc, other + ["--only-base-repositories"], "PackagesOff", "imageAllowList"),
    ]:
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"auths": {guard.address: {"username": user, "password": password}}}, file)
        said = build(asked("greeter>=1\n", inner), index.url, folder, repository=repository, environment=environment, arguments=["--registry-credentials", config] + bases)
        if said["state"] == "Ready" if state is None else said["state"] != state or part not in said["message"]:
            raise AssertionError("%s expected: %s" % (state, said))
        if "secret" in said["message"] or "wrong" in said["message"]:
            raise AssertionError("a password is told: %s" % said)
    if not guard.tokens:
        raise AssertionError("no token was asked for")
    index.close()
    guard.close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """`python3 -m http.server` without its log."""

    def log_message(self, *_):
        pass


def of_a_folder(base, folder):
    """A folder with the pages that docs/packages.md makes, behind a plain web server, is an index for both languages."""
    both = push(ADDRESS, "sandbox-both", "sandbox-node", labels={"dev.knack.python": PYTHON["name"]})
    with open(os.path.join(ROOT, "docs", "packages.md"), encoding="utf-8") as page:
        program = page.read().split("```python\n# static_index.py", 1)[1].split("```", 1)[0]
    mirror = os.path.join(folder, "mirror")
    files = {"files/" + name: data for name, data in WHEELS}
    files.update({"npm/%s/-/%s-%s.tgz" % (name, name.split("/")[-1], version): data for name, version, data in NODE_PACKAGES})
    for name, data in files.items():
        os.makedirs(os.path.dirname(os.path.join(mirror, name)), exist_ok=True)
        with open(os.path.join(mirror, name), "wb") as file:
            file.write(data)
    subprocess.run([sys.executable, "-c", "#" + program], cwd=folder, check=True)
    handler = functools.partial(Quiet, directory=mirror)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = "http://127.0.0.1:%d/simple" % server.server_port
        expect(build(asked("greeter>=1\n", base), index, folder), "Ready", "greeter 1.0, helper 2.1")
        expect(build(asked("helper\n", both, node=node_lock(NODE_PACKAGES)), index, folder), "Ready", "@s/helper 2.1.0, greeter 1.0.0")
        expect(build(asked("nosuch\n", base), index, folder), "PackageNotFound", "nosuch")
        server.shutdown()


def tests(report):
    with registry(ADDRESS), tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        base = push(ADDRESS, "sandbox-python", "sandbox-python")
        PYTHON["name"] = pulled(base)[1]["config"]["Labels"]["dev.knack.python"]
        NODE["name"] = pulled(push(ADDRESS, "sandbox-node", "sandbox-node"))[1]["config"]["Labels"]["dev.knack.node"]
        index = Index("127.0.0.1", WHEELS)
        report.check("an environment becomes an image", lambda: whole(base, index, folder))
        report.check("packages of Node stand where node looks", lambda: of_node(base, folder))
        report.check("a folder behind a web server is an index", lambda: of_a_folder(base, folder))
        report.check("what cannot be built says why", lambda: refusals(base, index, folder))
        report.check("wheels that want out stay inside", lambda: hostile(base, folder))
        report.check("a wheel that unpacks without end is stopped", lambda: too_large(base, folder))
        report.check("an index or a registry that goes is named", lambda: killed(folder))
        report.check("an index with a password, a registry with a token", lambda: passwords(base, folder))
        index.close()
        subprocess.run(["chmod", "-R", "u+w", folder], check=False)
