"""Chat Completions through the official SDK, and as raw bytes."""

import json

import openai
from checks import KEY, PORT, WEATHER_SCHEMA, conversation, equal, events, no_internals, raw, run, tests_of

client = openai.OpenAI(base_url=f"http://127.0.0.1:{PORT}/v1", api_key=KEY, max_retries=0, timeout=300)
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city.", "strict": True, "parameters": WEATHER_SCHEMA}}]


def create(messages, **more):
    return client.chat.completions.create(model="gpt-x", messages=messages, **more)


def collected(messages, **more):
    """The raw stream through the SDK: chunks, text, and calls put together by index."""
    chunks = list(create(messages, stream=True, stream_options={"include_usage": True}, **more))
    text, calls = "", {}
    for chunk in chunks:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                known = calls.setdefault(call.index, {"id": call.id, "name": call.function.name, "arguments": ""})
                known["arguments"] += call.function.arguments or ""
    return chunks, text, calls


def raw_stream(messages, **more):
    """The stream as bytes: one start, one end, one id, usage last, nothing of ours."""
    body = {"model": "gpt-x", "messages": messages, "stream": True, "stream_options": {"include_usage": True}, **more}
    status, headers, data = raw("POST", "/v1/chat/completions", body)
    equal(status, 200, data)
    equal(headers["content-type"].split(";")[0], "text/event-stream")
    no_internals(data)
    found = events(data)
    equal([kind for kind, _ in found if kind], [], "Chat has no event lines")
    equal([text for _, text in found].count("[DONE]"), 1)
    equal(found[-1][1], "[DONE]")
    chunks = [json.loads(text) for _, text in found[:-1]]
    equal(len({chunk["id"] for chunk in chunks}), 1, "ids")
    equal(len({chunk["created"] for chunk in chunks}), 1, "created")
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    equal(sum("role" in delta for delta in deltas), 1, "roles")
    ends = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    equal(len(ends), 1, "finish reasons")
    equal(chunks[-1]["choices"], [], "the usage chunk is last")
    equal([bool(chunk.get("usage")) for chunk in chunks].count(True), 1, "usage chunks")
    indices = [call["index"] for delta in deltas for call in delta.get("tool_calls") or []]
    equal(sorted(set(indices)), list(range(len(set(indices)))), "indices of calls")
    return chunks, ends[0]


def answer_weather(messages, message, text="-3 C"):
    """The conversation as an unchanged app continues it."""
    echoed = message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}) if hasattr(message, "model_dump") else message
    echoed.setdefault("content", None)
    results = [{"role": "tool", "tool_call_id": call["id"], "content": text} for call in echoed["tool_calls"]]
    return [*messages, echoed, *results]


def test_an_answer_without_skills():
    message = create(conversation("say hello"))
    equal(message.choices[0].message.content, "Grüße 🎈 from the model.")
    equal(message.choices[0].message.role, "assistant")
    equal(message.usage.total_tokens, 99)
    chunks, text, _ = collected(conversation("say hello"))
    equal(text, "Grüße 🎈 from the model.")
    equal(chunks[-1].usage.total_tokens, 99)
    raw_stream(conversation("say hello"))


def test_usage_in_a_stream_comes_only_if_asked_for():
    chunks = list(create(conversation("say hello"), stream=True))
    equal([chunk.usage for chunk in chunks if chunk.usage], [])
    _, _, data = raw("POST", "/v1/chat/completions", {"model": "gpt-x", "messages": conversation("say hello"), "stream": True})
    equal(b'"usage"' in data, False, "a usage member")


def test_a_skill_runs_unseen():
    answer = create(conversation("add two numbers"))
    equal(answer.choices[0].message.content, "Let me compute.\n\nThe sum is 5.")
    equal(answer.choices[0].message.tool_calls, None)
    equal(answer.choices[0].finish_reason, "stop")
    equal((answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens), (600, 60, 660))
    no_internals(answer.model_dump_json())


def test_a_skill_runs_unseen_in_a_stream():
    chunks, text, calls = collected(conversation("add two numbers"))
    equal((text, calls), ("Let me compute.\n\nThe sum is 5.", {}))
    equal(len({chunk.id for chunk in chunks}), 1)
    equal(chunks[-1].usage.total_tokens, 660)
    _, end = raw_stream(conversation("add two numbers"))
    equal(end, "stop")


def test_the_accumulating_stream_adds_up():
    with client.chat.completions.stream(model="gpt-x", messages=conversation("add two numbers"), stream_options={"include_usage": True}) as stream:
        final = stream.get_final_completion()
    equal(final.choices[0].message.role, "assistant")
    equal(final.choices[0].message.content, "Let me compute.\n\nThe sum is 5.")
    equal(final.choices[0].finish_reason, "stop")
    equal(final.usage.total_tokens, 660)


def test_mixed_tools_and_a_follow_up():
    messages = conversation("weather and sum")
    first = create(messages, tools=TOOLS)
    message = first.choices[0].message
    equal([call.function.name for call in message.tool_calls], ["get_weather"])
    equal(json.loads(message.tool_calls[0].function.arguments), {"city": "Oslo"})
    equal(first.choices[0].finish_reason, "tool_calls")
    no_internals(first.model_dump_json())
    messages = answer_weather(messages, message)
    second = create(messages, tools=TOOLS)
    equal(second.choices[0].message.content, "Oslo has -3 C and the sum is 42.")
    messages += [{"role": "assistant", "content": second.choices[0].message.content}, {"role": "user", "content": "which sum was it"}]
    equal(create(messages, tools=TOOLS).choices[0].message.content, "It was 42.")


def test_mixed_tools_in_a_stream():
    messages = conversation("weather and sum")
    with client.chat.completions.stream(model="gpt-x", messages=messages, tools=TOOLS) as stream:
        message = stream.get_final_completion().choices[0].message
    equal([call.function.name for call in message.tool_calls], ["get_weather"])
    call = message.tool_calls[0]
    echoed = {"role": "assistant", "content": message.content, "tool_calls": [{"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}}]}
    _, text, _ = collected(answer_weather(messages, echoed), tools=TOOLS)
    equal(text, "Oslo has -3 C and the sum is 42.")
    _, end = raw_stream(conversation("weather and sum"), tools=TOOLS)
    equal(end, "tool_calls")


def test_a_loaded_skill_outlives_a_client_call():
    messages = conversation("load first")
    first = create(messages, tools=TOOLS).choices[0].message
    equal([call.function.name for call in first.tool_calls], ["get_weather"])
    messages = answer_weather(messages, first, "18 C")
    second = create(messages, tools=TOOLS).choices[0].message
    equal(second.content, "Rome has 18 C.")
    messages += [{"role": "assistant", "content": second.content}, {"role": "user", "content": "now add"}]
    equal(create(messages, tools=TOOLS).choices[0].message.content, "That is 2.")


def test_only_client_tools_pass_through():
    messages = conversation("only my tool")
    message = create(messages, tools=TOOLS).choices[0].message
    equal(len(message.tool_calls), 2)
    equal(create(answer_weather(messages, message), tools=TOOLS).choices[0].message.content, "Two cities.")
    chunks, end = raw_stream(messages, tools=TOOLS)
    equal(end, "tool_calls")
    indices = {call["index"] for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls") or []}
    equal(indices, {0, 1})


def test_files_are_served_and_come_back():
    messages = conversation("write a file")
    answer = create(messages)
    equal(answer.choices[0].message.content, "The note is written.")
    status, _, data = raw("GET", f"/knack/v1/responses/{answer.id}/files")
    equal(status, 200, data)
    file = json.loads(data)["files"][0]
    equal((file["name"], file["size_bytes"]), ("Note.TXT", len("from the first run")))
    status, _, data = raw("GET", f"/knack/v1/responses/{answer.id}/files/Note.TXT")
    equal((status, data), (200, b"from the first run"))
    status, _, _ = raw("GET", f"/knack/v1/responses/{answer.id}/files", headers={"authorization": "Bearer another"})
    equal(status, 404, "another credential")
    messages += [{"role": "assistant", "content": answer.choices[0].message.content}, {"role": "user", "content": "read it back"}]
    equal(create(messages).choices[0].message.content, "It says what the first run wrote.")


def test_the_client_of_azure():
    """It has the deployment in the path, the version of the API in the query, and the key in a header of its own."""
    azure = openai.AzureOpenAI(azure_endpoint=f"http://127.0.0.1:{PORT}", api_key=KEY, api_version="2026-10-01", max_retries=0, timeout=300)
    with azure.chat.completions.stream(model="gpt-x", messages=conversation("add two numbers")) as stream:
        streamed = stream.get_final_completion().choices[0].message
    for message in (azure.chat.completions.create(model="gpt-x", messages=conversation("add two numbers")).choices[0].message, streamed):
        equal((message.content, message.tool_calls or []), ("Let me compute.\n\nThe sum is 5.", []))
    response = azure.responses.create(model="gpt-x", instructions="Be brief.", input="write a file")
    equal(response.output_text, "The note is written.")
    path = f"/knack/v1/responses/{response.id}/files/Note.TXT"
    equal(raw("GET", path, headers={"authorization": "", "api-key": KEY})[0], 200)
    equal(raw("GET", path, headers={"authorization": "", "api-key": "another"})[0], 404)


def test_errors_keep_status_and_shape():
    try:
        create(conversation("too busy"))
        raise AssertionError("no error")
    except openai.RateLimitError as error:
        equal(error.response.headers["retry-after"], "7")
        equal(error.message.endswith("Slow down.") or "Slow down." in str(error), True, str(error))
    other = openai.OpenAI(base_url=f"http://127.0.0.1:{PORT}/v1", api_key="wrong", max_retries=0)
    try:
        other.chat.completions.create(model="gpt-x", messages=conversation("say hello"))
        raise AssertionError("no error")
    except openai.AuthenticationError as error:
        equal(error.code, "invalid_api_key")


def test_a_broken_stream_is_an_error_and_no_end():
    try:
        for _ in create(conversation("break off"), stream=True):
            pass
        raise AssertionError("the stream ended as if it were whole")
    except openai.APIError:
        pass
    _, _, data = raw("POST", "/v1/chat/completions", {"model": "gpt-x", "messages": conversation("break off"), "stream": True})
    equal(b"[DONE]" in data, False, "an end marker")
    equal(b'"error"' in data, True, "an error frame")


def test_stored_completions_are_read_as_they_were_shown():
    kept = client.chat.completions
    made = create(conversation("add two numbers"), store=True, metadata={"team": "a"})
    # A page at a time: the rounds of the answer before it are no reason to stop.
    for order in ("asc", "desc"):
        listed = list(kept.list(limit=1, order=order))
        equal([one.id for one in listed], [made.id], "each answer once")
        for read in (listed[0], kept.retrieve(made.id)):
            equal(read.choices[0].message.content, made.choices[0].message.content)
            equal((read.choices[0].message.tool_calls, read.choices[0].finish_reason), (None, "stop"))
            equal(read.usage.total_tokens, made.usage.total_tokens)
            no_internals(read.model_dump_json())
    sent = list(kept.messages.list(made.id, limit=1))
    equal([(one.role, one.content) for one in sent], [("system", "Be brief."), ("user", "add two numbers")])
    updated = kept.update(made.id, metadata={"team": "b"})
    equal((updated.id, updated.metadata), (made.id, {"team": "b"}))
    no_internals(updated.model_dump_json())
    gone = kept.delete(made.id)
    equal((gone.id, gone.deleted), (made.id, True))
    equal(list(kept.list()), [])


def test_a_model_that_never_stops_is_stopped():
    answer = create(conversation("never stop"))
    equal(answer.choices[0].finish_reason, "length")
    equal(answer.choices[0].message.tool_calls, None)
    no_internals(answer.model_dump_json())
    _, end = raw_stream(conversation("never stop"))
    equal(end, "length")


if __name__ == "__main__":
    run(tests_of(globals()), f"openai {openai.__version__}")
