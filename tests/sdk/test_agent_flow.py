"""Agent Flow's /api/v1/skills over plain HTTP: statuses, field errors, and the skills of the other APIs under it."""

import json

import openai
from checks import KEY, PORT, equal, raw, run, tests_of
from uploads import folder

client = openai.OpenAI(base_url=f"http://127.0.0.1:{PORT}/v1", api_key=KEY, max_retries=0, timeout=300)
CONTENT = """---
name: {name}
description: Sums a text up.
inputs:
  - name: article
    type: textarea
    required: true
---

Sum up:   {{{{article}}}}
"""


def call(method, path, body=None, key=KEY):
    status, headers, data = raw(method, f"/api/v1/skills{path}", body, {"authorization": key and f"Bearer {key}"})
    return status, json.loads(data) if data else None


def content(name):
    return CONTENT.format(name=name)


def test_create_read_update_list_delete():
    text = content("afl-sum")
    status, skill = call("POST", "", {"name": "afl-sum", "content": text})
    equal((status, skill["name"], skill["raw_content"], skill["prompt"]), (201, "afl-sum", text, "Sum up:   {{article}}"))
    equal(skill["inputs"][0], {"name": "article", "label": "article", "type": "textarea", "required": True, "default": None, "description": None})
    equal(call("GET", "/afl-sum"), (200, skill))
    changed = text.replace("Sums a text up.", "Sums it up.")
    status, updated = call("PUT", "/afl-sum", {"content": changed})
    equal((status, updated["description"], updated["created_at"]), (200, "Sums it up.", skill["created_at"]))
    equal(updated["updated_at"] > skill["updated_at"], True)
    call("POST", "", {"name": "afl-second", "content": content("afl-second")})
    status, listed = call("GET", "")
    names = [skill["name"] for skill in listed["skills"]]
    equal((status, names[:2], listed["total"]), (200, ["afl-second", "afl-sum"], len(names)))
    equal(listed["skills"][1]["has_inputs"], True)
    equal(call("PUT", "/afl-sum", {"content": text})[0], 200)
    equal(call("GET", "")[1]["skills"][0]["name"], "afl-sum", "the newest change first")
    for name in ("afl-sum", "afl-second"):
        equal(call("DELETE", f"/{name}"), (204, None))
        equal(call("GET", f"/{name}")[0], 404)


def test_errors_have_status_and_field():
    call("POST", "", {"name": "afl-taken", "content": content("afl-taken")})
    for method, path, body, status, field in [
        ("POST", "", {"name": "Bad Name", "content": "x"}, 400, "name"),
        ("POST", "", {"name": "a--b", "content": "x"}, 400, "name"),
        ("POST", "", {"name": "ok", "content": ""}, 400, "content"),
        ("POST", "", {"name": "ok"}, 400, "content"),
        ("POST", "", {"name": "ok", "content": "No frontmatter."}, 400, "frontmatter"),
        ("POST", "", {"name": "ok", "content": content("other")}, 400, "name"),
        ("POST", "", {"name": "ok", "content": "---\nname: ok\n---\n{{undeclared}}"}, 400, "prompt"),
        ("POST", "", {"name": "ok", "content": content("ok") + "x" * 51200}, 400, "content"),
        ("POST", "", {"name": "afl-taken", "content": content("afl-taken")}, 409, "name"),
        ("PUT", "/afl-none", {"content": content("afl-none")}, 404, "name"),
        ("PUT", "/afl-taken", {"content": content("afl-renamed")}, 400, "name"),
        ("PUT", "/afl-taken", {}, 400, "content"),
        ("GET", "/afl-none", None, 404, "name"),
        ("DELETE", "/afl-none", None, 404, "name"),
        ("POST", "/afl-taken/run", {"inputs": {}}, 400, "model"),
    ]:
        got, answer = call(method, path, body)
        equal((got, answer["detail"]["field"]), (status, field), (method, path, body, answer))
    deep = "[" * 200 + "]" * 200
    equal(call("POST", "", {"name": "ok", "content": json.loads("[" * 200 + "]" * 200)})[0], 400, deep)
    equal(call("GET", "/ok")[0], 404, "nothing is left of what was refused")
    equal(call("DELETE", "/afl-taken")[0], 204)


def test_another_key_sees_nothing_and_none_is_refused():
    call("POST", "", {"name": "afl-mine", "content": content("afl-mine")})
    equal(call("GET", "", key="another-key"), (200, {"skills": [], "total": 0}))
    for method, body in (("GET", None), ("PUT", {"content": content("afl-mine")}), ("DELETE", None)):
        equal(call(method, "/afl-mine", body, key="another-key")[0], 404)
    status, answer = call("GET", "", key="")
    equal((status, answer["detail"]["field"]), (401, "authorization"))
    # A name is free for everybody.
    equal(call("POST", "", {"name": "afl-mine", "content": content("afl-mine")}, key="another-key")[0], 201)
    equal(call("DELETE", "/afl-mine", key="another-key")[0], 204)
    equal(call("DELETE", "/afl-mine")[0], 204)


def test_a_skill_of_another_api_keeps_its_files():
    skill = client.skills.create(files=folder("afl-files"))
    status, found = call("GET", "/afl-files")
    equal((status, found["prompt"]), (200, "The word is plover."))
    equal(call("PUT", "/afl-files", {"content": found["raw_content"].replace("plover", "heron")})[0], 200)
    now = client.skills.retrieve(skill.id)
    equal((now.default_version, now.latest_version), ("2", "2"))
    import io, zipfile

    with zipfile.ZipFile(io.BytesIO(client.skills.content.retrieve(skill.id).read())) as archive:
        equal(sorted(archive.namelist()), ["afl-files/SKILL.md", "afl-files/data/all.bin"])
        equal(b"heron" in archive.read("afl-files/SKILL.md"), True)
    equal(call("DELETE", "/afl-files")[0], 204)


run(tests_of(globals()), "agent flow")
