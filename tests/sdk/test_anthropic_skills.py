"""Anthropic's Skills API through the official SDK of both eras: general and beta shapes, and a request that uses an upload."""

import json

import anthropic
from checks import KEY, PORT, equal, raw, refused, run, tests_of
from uploads import folder, linked, unzipped, zipped

URL = f"http://127.0.0.1:{PORT}"
client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=300)
stranger = anthropic.Anthropic(base_url=URL, api_key="another-key", max_retries=0, timeout=300)
OLD = anthropic.__version__.startswith("0.")
VERSION = {"anthropic-version": "2023-06-01"}
# Both eras run against one gateway: names of their own.
ERA = "old" if OLD else "new"


def name(word):
    return f"{word}-{ERA}"


def test_a_folder_becomes_a_skill_and_comes_back():
    files = folder(name("round"))
    skill = client.skills.create(files=files, display_name="Round trip")
    equal((skill.type, skill.display_name, skill.source.type), ("skill", "Round trip", "custom"))
    got = client.skills.retrieve(skill.id)
    equal((got.id, got.latest_version_id, got.created_at), (skill.id, skill.latest_version_id, skill.created_at))
    version = client.skills.versions.retrieve("latest", skill_id=skill.id)
    equal((version.id, version.type, version.name), (skill.latest_version_id, "skill_version", name("round")))
    equal(version.description, "Says the word. Use when somebody asks for it.")
    data = client.beta.skills.versions.download("latest", skill_id=skill.id).read()
    equal(unzipped(data), dict(files), "the same files come back")
    equal(client.skills.delete(skill.id).type, "skill_deleted")
    error = refused(anthropic.NotFoundError, lambda: client.skills.retrieve(skill.id))
    equal((error.body["error"]["type"], error.body["type"]), ("not_found_error", "error"))
    equal(error.request_id, error.body["request_id"])


def test_a_zip_becomes_a_skill_and_versions_stand_beside_each_other():
    files = folder(name("zipped"))
    skill = client.skills.create(files=[("skill.zip", zipped(files), "application/zip")])
    equal(skill.display_name, name("zipped"), "the name where no display name is given")
    second = client.skills.versions.create(skill.id, files=folder(name("zipped"), description="Second."))
    equal((second.skill_id, second.description), (skill.id, "Second."))
    equal(client.skills.retrieve(skill.id).latest_version_id, second.id)
    listed = list(client.skills.versions.list(skill.id, limit=1))
    equal([version.id for version in listed], [second.id, skill.latest_version_id], "over two pages")
    other = refused(anthropic.BadRequestError, lambda: client.skills.versions.create(skill.id, files=folder("other-name")))
    assert "all versions of a skill have the same name" in str(other), other
    equal(client.skills.versions.delete(second.id, skill_id=skill.id).id, second.id)
    last = refused(anthropic.BadRequestError, lambda: client.skills.versions.delete("latest", skill_id=skill.id))
    assert "delete the skill" in str(last), last
    client.skills.delete(skill.id)


def test_lists_have_pages_and_strangers_see_nothing():
    made = [client.skills.create(files=folder(name(f"page-{number}"))).id for number in range(5)]
    first = client.skills.list(limit=2)
    equal(([skill.id for skill in first.data], first.has_next_page()), ([made[4], made[3]], True))
    ids = [skill.id for skill in client.skills.list(limit=2)]
    equal([id for id in ids if id in made], made[::-1], "every skill once, the newest first")
    equal(list(stranger.skills.list()), [])
    for call in (
        lambda: stranger.skills.retrieve(made[0]),
        lambda: stranger.skills.delete(made[0]),
        lambda: stranger.skills.versions.create(made[0], files=folder(name("page-0"))),
        lambda: stranger.beta.skills.versions.download("latest", skill_id=made[0]),
    ):
        foreign = refused(anthropic.NotFoundError, call)
        equal(foreign.body["error"]["message"], f"No such skill: {made[0]}")
    forged = refused(anthropic.BadRequestError, lambda: client.skills.list(page="page_forged"))
    equal(forged.body["error"]["type"], "invalid_request_error")
    for id in made:
        client.skills.delete(id)


def test_the_beta_has_its_own_shapes():
    if not OLD:
        # Both namespaces of this SDK send the general shapes; the older ones are asked for by header.
        headers = {**VERSION, "anthropic-beta": "skills-2025-10-02"}
        status, _, data = raw("GET", "/v1/skills?limit=100", None, headers)
        equal((status, sorted(json.loads(data))), (200, ["data", "has_more", "next_page"]))
        return
    beta = client.beta.skills
    skill = beta.create(files=folder(name("beta")), display_title="In the beta")
    equal((skill.display_title, skill.source), ("In the beta", "custom"))
    equal(skill.latest_version.isdigit() and len(skill.latest_version), 16, "microseconds")
    version = beta.versions.retrieve(skill.latest_version, skill_id=skill.id)
    equal((version.version, version.directory, version.name), (skill.latest_version, name("beta"), name("beta")))
    equal([item.id for item in beta.list(limit=1).data], [skill.id])
    held = refused(anthropic.BadRequestError, lambda: beta.delete(skill.id))
    assert "existing versions" in str(held), held
    equal(beta.versions.delete(skill.latest_version, skill_id=skill.id).type, "skill_version_deleted")
    equal(beta.retrieve(skill.id).latest_version, None)
    equal(beta.delete(skill.id).type, "skill_deleted")


def test_an_uploaded_skill_is_used_by_the_next_request_and_by_no_stranger():
    def ask(who, text, skill, **more):
        # The scripted model answers if the system text has the word, and fails if not.
        asked = {"model": "claude-x", "max_tokens": 100, "messages": [{"role": "user", "content": text}]}
        container = {"skills": [{"type": "custom", "skill_id": skill, **more}]}
        return who.messages.create(**asked, extra_body={"container": container})

    word = name("word")
    skill = client.skills.create(files=folder(word, body="The word is plover-one."))
    equal(ask(client, "word one", skill.id).content[0].text, "It is plover-one.")
    second = client.skills.versions.create(skill.id, files=folder(word, body="The word is plover-two."))
    equal(ask(client, "word two", skill.id, version="latest").content[0].text, "It is plover-two.", "at once")
    first = skill.latest_version_id
    equal(ask(client, "word one", skill.id, version=first).content[0].text, "It is plover-one.", "a version that is named stays")
    unknown = refused(anthropic.NotFoundError, lambda: ask(client, "word one", skill.id, version="skver_knack_none"))
    assert skill.id in str(unknown), unknown
    refused(anthropic.NotFoundError, lambda: ask(stranger, "word two", skill.id))

    def told(answer):
        return answer.to_dict()["container"]["skills"][0]["version"]

    # Each API names the version that was served in its own form, also where the request names the skill.
    equal(told(ask(client, "word two", skill.id, version="latest")), second.id)
    equal(told(ask(client, "word two", word)), second.id)
    asked = {"model": "claude-x", "max_tokens": 100, "messages": [{"role": "user", "content": "word two"}]}
    container = {"skills": [{"type": "custom", "skill_id": skill.id, "version": "latest"}]}
    beta = client.beta.messages.create(**asked, betas=["skills-2025-10-02"], extra_body={"container": container})
    made = client.beta.skills.versions.retrieve("latest", skill_id=skill.id, betas=["skills-2025-10-02"])
    equal(told(beta), made.version)
    # What an answer says leads back to that version.
    equal(ask(client, "word one", word, version=first).content[0].text, "It is plover-one.")
    equal(ask(client, "word two", word, version=made.version).content[0].text, "It is plover-two.")
    client.skills.delete(skill.id)
    refused(anthropic.NotFoundError, lambda: ask(client, "word two", skill.id, version=second.id))


def test_a_constraint_names_the_newest_version_that_meets_it():
    word = name("constraint")

    def version(number, said):
        return folder(word, body=f"The word is {said}.", version=number)

    def ask(text, skill, **more):
        container = {"skills": [{"type": "custom", "skill_id": skill, **more}]}
        asked = {"model": "claude-x", "max_tokens": 100, "messages": [{"role": "user", "content": text}]}
        return client.messages.create(**asked, extra_body={"container": container}).content[0].text

    skill = client.skills.create(files=version("2.0.0", "plover-two"))
    client.skills.versions.create(skill.id, files=version("1.1.0", "plover-one"))
    equal(ask("word two", skill.id, version="^2"), "It is plover-two.")
    equal(ask("word two", f"{word}@latest"), "It is plover-two.", "the highest")
    equal(ask("word one", skill.id, version="latest"), "It is plover-one.", "the last made, as the API has it")
    none = refused(anthropic.NotFoundError, lambda: ask("word one", skill.id, version="^3"))
    equal(none.body["error"]["type"], "not_found_error")
    assert "there is 2.0.0, 1.1.0" in str(none), none
    client.skills.delete(skill.id)


def test_bad_uploads_are_refused_with_their_field():
    good = folder(name("bad"))
    document = good[0][1]
    many = good + [(f"{name('bad')}/{number}.txt", b"") for number in range(499)]
    for files, said in [
        ([("SKILL.md", document)], "top-level folder"),
        (good + [("elsewhere/x", b"")], "top-level folder"),
        ([(f"{name('bad')}/deep/SKILL.md", document)], "top-level folder"),
        ([("another/SKILL.md", document)], "name"),
        (good + [good[1]], "was sent twice"),
        (good + [(f"{name('bad')}/../x", b"")], ".."),
        (many, "500 files"),
        (good + [(f"{name('bad')}/large.bin", b"x" * (9 << 20))], "8 MiB"),
        (good + [(f"{name('bad')}/larger.bin", b"x" * 31_000_000)], "8 MiB"),
        (good + [("second/SKILL.md", document)], "top-level folder"),
        (good + [(f"{name('bad')}/skill.md", document)], "both SKILL.md and skill.md"),
        ([("a.zip", b"PK\x03\x04 broken")], "broken zip"),
        ([("a.zip", zipped(good)[:-30])], "zip"),
        ([("a.zip", zipped(good + [(f"{name('bad')}/../x", b"")]))], ".."),
        ([("a.zip", zipped(good + [("/etc/x", b"")]))], "absolute"),
        ([("a.zip", zipped(good + [good[1]]))], "appears twice"),
        ([("a.zip", zipped(good + [("second/SKILL.md", document)]))], "top-level folder"),
        ([("a.zip", linked(f"{name('bad')}/x", "/etc/passwd"))], "link"),
        ([("a.zip", zipped([(f"{name('bad')}/{number}.txt", b"") for number in range(501)]))], "500 files"),
        ([(f"{name('bad')}/SKILL.md", b"---\nname: " + name("bad").encode() + b"\n---\nNo description.")], "description"),
        ([(f"{name('bad')}/SKILL.md", b"---\nname: \xff\n---\n")], "UTF-8"),
        ([("claude-x/SKILL.md", document.replace(name("bad").encode(), b"claude-x"))], "reserved word"),
    ]:
        error = refused(anthropic.BadRequestError, lambda: client.skills.create(files=files))
        equal(error.body["error"]["type"], "invalid_request_error")
        assert said in error.body["error"]["message"], (said, error.body)
    # Packed they are small: what is told of a bomb is what it would take.
    bomb = zipped(good + [(f"{name('bad')}/zeros", bytes(65 << 20))])
    much = refused(anthropic.APIStatusError, lambda: client.skills.create(files=[("a.zip", bomb)]))
    equal((much.status_code, much.body["error"]["type"], len(bomb) < 1 << 20), (413, "request_too_large", True))
    assert "64 MiB unpacked" in str(much), much
    long = refused(anthropic.BadRequestError, lambda: client.skills.create(files=good, display_name="x" * 256))
    assert "display_name" in str(long), long
    equal([skill.id for skill in client.skills.list(limit=1000) if name("bad") in skill.display_name], [], "nothing is left")


def test_without_a_credential_there_is_no_access():
    status, headers, data = raw("GET", "/v1/skills", None, {**VERSION, "authorization": ""})
    body = json.loads(data)
    equal((status, body["error"]["type"], headers["request-id"]), (401, "authentication_error", body["request_id"]))


def test_what_is_the_vendors_goes_to_the_vendor():
    # The scripted provider has no Skills API: its own 404 shows that it was asked.
    for path in ("/v1/skills/skill_01AbC", "/v1/skills/skill_01AbC/versions", "/v1/skills?source=anthropic"):
        status, headers, data = raw("GET", path, None, VERSION)
        equal((status, b"skill_knack" in data, b"No such skill" in data), (404, False, False), path)


run(tests_of(globals()), f"anthropic skills {anthropic.__version__}")
