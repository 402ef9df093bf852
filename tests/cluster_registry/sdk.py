"""The official SDK that is installed here, unchanged, against the registry of a cluster: URL, TOKEN and CA come from the test."""

import os
import ssl
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sdk"))
from uploads import folder, unzipped, zipped

URL, TOKEN = os.environ["URL"], os.environ["TOKEN"]
TRUSTED = ssl.create_default_context(cafile=os.environ["CA"])


def refused(kind, ask):
    try:
        ask()
    except kind as error:
        return error
    raise AssertionError("not refused")


def openai_sdk(openai):
    client = openai.OpenAI(base_url=URL + "/v1", api_key=TOKEN, max_retries=0,
                           http_client=openai.DefaultHttpxClient(verify=TRUSTED, trust_env=False))
    skill = client.skills.create(files=folder("oai"))
    assert unzipped(client.skills.content.retrieve(skill.id).read()) == dict(folder("oai")), "the same files come back"
    second = client.skills.versions.create(skill.id, files=folder("oai", description="Second."))
    assert second.version == "2", second
    assert client.skills.update(skill.id, default_version="2").description == "Second."
    assert [version.version for version in client.skills.versions.list(skill.id)] == ["2", "1"]
    made = [client.skills.create(files=("s.zip", zipped(folder("page-%d" % number)))).id for number in range(3)]
    assert [one.id for one in client.skills.list(limit=2) if one.id in made] == made[::-1], "over pages"
    assert [one.id for one in client.skills.list(limit=2, order="asc") if one.id in made] == made
    for one in made:
        assert client.skills.delete(one).deleted
    client.skills.versions.delete("1", skill_id=skill.id)
    assert refused(openai.NotFoundError, lambda: client.skills.retrieve(made[0])).request_id.startswith("req_knack_")
    refused(openai.ConflictError, lambda: client.skills.create(files=folder("oai")))


def anthropic_sdk(anthropic):
    client = anthropic.Anthropic(base_url=URL, api_key=TOKEN, max_retries=0,
                                 http_client=anthropic.DefaultHttpxClient(verify=TRUSTED, trust_env=False))
    skill = client.skills.create(files=folder("ant"))
    second = client.skills.versions.create(skill.id, files=folder("ant", description="Second."))
    assert client.skills.retrieve(skill.id).latest_version_id == second.id
    assert [version.id for version in client.skills.versions.list(skill.id)][0] == second.id
    assert skill.id in [one.id for one in client.beta.skills.list()], "in the beta, too"
    refused(anthropic.NotFoundError, lambda: client.skills.retrieve("skill_knack_none"))
    refused(anthropic.ConflictError, lambda: client.skills.create(files=folder("ant")))
    client.skills.delete(skill.id)
    refused(anthropic.NotFoundError, lambda: client.skills.retrieve(skill.id))


def main():
    try:
        import openai
    except ImportError:
        import anthropic
        return anthropic_sdk(anthropic)
    return openai_sdk(openai)


main()
