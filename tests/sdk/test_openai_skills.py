"""OpenAI's Skills API through the official SDK, on the paths that Anthropic's uses too."""

import hashlib
import json

import openai
from checks import KEY, PORT, equal, raw, refused, run, tests_of
from uploads import folder, unzipped, zipped

URL = f"http://127.0.0.1:{PORT}/v1"
client = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0, timeout=300)
stranger = openai.OpenAI(base_url=URL, api_key="another-key", max_retries=0, timeout=300)
VERSION = {"anthropic-version": "2023-06-01"}


def test_a_folder_and_a_zip_become_skills_and_come_back():
    for name, files in (("oai-folder", folder("oai-folder")), ("oai-zip", ("s.zip", zipped(folder("oai-zip"))))):
        skill = client.skills.create(files=files)
        equal((skill.object, skill.name, skill.default_version, skill.latest_version), ("skill", name, "1", "1"))
        equal(skill.description, "Says the word. Use when somebody asks for it.")
        equal(type(skill.created_at), int)
        equal(client.skills.retrieve(skill.id), skill)
        equal(unzipped(client.skills.content.retrieve(skill.id).read()), dict(folder(name)), "the same files come back")
        gone = client.skills.delete(skill.id)
        equal((gone.id, gone.object, gone.deleted), (skill.id, "skill.deleted", True))
        error = refused(openai.NotFoundError, lambda: client.skills.retrieve(skill.id))
        equal((error.code, error.param, error.type), ("not_found", "skill_id", "invalid_request_error"))
        equal(error.request_id, error.response.headers["x-knack-request-id"])


def test_versions_have_numbers_and_one_is_the_default():
    skill = client.skills.create(files=folder("oai-versions"))
    second = client.skills.versions.create(skill.id, files=folder("oai-versions", description="Second."))
    equal((second.object, second.version, second.skill_id), ("skill.version", "2", skill.id))
    now = client.skills.retrieve(skill.id)
    equal((now.default_version, now.latest_version, now.description), ("1", "2", skill.description))
    third = client.skills.versions.create(skill.id, files=folder("oai-versions", description="Third."), default=True)
    equal(client.skills.retrieve(skill.id).default_version, third.version)
    equal(client.skills.update(skill.id, default_version="2").description, "Second.")
    equal([version.version for version in client.skills.versions.list(skill.id, limit=1)], ["3", "2", "1"], "over pages")
    equal([version.version for version in client.skills.versions.list(skill.id, order="asc")], ["1", "2", "3"])
    files = unzipped(client.skills.versions.content.retrieve("3", skill_id=skill.id).read())
    assert b"Third." in files["oai-versions/SKILL.md"], files
    held = refused(openai.BadRequestError, lambda: client.skills.versions.delete("2", skill_id=skill.id))
    assert "default" in str(held), held
    gone = client.skills.versions.delete("3", skill_id=skill.id)
    equal((gone.object, gone.deleted, gone.version), ("skill.version.deleted", True, "3"))
    refused(openai.NotFoundError, lambda: client.skills.versions.retrieve("3", skill_id=skill.id))
    refused(openai.NotFoundError, lambda: client.skills.update(skill.id, default_version="9"))
    client.skills.delete(skill.id)


def test_lists_have_pages_in_both_orders_and_strangers_see_nothing():
    made = [client.skills.create(files=folder(f"oai-page-{number}")).id for number in range(5)]
    listed = [skill.id for skill in client.skills.list(limit=2) if skill.id in made]
    equal(listed, made[::-1])
    equal([skill.id for skill in client.skills.list(limit=2, order="asc") if skill.id in made], made)
    equal(list(stranger.skills.list()), [])
    refused(openai.NotFoundError, lambda: stranger.skills.content.retrieve(made[0]))
    refused(openai.NotFoundError, lambda: stranger.skills.delete(made[0]))
    refused(openai.BadRequestError, lambda: client.skills.list(after="forged").data)
    for id in made:
        client.skills.delete(id)


def test_one_skill_in_both_dialects_and_a_name_once():
    skill = client.skills.create(files=folder("oai-both"))
    status, _, data = raw("GET", f"/v1/skills/{skill.id}", None, VERSION)
    equal((status, json.loads(data)["display_name"]), (200, "oai-both"))
    taken = refused(openai.ConflictError, lambda: client.skills.create(files=folder("oai-both")))
    equal((taken.param, skill.id in taken.message), ("name", True))
    client.skills.delete(skill.id)


def test_an_uploaded_skill_is_used_by_the_next_request_of_any_format():
    skill = client.skills.create(files=folder("oai-word", body="The word is plover-one."))
    headers = {"x-knack-skills": skill.id}
    messages = [{"role": "user", "content": "word one"}]
    answer = client.chat.completions.create(model="m", messages=messages, extra_headers=headers)
    equal(answer.choices[0].message.content, "It is plover-one.")
    response = client.responses.create(model="m", input="word one", extra_headers=headers)
    equal(response.output_text, "It is plover-one.")
    # By its name, as any other skill.
    answer = client.chat.completions.create(model="m", messages=messages, extra_headers={"x-knack-skills": "oai-word"})
    equal(answer.choices[0].message.content, "It is plover-one.")
    foreign = lambda: stranger.chat.completions.create(model="m", messages=messages, extra_headers=headers)
    refused(openai.NotFoundError, foreign)
    client.skills.delete(skill.id)
    refused(openai.NotFoundError, lambda: client.chat.completions.create(model="m", messages=messages, extra_headers=headers))


def test_a_constraint_names_the_newest_version_that_meets_it():
    def version(number, word):
        return folder("oai-constraint", body=f"The word is {word}.", version=number)

    def ask(text, reference):
        messages = [{"role": "user", "content": text}]
        answer = client.chat.completions.create(model="m", messages=messages, extra_headers={"x-knack-skills": reference})
        return answer.choices[0].message.content

    skill = client.skills.create(files=version("1.0.0", "plover-one"))
    client.skills.versions.create(skill.id, files=version("2.1.0", "plover-two"))
    for reference, text, said in [
        ("oai-constraint@^1", "word one", "It is plover-one."),
        ("oai-constraint@~2.1", "word two", "It is plover-two."),
        ("oai-constraint@2.1.0", "word two", "It is plover-two."),
        ("oai-constraint@latest", "word two", "It is plover-two."),
        (f"{skill.id}:^1", "word one", "It is plover-one."),
        (f"{skill.id}:2", "word two", "It is plover-two."),
        ("oai-constraint", "word one", "It is plover-one."),
    ]:
        equal(ask(text, reference), said, reference)
    none = refused(openai.NotFoundError, lambda: ask("word one", "oai-constraint@^3"))
    assert "there is 2.1.0, 1.0.0" in none.message, none
    equal((none.code, none.type), ("skill_not_found", "invalid_request_error"))
    client.skills.delete(skill.id)


def test_an_index_for_installers_has_what_the_key_uploaded():
    skill = client.skills.create(files=folder("oai-offered"))
    index, document = "/.well-known/agent-skills/index.json", "/.well-known/agent-skills/oai-offered.zip"
    status, headers, data = raw("GET", index, None, {})
    equal((status, headers["content-type"]), (200, "application/json"))
    entry = {entry["name"]: entry for entry in json.loads(data)["skills"]}["oai-offered"]
    equal((entry["type"], entry["url"]), ("archive", document))
    status, _, data = raw("GET", entry["url"], None, {})
    equal((status, entry["digest"]), (200, f"sha256:{hashlib.sha256(data).hexdigest()}"))
    equal({f"oai-offered/{path}": content for path, content in unzipped(data).items()}, dict(folder("oai-offered")))
    status, _, data = raw("GET", index, None, {"authorization": "Bearer another-key"})
    equal((status, "oai-offered" in [entry["name"] for entry in json.loads(data)["skills"]]), (200, False))
    client.skills.delete(skill.id)
    equal(raw("GET", document, None, {})[0], 404)


def test_broken_forms_are_refused():
    boundary = {"content-type": "multipart/form-data; boundary=B"}
    for body, headers, said in [
        (b"--B\r\nContent-Disposition: form-data; name=\"files[]\"; filename=\"a/SKILL.md\"\r\n\r\nx", boundary, "cannot be read"),
        (b"", boundary, "cannot be read"),
        (b"{}", {"content-type": "application/json"}, "multipart/form-data"),
        (b"--B--\r\n", boundary, "no file received"),
    ]:
        status, body = post("/v1/skills", body, headers)
        equal((status, body["error"]["type"]), (400, "invalid_request_error"))
        assert said in body["error"]["message"], (said, body)


def post(path, body, headers):
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=300)
    connection.request("POST", path, body, {"authorization": f"Bearer {KEY}", **headers})
    response = connection.getresponse()
    data = json.loads(response.read())
    connection.close()
    return response.status, data


run(tests_of(globals()), f"openai skills {openai.__version__}")
