"""LiteLLM as a client, and its proxy before the gateway."""

import io
import json
import os
import urllib.request
import zipfile

# LiteLLM fetches a price list at import otherwise.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # noqa: E402
from chain import litellm_proxy  # noqa: E402
from checks import KEY, PORT, conversation, equal, no_internals, run, tests_of  # noqa: E402
from talks import ANSWER, TOOLS, in_chat  # noqa: E402
from uploads import zipped  # noqa: E402

BASE = f"http://127.0.0.1:{PORT}"
# What LiteLLM calls the formats, and the base that it adds the path to.
MODELS = [
    ("openai/gpt-x", f"{BASE}/v1"),
    ("anthropic/claude-x", BASE),
    ("gemini/gemini-2.5-flash", f"{BASE}/v1beta"),
]


def complete(model, base, messages, stream, **more):
    """One answer as a message, joined by LiteLLM's own means if it is a stream."""
    more = {"max_tokens": 2000, "api_key": KEY, "num_retries": 0, **more}
    answer = litellm.completion(model=model, api_base=base, messages=messages, stream=stream, **more)
    if stream:
        answer = litellm.stream_chunk_builder(list(answer), messages=messages)
    return answer.choices[0].message


def test_litellm_gets_the_answer_of_a_skill():
    for model, base in MODELS:
        for stream in (False, True):
            answer = complete(model, base, conversation("add two numbers"), stream)
            equal(answer.content.replace("\n", ""), "Let me compute.The sum is 5.", f"{model}, stream {stream}")
            equal(answer.tool_calls or [], [], model)
            no_internals(answer.model_dump_json())


def test_litellm_keeps_a_mixed_turn():
    for model, base in MODELS:
        for stream in (False, True):
            messages = conversation("weather and sum")
            first = complete(model, base, messages, stream, tools=TOOLS)
            calls = [(call.function.name, json.loads(call.function.arguments)) for call in first.tool_calls]
            equal(calls, [("get_weather", {"city": "Oslo"})], f"{model}, stream {stream}")
            messages += [first.model_dump(), {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "-3 C"}]
            answer = complete(model, base, messages, stream, tools=TOOLS)
            equal(answer.content, ANSWER, f"{model}, stream {stream}")


def test_litellm_keeps_a_record():
    """The Skills API of LiteLLM's own client: a record of LiteLLM's proxy, by its id in every later call."""
    document = b"---\nname: litellm-word\ndescription: Says a word.\n---\nThe word is plover.\n"
    gateway = {"custom_llm_provider": "anthropic", "api_base": BASE, "api_key": "litellm-records"}
    record = litellm.create_skill(files=[("litellm-word/SKILL.md", document, "text/markdown")], display_title="Word",
                                  extra_body={"custom_llm_provider": "litellm_proxy"}, **gateway)
    equal(record.id.startswith("litellm_skill_"), True, record.id)
    equal((record.display_title, record.description, record.source), ("Word", "Says a word.", "custom"))
    equal(litellm.get_skill(skill_id=record.id, **gateway).id, record.id)
    equal([skill.display_title for skill in litellm.list_skills(**gateway).data], ["Word"])
    equal(litellm.delete_skill(skill_id=record.id, **gateway).type, "skill_deleted")
    equal(litellm.list_skills(**gateway).data, [])


def test_litellm_uploads_whole_folders():
    """Every file of a record is kept, whether LiteLLM's client sends files or a zip, of a folder or of what is in one."""
    document = b"---\nname: litellm-sum\ndescription: Adds.\n---\nRun scripts/sum.py.\n"
    script = b"print(2 + 3)\n"
    gateway = {"custom_llm_provider": "anthropic", "api_base": BASE, "api_key": "litellm-folders"}
    files = {"litellm-sum/SKILL.md": document, "litellm-sum/scripts/sum.py": script}
    for name, uploaded in [
        ("files", [(path, content, "text/plain") for path, content in files.items()]),
        ("zip", [("litellm-sum.zip", zipped(files.items()), "application/zip")]),
        ("flat zip", [("litellm-sum.zip", zipped([("SKILL.md", document), ("scripts/sum.py", script)]), "application/zip")]),
    ]:
        record = litellm.create_skill(files=uploaded, display_title="Sum",
                                      extra_body={"custom_llm_provider": "litellm_proxy"}, **gateway)
        own = "skill_knack_" + record.id.removeprefix("litellm_skill_").replace("-", "")
        request = urllib.request.Request(f"{BASE}/v1/skills/{own}/content", headers={"Authorization": "Bearer litellm-folders"})
        with urllib.request.urlopen(request) as answer, zipfile.ZipFile(io.BytesIO(answer.read())) as archive:
            equal({path: archive.read(path) for path in archive.namelist()}, files, name)
        litellm.delete_skill(skill_id=record.id, **gateway)


def test_litellm_gets_responses():
    for stream in (False, True):
        answer = litellm.responses(model="openai/gpt-x", api_base=f"{BASE}/v1", api_key=KEY, stream=stream,
                                   instructions="Be brief.", input="add two numbers")
        if stream:
            answer = [event for event in answer if event.type == "response.completed"][0].response
        texts = [part.text for item in answer.output if item.type == "message" for part in item.content]
        equal(texts, ["Let me compute.", "The sum is 5."], f"stream {stream}")
        no_internals(answer.model_dump_json())


def test_litellms_proxy_before_the_gateway():
    """The proxy translates Chat Completions to each provider's format, and asks the gateway in that."""
    models = [
        {"model_name": name.split("/")[1], "litellm_params": {"model": name, "api_base": base, "api_key": KEY}}
        for name, base in MODELS
    ]
    with litellm_proxy({"model_list": models, "litellm_settings": {"num_retries": 0}}) as proxy:
        for model in ("gpt-x", "claude-x", "gemini-2.5-flash"):
            in_chat(proxy, model)


if __name__ == "__main__":
    run(tests_of(globals()), "LiteLLM")
