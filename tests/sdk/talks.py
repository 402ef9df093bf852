"""One conversation in three formats, as applications have it that know nothing of skills: a skill, then a mixed turn.

The script of the model checks what arrives there: the skills' text and tools, the results of runs, the history.
"""

import http.client
import json
import urllib.parse

import openai
from chain import PROXY_KEY
from checks import WEATHER_SCHEMA, conversation, equal, events, no_internals

SUM = "Let me compute.The sum is 5."
ANSWER = "Oslo has -3 C and the sum is 42."
CALLS = [("get_weather", {"city": "Oslo"})]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER_SCHEMA}}]


def client(base):
    return openai.OpenAI(base_url=f"{base}/v1", api_key=PROXY_KEY, max_retries=0)


# Chat Completions.

def in_chat(base, model):
    for stream in (False, True):
        what = f"Chat, {model}, stream {stream}"
        text, calls = ask_chat(base, model, conversation("add two numbers"), stream)
        equal((text.replace("\n", ""), calls), (SUM, []), what)
        messages = conversation("weather and sum")
        text, calls = ask_chat(base, model, messages, stream, tools=TOOLS)
        equal([(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls], CALLS, what)
        messages += [{"role": "assistant", "content": text, "tool_calls": calls},
                     {"role": "tool", "tool_call_id": calls[0]["id"], "content": "-3 C"}]
        equal(ask_chat(base, model, messages, stream, tools=TOOLS), (ANSWER, []), what)


def ask_chat(base, model, messages, stream, **more):
    """Text and calls of an answer. The SDK's own joining of a stream fails at what the proxy adds for thinking."""
    answer = client(base).chat.completions.create(model=model, messages=messages, max_tokens=2000, stream=stream, **more)
    if not stream:
        no_internals(answer.model_dump_json())
        message = answer.choices[0].message
        return message.content or "", [call.model_dump(include={"id", "type", "function"}) for call in message.tool_calls or []]
    text, calls = "", {}
    for chunk in answer:
        no_internals(chunk.model_dump_json())
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(part.index, {"type": "function", "function": {"name": "", "arguments": ""}})
                call.setdefault("id", part.id)
                call["function"]["name"] += part.function.name or ""
                call["function"]["arguments"] += part.function.arguments or ""
    return text, list(calls.values())


# Messages, as bytes: what a client makes of them is in the SDKs' own tests.

def in_messages(base, model, streams=(False, True)):
    for stream in streams:
        what = f"Messages, {model}, stream {stream}"
        equal(read_messages(ask_messages(base, model, [user("add two numbers")], stream)), (SUM, []), what)
        messages = [user("weather and sum")]
        content = ask_messages(base, model, messages, stream)
        equal(read_messages(content)[1], CALLS, what)
        call = next(block for block in content if block["type"] == "tool_use")
        messages += [{"role": "assistant", "content": content},
                     user([{"type": "tool_result", "tool_use_id": call["id"], "content": "-3 C"}])]
        equal(read_messages(ask_messages(base, model, messages, stream)), (ANSWER, []), what)


def user(content):
    return {"role": "user", "content": content}


def read_messages(content):
    text = "".join(block["text"] for block in content if block["type"] == "text")
    return text.replace("\n", ""), [(block["name"], block["input"]) for block in content if block["type"] == "tool_use"]


def ask_messages(base, model, messages, stream):
    """The content of an answer."""
    body = {"model": model, "max_tokens": 2000, "system": "Be brief.", "messages": messages, "stream": stream,
            "tools": [{"name": "get_weather", "input_schema": WEATHER_SCHEMA}]}
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(base).netloc, timeout=300)
    connection.request("POST", "/v1/messages", json.dumps(body),
                       {"content-type": "application/json", "x-api-key": PROXY_KEY, "anthropic-version": "2023-06-01"})
    response = connection.getresponse()
    data = response.read()
    connection.close()
    equal(response.status, 200, f"Messages, {model}, stream {stream}: {data[:1000]}")
    no_internals(data)
    return joined(data) if stream else json.loads(data)["content"]


def joined(data):
    """The content that a stream of Messages brings."""
    blocks, pieces = {}, {}
    for _, line in events(data):
        event = json.loads(line)
        if event["type"] == "content_block_start":
            blocks[event["index"]] = event["content_block"]
        elif event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            if delta["type"] == "input_json_delta":
                pieces[event["index"]] = pieces.get(event["index"], "") + delta["partial_json"]
            else:
                member = delta["type"].removesuffix("_delta")
                block[member] = block.get(member, "") + delta[member]
        elif event["type"] == "error":
            raise AssertionError(line)
    for index, text in pieces.items():
        blocks[index]["input"] = json.loads(text)
    return [blocks[index] for index in sorted(blocks)]


# Responses.

def in_responses(base, model):
    for stream in (False, True):
        what = f"Responses, {model}, stream {stream}"
        equal(read_responses(ask_responses(base, model, [user("add two numbers")], stream)), (SUM, []), what)
        items = [user("weather and sum")]
        output = ask_responses(base, model, items, stream)
        equal(read_responses(output)[1], CALLS, what)
        call = next(item for item in output if item["type"] == "function_call")
        items += [*output, {"type": "function_call_output", "call_id": call["call_id"], "output": "-3 C"}]
        equal(read_responses(ask_responses(base, model, items, stream)), (ANSWER, []), what)


def read_responses(output):
    text = "".join(part["text"] for item in output if item["type"] == "message" for part in item["content"])
    calls = [(item["name"], json.loads(item["arguments"])) for item in output if item["type"] == "function_call"]
    return text.replace("\n", ""), calls


def ask_responses(base, model, items, stream):
    """The items of an answer."""
    tool = {"type": "function", "name": "get_weather", "parameters": WEATHER_SCHEMA}
    answer = client(base).responses.create(model=model, instructions="Be brief.", input=items, tools=[tool], stream=stream)
    if stream:
        answer = [event for event in answer if event.type == "response.completed"][0].response
    # LiteLLM's reasoning items have parts of another kind, of which the SDK warns.
    no_internals(answer.model_dump_json(warnings=False))
    return answer.model_dump(exclude_none=True, warnings=False)["output"]
