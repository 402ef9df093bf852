"""LiteLLM as a client, and its proxy in the chain, before the gateway and behind it."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

# LiteLLM fetches a price list at import otherwise.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # noqa: E402
import openai  # noqa: E402
from checks import KEY, PORT, WEATHER_SCHEMA, equal, no_internals, run, tests_of  # noqa: E402

BASE = f"http://127.0.0.1:{PORT}"
HERE = pathlib.Path(__file__).parent
KNACK = os.environ["KNACK"]
# A proxy imports for half a minute on a busy machine; a test that waits for it must outlast that.
START_SECONDS = 300
# The proxy wants a key of its own, which its clients send.
PROXY_KEY = "sk-litellm"
ANSWER = "Oslo has -3 C and the sum is 42."
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER_SCHEMA}}]
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


def conversation(text):
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]


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


def test_litellm_gets_responses():
    for stream in (False, True):
        answer = litellm.responses(model="openai/gpt-x", api_base=f"{BASE}/v1", api_key=KEY, stream=stream,
                                   instructions="Be brief.", input="add two numbers")
        if stream:
            answer = [event for event in answer if event.type == "response.completed"][0].response
        texts = [part.text for item in answer.output if item.type == "message" for part in item.content]
        equal(texts, ["Let me compute.", "The sum is 5."], f"stream {stream}")
        no_internals(answer.model_dump_json())


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def process(command, ready, **more):
    """A process that is stopped at the end; `ready` says when it serves."""
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, **more)
        try:
            until = time.monotonic() + START_SECONDS
            while not ready():
                if child.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    raise AssertionError(f"{command[0]} does not serve: {log.read().decode()[-3000:]}")
                time.sleep(0.2)
            yield
        finally:
            child.terminate()
            child.wait(60)


@contextlib.contextmanager
def litellm_proxy(base):
    """LiteLLM's proxy with one model of each provider at this base; gives its own base."""
    models = [
        {"model_name": name.split("/")[1], "litellm_params": {"model": name, "api_base": f"{base}{path}", "api_key": KEY}}
        for name, path in [("openai/gpt-x", "/v1"), ("anthropic/claude-x", ""), ("gemini/gemini-2.5-flash", "/v1beta")]
    ]
    port = free_port()

    def ready():
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=5).status == 200
        except OSError:
            return False

    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.yaml"
        config.write_text(json.dumps({"model_list": models, "litellm_settings": {"num_retries": 0},
                                      "general_settings": {"master_key": PROXY_KEY}}))
        command = [pathlib.Path(sys.executable).parent / "litellm", "--config", config, "--host", "127.0.0.1", "--port", str(port)]
        with process(command, ready, cwd=folder):
            yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def knack(*arguments):
    """A command of knack that serves; gives its base."""
    port = free_port()

    def ready():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with tempfile.TemporaryDirectory() as folder, \
            process([KNACK, *arguments, "--listen", f"127.0.0.1:{port}"], ready, cwd=folder):
        yield f"http://127.0.0.1:{port}"


def talk(base, model):
    """A whole conversation of an OpenAI client in Chat Completions: a skill, then a mixed turn."""
    client = openai.OpenAI(base_url=f"{base}/v1", api_key=PROXY_KEY, max_retries=0)
    for stream in (False, True):
        text, calls = ask(client, model, conversation("add two numbers"), stream)
        equal((text.replace("\n", ""), calls), ("Let me compute.The sum is 5.", []), f"{model}, stream {stream}")
        messages = conversation("weather and sum")
        text, calls = ask(client, model, messages, stream, tools=TOOLS)
        named = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]
        equal(named, [("get_weather", {"city": "Oslo"})], f"{model}, stream {stream}")
        messages += [{"role": "assistant", "content": text, "tool_calls": calls},
                     {"role": "tool", "tool_call_id": calls[0]["id"], "content": "-3 C"}]
        text, calls = ask(client, model, messages, stream, tools=TOOLS)
        equal((text, calls), (ANSWER, []), f"{model}, stream {stream}")


def ask(client, model, messages, stream, **more):
    """Text and calls of an answer. The SDK's own joining of a stream fails at what the proxy adds for thinking."""
    answer = client.chat.completions.create(model=model, messages=messages, max_tokens=2000, stream=stream, **more)
    if not stream:
        message = answer.choices[0].message
        return message.content or "", [call.model_dump(include={"id", "type", "function"}) for call in message.tool_calls or []]
    text, calls = "", {}
    for chunk in answer:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(part.index, {"type": "function", "function": {"name": "", "arguments": ""}})
                call.setdefault("id", part.id)
                call["function"]["name"] += part.function.name or ""
                call["function"]["arguments"] += part.function.arguments or ""
    return text, list(calls.values())


def test_litellms_proxy_before_the_gateway():
    """The proxy translates Chat Completions to each provider's format, and asks the gateway in that."""
    with litellm_proxy(BASE) as proxy:
        for model in ("gpt-x", "claude-x", "gemini-2.5-flash"):
            talk(proxy, model)


def test_litellms_proxy_behind_the_gateway():
    """The gateway asks the proxy in Chat Completions; the proxy asks each provider in its own format.

    Not Gemini: the proxy puts each result into an object of its own as JSON text, in which the script's checks find no line.
    """
    script = HERE / "script.yaml"
    with knack("mock", "--script", script) as mock, litellm_proxy(mock) as proxy:
        with tempfile.TemporaryDirectory() as files, \
                knack("dev", HERE / "skills", "--upstream", proxy, "--files-dir", files) as gateway:
            for model in ("gpt-x", "claude-x"):
                talk(gateway, model)


if __name__ == "__main__":
    run(tests_of(globals()), "LiteLLM")
