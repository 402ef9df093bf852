#!/usr/bin/env python3
"""seed.py [FOLDER]: writes the seeds of every fuzz target, from the vectors and the wire examples, into a folder of its name
below FOLDER (fuzz/corpus). Standard library only."""

import base64
import hashlib
import io
import json
import pathlib
import sys
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORPUS = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "fuzz" / "corpus"
FIXTURES = ROOT / "crates" / "wire" / "tests" / "fixtures"
VECTORS = ROOT / "tests" / "vectors" / "cases"


# Prefix of the examples of each format, in the order of the targets' choices.
KINDS = {"chat": "chat", "msg": "messages", "resp": "responses", "gem": "gemini"}


def put(target, name, data):
    """Writes one seed; text becomes UTF-8 (lone surrogates of a vector are dropped)."""
    if isinstance(data, str):
        data = data.encode("utf-8", "ignore")
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed-{name}").write_bytes(data)


def cases(name):
    document = json.loads((VECTORS / f"{name}.json").read_text())
    return document["cases"] if isinstance(document, dict) else document


def text(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def strings(value):
    """All strings inside a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from strings(one)


def frames(path, named):
    """The bytes of a stream example."""
    out = []
    for line in path.read_text().splitlines():
        if line.startswith("{"):
            if named:
                out.append(f"event: {json.loads(line)['type']}\n")
            out.append(f"data: {line}\n\n")
        elif line == "[DONE]":
            out.append("data: [DONE]\n\n")
        else:
            out.append("\n" if line == "(empty line)" else f"{line}\n\n")
    return "".join(out)


def wire():
    for path in sorted(FIXTURES.iterdir()):
        if path.suffix == ".json":
            body = path.read_text()
            put("json_scan", path.stem, body)
            if path.stem.startswith("chat-req"):
                put("chat_request", path.stem, body)
                put("history_canon", path.stem, b"\xf8" + body.encode())
            for kind, target in (("resp-req", "responses_request"), ("gem-req", "gemini_request")):
                if path.stem.startswith(kind):
                    put(target, path.stem, body)
            for choice, kind in enumerate(KINDS):
                if path.stem.startswith(kind):
                    put("answer_glance", path.stem, bytes([choice, 9]) + body.encode())
                if path.stem.startswith(f"{kind}-res"):
                    target = f"drive_{KINDS[kind]}_answer"
                    put(target, path.stem, b"\xff" + body.encode())
                    # A round with a call of Knack, then the example again.
                    hidden = body.replace("get_weather", "skill_run")
                    put(target, path.stem + "-rounds", b"\x1f" + f"{hidden}\n====\n{body}".encode())
            if path.stem.startswith("msg-re"):
                put("messages_request", path.stem, body)
                put("history_canon", path.stem, b"\xf9" + body.encode())
        elif path.suffix == ".jsonl":
            for number, line in enumerate(path.read_text().splitlines()):
                put("json_scan", f"{path.stem}-{number}", line)
        elif path.suffix == ".events":
            stream = frames(path, named=not path.stem.startswith(("chat", "gem")))
            put("sse_decode", path.stem, b"\x07" + stream.encode())
            for choice, kind in enumerate(KINDS):
                if path.stem.startswith(kind):
                    put("answer_glance", path.stem, bytes([4 + choice, 9]) + stream.encode())
                    target = f"drive_{KINDS[kind]}_stream"
                    put(target, path.stem, b"\xff" + stream.encode())
                    # A round with a call of Knack, then the example again.
                    hidden = stream.replace("get_weather", "skill_run")
                    put(target, path.stem + "-rounds", b"\x1f" + f"{hidden}\n====\n{stream}".encode())
    shown = {"model": "m", "max_tokens": 9, "messages": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "a"},
            {"type": "server_tool_use", "id": "srvtoolu_knack_1", "name": "bash_code_execution", "input": {"command": "x", "code": "x"}},
            {"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_knack_1",
             "content": {"type": "bash_code_execution_result", "stdout": "5", "stderr": "e", "return_code": 0, "content": []}},
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "tool_use", "id": "toolu_01abcdefgh", "name": "n", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_01abcdefgh", "content": "r"}]}]}
    for choice in (0x01, 0x03, 0xF9):
        put("history_canon", f"shown-{choice:02x}", bytes([choice]) + text(shown).encode())


def skills():
    for case in cases("skillmd"):
        for number, one in enumerate(strings(case["input"])):
            if "\n" in one:
                put("skillmd_load", f"{case['id']}-{number}", one)
    for case in cases("template"):
        given = case["input"]
        body = given.get("prompt") or given.get("template") or ""
        values = given.get("provided") or given.get("variables") or {"name": "x"}
        for name, value in list(values.items())[:3] or [("name", "x")]:
            put("template", f"{case['id']}-{name[:8].replace('/', '_')}", f"{name}\n{value if isinstance(value, str) else text(value)}\n{body}")
    for case in cases("args"):
        given = case["input"]
        if isinstance(given.get("tool"), dict):
            put("argv", case["id"], f"{text([given['tool']])}\n{text(given.get('arguments', {}))}")
    for case in cases("at_skill"):
        for number, one in enumerate(strings(case["input"])):
            put("at_skill", f"{case['id']}-{number}", one)
    for case in cases("semver"):
        given = case["input"]
        wanted = given.get("constraint") or given.get("identifier") or given.get("version") or ""
        put("semver", case["id"], "\n".join([str(wanted), *map(str, given.get("versions") or [])]))
    for name in ("injection", "toolcalls"):
        for case in cases(name):
            put("json_scan", case["id"], text(case["input"]))


def runner():
    locks = {"seccomp": True, "landlock": "fully_enforced", "landlock_abi": 6}
    to_runner = [
        {"type": "claim", "nonce": "n"},
        {"type": "start", "nonce": "n", "directory": "/work/run", "interpreter": {"language": "python", "path": "/usr/bin/python3"},
         "read": ["/usr"], "execute": ["/usr/bin"], "write": ["/tmp"], "landlock": "required", "identity": {"uid": 9, "gid": 9, "exclusive": True},
         "environment": {"A": "b"}, "inherit": ["TOKEN"], "limits": {"timeout_ms": 9, "processes": 4}, "watch": {"memory_bytes": 9},
         "eof_grace_ms": 1, "journal": {"key": "eA==", "max_bytes": 100}},
        {"type": "files", "nonce": "n", "area": "skills", "files": [{"path": "a/b", "data": "eA==", "append": True, "executable": True}]},
        {"type": "run", "nonce": "n", "id": "0", "context": "c", "program": {"kind": "code", "language": "node", "source": "1", "arguments": ["x"]},
         "cwd": {"skill": "a"}, "environment": {}, "limits": {}},
        {"type": "run", "nonce": "n", "id": "0", "program": {"kind": "command", "argv": ["true"]}},
        {"type": "cancel", "nonce": "n"},
        {"type": "ack", "nonce": "n"},
    ]
    from_runner = [
        {"type": "ready", "nonce": "n", "protocol": 2, "version": "0", "locks": locks},
        {"type": "claimed", "nonce": "n"},
        {"type": "started", "nonce": "n", "id": "0", "digest": "d", "context": "c"},
        {"type": "output", "nonce": "n", "stream": "stdout", "data": "aGk="},
        {"type": "file", "nonce": "n", "path": "a", "mode": 420, "size": 1, "sha256": "0" * 64, "offset": 0, "data": "eA==", "last": True},
        {"type": "file_error", "nonce": "n", "path": "l", "kind": "symlink", "message": "m"},
        {"type": "sealed", "nonce": "n", "sequence": 1, "data": "AAAA"},
        {"type": "result", "nonce": "n", "id": "0", "exit": {"kind": "code", "code": 0}, "stdout": {"bytes": 2, "truncated": False},
         "stderr": {"bytes": 0, "truncated": False}, "wall_us": 1, "cpu_us": 1, "max_rss_bytes": 1, "killed": 0, "files": 1, "file_errors": 1,
         "locks": locks},
        {"type": "rejected", "nonce": "n", "message": "m"},
    ]
    lines = [text(frame) + "\n" for frame in to_runner + from_runner]
    put("runner_frames", "all", b"\x05" + "".join(lines).encode())
    for number, line in enumerate(lines):
        put("runner_frames", str(number), b"\xff" + line.encode())
    log = [text(frame) + "\n" for frame in from_runner]
    put("journal", "all", "".join(log))
    for number, line in enumerate(log):
        put("journal", str(number), log[1] + line)

    def piece(path, data, **said):
        """A whole file of one piece, but for what is said otherwise."""
        return {"type": "file", "path": path, "mode": 420, "size": len(data), "sha256": "0" * 64, "offset": 0,
                "data": base64.b64encode(data).decode(), "last": True, **said}

    # Runners that lie about their files: each beside an honest file.
    lies = {
        "many": [piece(f"f{number}", b"x") for number in range(9)],
        "large": [piece("f", b"x" * 129)],
        "size-more": [piece("f", b"x", size=1 << 60)],
        "size-less": [piece("f", b"xx", size=1)],
        "offset": [piece("f", b"x", size=2, last=False), piece("f", b"x", size=2, offset=9)],
        "mixed": [piece("f", b"x", size=2, last=False), piece("g", b"x", size=2, offset=1)],
        "unfinished": [piece("f", b"x", size=2, last=False)],
        "twice": [piece("f", b"x"), piece("f", b"y")],
        "empty": [piece("f", b"", size=1, last=False), piece("f", b"x", size=1)],
        "hash": [piece("f", b"x", sha256="0" * 9000)],
        "path": [piece("../f", b"x")],
        "honest": [piece("f", b"x", size=2, last=False), piece("f", b"y", size=2, offset=1)],
    }
    for name, files in lies.items():
        put("journal", f"files-{name}", "".join([log[2], *(text(one) + "\n" for one in [piece("a", b"x"), *files]), log[-2]]))


def archives():
    """Small archives of each kind, good ones and ones that must be refused."""
    content = b"---\nname: x\ndescription: d\n---\nb\n"
    for kind, suffix in (("w", "tar"), ("w:gz", "tgz")):
        for name in ("SKILL.md", "a/SKILL.md", "../x", "/etc/passwd", "a/./b"):
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode=kind, format=tarfile.USTAR_FORMAT) as archive:
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
            put("archive", f"{suffix}-{name.replace('/', '_')}", packed.getvalue())
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode=kind, format=tarfile.PAX_FORMAT) as archive:
            entry = tarfile.TarInfo("long-" * 40)
            archive.addfile(entry)
            link = tarfile.TarInfo("link")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(link)
        put("archive", f"{suffix}-pax-link", packed.getvalue())
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", method) as archive:
            archive.writestr("a/SKILL.md", content * 20)
            archive.writestr("a/run.py", b"print(1)\n")
        put("archive", f"zip-{method}", packed.getvalue())


def packages():
    """What skills declare of packages, in every file that is read for it."""
    for name in ("SKILL.md", "requirements.txt", "requirements.lock", "package.json", "package-lock.json", "*.py"):
        for path in sorted((ROOT / "examples").rglob(name)):
            put("packages_declare", "-".join(path.relative_to(ROOT / "examples").parts), path.read_bytes())
    lock = {"name": "x", "version": "1.0.0", "lockfileVersion": 3, "packages": {
        "": {"name": "x", "dependencies": {"left-pad": "1.3.0"}},
        "node_modules/left-pad": {"version": "1.3.0", "resolved": "https://registry.npmjs.org/left-pad/-/left-pad-1.3.0.tgz",
                                  "integrity": "sha512-" + "A" * 86 + "=="}}}
    put("packages_declare", "package-lock", text(lock))
    put("packages_declare", "package", text({"name": "x", "dependencies": {"left-pad": "1.3.0", "@a/b": "^2", "c": "npm:d@1"}}))
    put("packages_declare", "requirements",
        "# c\nPillow>=10,<12; python_version >= '3.9'\nrequests[socks]==2.32.3 \\\n  --hash=sha256:" + "0" * 64 + "\n-r b.txt\n-e .\na @ https://x/y.whl\n")
    put("packages_declare", "pep723", "# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\"rich\", \"a<2\"]\n# ///\nimport rich\n")


def cluster():
    """Manifests, artifacts, and what hub and gateway say."""
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        put("manifest", path.stem, path.read_bytes())
    put("manifest", "broken", "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: x}\nspec: {inline: 3}\n---\n: :\n---\nkind: [")
    put("artifact_read", "files", "SKILL.md\t---\nrun.py\tprint(1)\na/b.txt\tx")
    put("artifact_read", "empty", "[]")
    index = text({"format": 1, "files": []})
    put("artifact_read", "maps", text([{"metadata": {"name": "s-0123456789"}, "data": {"index.json": index}, "binaryData": {"f": "eA=="}}]))
    post = {"protocol": 1, "runtime": "n/r", "id": "019345a0-0000-7000-8000-000000000000",
            "program": {"kind": "code", "language": "python", "source": "print(1)"},
            "mounts": [{"mount": "m", "namespace": "n", "name": "s", "digest": "0" * 64}],
            "inputs": [{"path": "inputs/a", "data": "eA=="}], "working_directory": "work", "limits": {}, "live": True}
    skill = {"namespace": "n", "name": "s", "uid": "u", "resource_version": "7"}
    lines = [
        {"type": "hello", "protocol": 1, "version": "0", "resource_version": "7"},
        {"type": "runtime", "uid": "u", "resource_version": "7", "max_activation": "Always", "model_code": True, "node": True,
         "max_risk": "Moderate", "timeout_seconds": 9, "max_timeout_seconds": 9, "memory_bytes": 9, "max_tool_rounds": 9, "deadline_seconds": 9,
         "max_listing_tokens": 9, "models": ["m*"], "min_max_tokens": 9, "max_snapshot_age_seconds": 9,
         "pins": [{"namespace": "n", "name": "s", "mode": "Listed", "inputs": {"a": "b"}}], "upstreams": {"openai": "http://x"}},
        {"type": "skill", **skill, "digest": "0" * 64, "overrides": {"version": "1.0.0", "activation": "Auto", "tags": ["t"],
         "tools": [{"name": "t", "description": "d", "command": ["x"], "input_schema": {}, "parameters": [{"name": "p"}], "env": ["E"],
                    "risk": "Dangerous"}],
         "inputs": [{"name": "i", "default": "d"}], "sandbox": {"image": "i", "timeout_seconds": 1}}},
        {"type": "removed", **skill}, {"type": "synced", "resource_version": "8"}, {"type": "ping"}, {"type": "newer"},
        post,
        {**post, "program": {"kind": "command", "argv": ["true"]}, "skill": 0, "working_directory": {"skill": "m"}},
        {"type": "accepted", "protocol": 1, "id": post["id"]}, {"type": "phase", "phase": "running"}, {"type": "skipped", "frames": 3},
        {"type": "output", "stream": "stdout", "data": "eA=="},
        {"type": "file", "path": "out.txt", "size": 1, "sha256": hashlib.sha256(b"x").hexdigest(), "data": "eA==", "last": True},
        {"type": "result", "end": "exit", "code": 0, "stdout": "eA==", "stderr": "", "file_errors": [{"path": "l", "reason": "r"}],
         "timings": {"queue_us": 1, "total_us": 2, "run_us": 1, "warm": True}, "locks": {"seccomp": True, "landlock": "x", "landlock_abi": 6}},
        {"type": "error", "code": "not_owner", "message": "m", "owner": "https://x:1"},
        {"code": "failed", "message": "m", "retry_after_seconds": 1,
         "failure": {"kind": "ImagePullFailed", "reason": "r", "message": "m", "may_have_run": False}},
    ]
    put("hub_frames", "all", "\n".join(text(line) for line in lines))
    for number, line in enumerate(lines):
        put("hub_frames", str(number), text(line))


if __name__ == "__main__":
    wire()
    skills()
    runner()
    archives()
    packages()
    cluster()
    for folder in sorted(CORPUS.iterdir()):
        print(f"seeds {folder.name} {sum(1 for seed in folder.iterdir() if seed.name.startswith('seed-'))}")
