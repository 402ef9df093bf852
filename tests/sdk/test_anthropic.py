"""Messages through the official SDK of both eras, and as raw bytes."""

import json

import anthropic
from checks import KEY, PORT, WEATHER_SCHEMA, asked, equal, events, no_internals, raw, run, tests_of

client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{PORT}", api_key=KEY, max_retries=0, timeout=300)
TOOLS = [{"name": "get_weather", "description": "Weather of a city.", "input_schema": WEATHER_SCHEMA}]
COMMON = {"model": "claude-x", "max_tokens": 500, "system": "Be brief."}
VERSION = {"anthropic-version": "2023-06-01"}


def create(messages, **more):
    return client.messages.create(**COMMON, messages=messages, **more)


def streamed(messages, **more):
    with client.messages.stream(**COMMON, messages=messages, **more) as stream:
        return stream.get_final_message()


def texts(message):
    return [block.text for block in message.content if block.type == "text"]


def types(message):
    return [block.type for block in message.content]


def results(message, text="-3 C"):
    calls = [block for block in message.content if block.type == "tool_use"]
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": text} for call in calls]}


def raw_stream(messages, **more):
    """The stream as bytes: one start, one end, blocks numbered without gaps, nothing of ours."""
    status, headers, data = raw("POST", "/v1/messages", {**COMMON, "messages": messages, "stream": True, **more}, VERSION)
    equal(status, 200, data)
    equal(headers["content-type"].split(";")[0], "text/event-stream")
    no_internals(data)
    found = [(kind, json.loads(text)) for kind, text in events(data)]
    equal([kind for kind, event in found if kind != event["type"]], [], "event lines equal the type")
    order = [kind for kind, _ in found if kind != "ping"]
    equal((order[0], order.count("message_start")), ("message_start", 1))
    equal((order[-2:], order.count("message_delta"), order.count("message_stop")), (["message_delta", "message_stop"], 1, 1))
    open_block, started = None, []
    for kind, event in found:
        if kind == "content_block_start":
            equal(open_block, None, "blocks do not overlap")
            open_block = event["index"]
            started.append(open_block)
        elif kind == "content_block_delta":
            equal(event["index"], open_block, "a delta belongs to the open block")
        elif kind == "content_block_stop":
            equal(event["index"], open_block, "a stop belongs to the open block")
            open_block = None
    equal(started, list(range(len(started))), "block numbers")
    return found, next(event for kind, event in found if kind == "message_delta")


def test_an_answer_without_skills():
    for message in (create(asked("say hello")), streamed(asked("say hello"))):
        equal((types(message), texts(message)), (["text"], ["Grüße 🎈 from the model."]))
        equal((message.role, message.stop_reason), ("assistant", "end_turn"))
        equal((message.usage.input_tokens, message.usage.output_tokens), (90, 9))
    raw_stream(asked("say hello"))


def test_a_skill_runs_unseen():
    message = create(asked("add two numbers"))
    equal(texts(message), ["Let me compute.", "The sum is 5."])
    equal((message.stop_reason, message.usage.input_tokens, message.usage.output_tokens), ("end_turn", 600, 60))
    no_internals(message.model_dump_json())


def test_a_skill_runs_unseen_in_a_stream():
    message = streamed(asked("add two numbers"))
    equal(texts(message), ["Let me compute.", "The sum is 5."])
    equal((message.stop_reason, message.usage.input_tokens, message.usage.output_tokens), ("end_turn", 600, 60))
    _, delta = raw_stream(asked("add two numbers"))
    equal((delta["delta"]["stop_reason"], delta["usage"]["output_tokens"]), ("end_turn", 60))


def test_the_raw_events_of_the_sdk_are_whole():
    kinds = [event.type for event in client.messages.create(**COMMON, messages=asked("add two numbers"), stream=True)]
    equal((kinds[0], kinds[-1]), ("message_start", "message_stop"))
    equal(kinds.count("content_block_start"), kinds.count("content_block_stop"))


def mixed(ask):
    messages = asked("weather and sum")
    first = ask(messages, tools=TOOLS)
    equal(types(first), ["thinking", "text", "tool_use"])
    equal((first.content[2].name, first.content[2].input, first.stop_reason), ("get_weather", {"city": "Oslo"}, "tool_use"))
    equal(bool(first.content[0].signature), True, "a signature")
    no_internals(first.model_dump_json())
    messages += [{"role": "assistant", "content": first.content}, results(first)]
    second = ask(messages, tools=TOOLS)
    equal(texts(second), ["Oslo has -3 C and the sum is 42."])
    messages += [{"role": "assistant", "content": second.content}, {"role": "user", "content": "which sum was it"}]
    equal(texts(ask(messages, tools=TOOLS)), ["It was 42."])


def test_mixed_tools_and_a_follow_up():
    mixed(create)


def test_mixed_tools_and_a_follow_up_in_streams():
    mixed(streamed)
    _, delta = raw_stream(asked("weather and sum"), tools=TOOLS)
    equal(delta["delta"]["stop_reason"], "tool_use")


def test_a_loaded_skill_outlives_a_client_call():
    messages = asked("load first")
    first = create(messages, tools=TOOLS)
    equal(types(first), ["thinking", "tool_use"])
    messages += [{"role": "assistant", "content": first.content}, results(first, "18 C")]
    second = streamed(messages, tools=TOOLS)
    equal(texts(second), ["Rome has 18 C."])
    messages += [{"role": "assistant", "content": second.content}, {"role": "user", "content": "now add"}]
    equal(texts(create(messages, tools=TOOLS)), ["That is 2."])


def test_only_client_tools_pass_through():
    messages = asked("only my tool")
    first = create(messages, tools=TOOLS)
    equal(types(first), ["tool_use", "tool_use"])
    messages += [{"role": "assistant", "content": first.content}, results(first)]
    equal(texts(create(messages, tools=TOOLS)), ["Two cities."])
    raw_stream(asked("only my tool"), tools=TOOLS)


def test_files_are_served_and_come_back():
    messages = asked("write a file")
    answer = create(messages)
    equal(texts(answer), ["The note is written."])
    status, _, data = raw("GET", f"/knack/v1/responses/{answer.id}/files")
    # The credential decides: the 0.x SDK sends x-api-key, so the same key as a bearer token may be another caller.
    if status == 404:
        status, _, data = raw("GET", f"/knack/v1/responses/{answer.id}/files", headers={"authorization": "", "x-api-key": KEY})
    equal(status, 200, data)
    file = json.loads(data)["files"][0]
    equal((file["name"], file["size_bytes"]), ("Note.TXT", len("from the first run")))
    messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": "read it back"}]
    equal(texts(create(messages)), ["It says what the first run wrote."])


def test_the_token_count_holds_the_skills():
    counted = client.messages.count_tokens(model="claude-x", system="Be brief.", messages=asked("say hello")).input_tokens
    body = {"model": "claude-x", "system": "Be brief.", "messages": asked("say hello")}
    headers = {**VERSION, "x-knack-skills": "none"}
    status, _, data = raw("POST", "/v1/messages/count_tokens", body, headers)
    equal(status, 200, data)
    equal(counted > json.loads(data)["input_tokens"] + 100, True, f"{counted} with skills, {data} without")


def test_the_beta_namespace_works():
    message = client.beta.messages.create(**COMMON, messages=asked("add two numbers"), betas=["context-management-2025-06-27"])
    equal([block.text for block in message.content if block.type == "text"], ["Let me compute.", "The sum is 5."])


@anthropic.beta_tool
def get_weather(city: str) -> str:
    """Weather of a city."""
    return "18 C" if city == "Rome" else "-3 C"


def run_tools(text, **more):
    runner = client.beta.messages.tool_runner(**COMMON, tools=[get_weather], messages=asked(text), **more)
    rounds = list(runner)
    for message in rounds:
        no_internals(message.model_dump_json())
    return texts(rounds[-1])


def test_the_tool_runner_runs_tools_beside_skills():
    equal(run_tools("weather and sum"), ["Oslo has -3 C and the sum is 42."])
    equal(run_tools("load first"), ["Rome has 18 C."])
    for headers in ({}, {"x-knack-skills": "none"}):
        equal(run_tools("only my tool", extra_headers=headers), ["Two cities."])


def test_a_thread_goes_on_with_its_skills():
    if not hasattr(client.beta.messages, "thread"):
        print("SKIPPED test test_a_thread_goes_on_with_its_skills: this version of the SDK has no threads")
        return
    thread = client.beta.messages.thread(**COMMON, tools=TOOLS)
    first = thread.send(*asked("weather and sum"))
    equal(types(first), ["thinking", "text", "tool_use"])
    equal(texts(thread.send(results(first))), ["Oslo has -3 C and the sum is 42."])
    with thread.stream({"role": "user", "content": "which sum was it"}) as stream:
        equal(texts(stream.get_final_message()), ["It was 42."])


def test_system_text_may_be_a_list_or_absent():
    blocks = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    message = client.messages.create(model="claude-x", max_tokens=500, system=blocks, messages=asked("say hello"))
    equal(texts(message), ["Grüße 🎈 from the model."])
    message = client.messages.create(model="claude-x", max_tokens=500, messages=asked("write a file"))
    equal(texts(message), ["The note is written."])


def test_errors_keep_status_and_shape():
    try:
        create(asked("too busy"))
        raise AssertionError("no error")
    except anthropic.RateLimitError as error:
        equal(error.response.headers["retry-after"], "7")
        equal(error.body["error"]["type"], "rate_limit_error")
    other = anthropic.Anthropic(base_url=f"http://127.0.0.1:{PORT}", api_key="wrong", max_retries=0)
    try:
        other.messages.create(**COMMON, messages=asked("say hello"))
        raise AssertionError("no error")
    except anthropic.AuthenticationError as error:
        equal(error.body["error"]["type"], "authentication_error")


def test_a_broken_stream_is_an_error_and_no_end():
    try:
        streamed(asked("break off"))
        raise AssertionError("the stream ended as if it were whole")
    except anthropic.APIError:
        pass
    _, _, data = raw("POST", "/v1/messages", {**COMMON, "messages": asked("break off"), "stream": True}, VERSION)
    equal(b"message_stop" in data, False, "an end marker")
    equal(b"event: error" in data, True, "an error event")


def test_a_model_that_never_stops_is_stopped():
    message = create(asked("never stop"))
    equal((message.stop_reason, set(types(message))), ("pause_turn", {"text"}))
    no_internals(message.model_dump_json())
    _, delta = raw_stream(asked("never stop"))
    equal(delta["delta"]["stop_reason"], "pause_turn")


if __name__ == "__main__":
    run(tests_of(globals()), f"anthropic {anthropic.__version__}")
