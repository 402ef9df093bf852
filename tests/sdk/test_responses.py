"""Responses through the official SDK, and as raw bytes."""

import json

import openai
from checks import KEY, PORT, WEATHER_SCHEMA, asked, equal, events, no_internals, raw, run, tests_of

client = openai.OpenAI(base_url=f"http://127.0.0.1:{PORT}/v1", api_key=KEY, max_retries=0, timeout=300)
TOOLS = [{"type": "function", "name": "get_weather", "description": "Weather of a city.", "strict": True, "parameters": WEATHER_SCHEMA}]
COMMON = {"model": "gpt-x", "instructions": "Be brief."}


def create(given, **more):
    return client.responses.create(**COMMON, input=given, **more)


def streamed(given, **more):
    """The accumulating stream: it refuses changed ids, indices used twice, and items without an end."""
    with client.responses.stream(**COMMON, input=given, **more) as stream:
        return stream.get_final_response()


def both(given, **more):
    return [create(given, **more), streamed(given, **more)]


def raw_stream(given, **more):
    """The stream as bytes: numbers without gaps, one id, one start, one end, nothing of ours."""
    status, headers, data = raw("POST", "/v1/responses", {**COMMON, "input": given, "stream": True, **more})
    equal(status, 200, data)
    equal(headers["content-type"].split(";")[0], "text/event-stream")
    no_internals(data)
    found = [(kind, json.loads(text)) for kind, text in events(data)]
    equal([kind for kind, event in found if kind != event["type"]], [], "event lines equal the type")
    equal([event["sequence_number"] for _, event in found], list(range(len(found))), "sequence numbers")
    added = [event["output_index"] for kind, event in found if kind == "response.output_item.added"]
    equal(added, list(range(len(added))), "output indices")
    snapshots = [event["response"] for _, event in found if "response" in event]
    equal(len({snapshot["id"] for snapshot in snapshots}), 1, "ids")
    equal({snapshot["instructions"] for snapshot in snapshots}, {"Be brief."})
    kinds = [kind for kind, _ in found]
    equal((kinds[:2], kinds.count("response.created")), (["response.created", "response.in_progress"], 1))
    ends = [kind for kind in kinds if kind in ("response.completed", "response.incomplete", "response.failed")]
    equal((ends, kinds[-1]), ([kinds[-1]], ends[0]))
    return found, found[-1][1]["response"]


def calls(response):
    return [item for item in response.output if item.type == "function_call"]


def results(response, text="-3 C"):
    return [{"type": "function_call_output", "call_id": call.call_id, "output": text} for call in calls(response)]


def echoed(response):
    """The output as an app sends it back."""
    return [item.model_dump(exclude_none=True) for item in response.output]


def test_an_answer_without_skills():
    for response in both(asked("say hello")):
        equal((response.output_text, response.status), ("Grüße 🎈 from the model.", "completed"))
        equal((response.usage.input_tokens, response.usage.total_tokens), (90, 99))
        equal((response.instructions, response.tools), ("Be brief.", []))
    raw_stream(asked("say hello"))
    equal(create("say hello").output_text, "Grüße 🎈 from the model.")


def test_a_skill_runs_unseen():
    for response in both(asked("add two numbers")):
        texts = [part.text for item in response.output for part in item.content]
        equal(texts, ["Let me compute.", "The sum is 5."])
        equal((response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens), (600, 60, 660))
        no_internals(response.model_dump_json())
    raw_stream(asked("add two numbers"))


def test_mixed_tools_and_a_follow_up():
    for way in (create, streamed):
        given = asked("weather and sum")
        first = way(given, tools=TOOLS, store=False, include=["reasoning.encrypted_content"])
        equal([json.loads(call.arguments) for call in calls(first)], [{"city": "Oslo"}])
        no_internals(first.model_dump_json())
        given = [*given, *echoed(first), *results(first)]
        second = way(given, tools=TOOLS, store=False)
        equal(second.output_text, "Oslo has -3 C and the sum is 42.")
        given += [*echoed(second), *asked("which sum was it")]
        equal(way(given, tools=TOOLS).output_text, "It was 42.")
    _, end = raw_stream(asked("weather and sum"), tools=TOOLS)
    equal([item["type"] for item in end["output"]], ["reasoning", "message", "function_call"])


def test_a_conversation_goes_on_by_the_id_that_was_shown():
    for way in (create, streamed):
        first = way(asked("weather and sum"), tools=TOOLS)
        second = way(results(first), previous_response_id=first.id, tools=TOOLS)
        equal((second.output_text, second.previous_response_id), ("Oslo has -3 C and the sum is 42.", first.id))
        equal(way("which sum was it", previous_response_id=second.id, tools=TOOLS).output_text, "It was 42.")


def plain(value):
    """A response without what only the SDK's accumulating stream adds."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items() if key not in ("parsed", "parsed_arguments")}
    return [plain(one) for one in value] if isinstance(value, list) else value


def is_stored_as_shown(response, *texts):
    """What is read by the id is what the app was shown, and the input is what it sent."""
    stored = client.responses.retrieve(response.id)
    no_internals(stored.model_dump_json())
    equal(plain(stored.to_dict()), plain(response.to_dict()))
    for limit in (1, 20):
        items = list(client.responses.input_items.list(response.id, limit=limit, order="asc"))
        no_internals("".join(item.model_dump_json() for item in items))
        equal([item.output if item.type == "function_call_output" else item.content[0].text for item in items], list(texts))


def test_a_stored_response_is_what_was_shown():
    for way in (create, streamed):
        is_stored_as_shown(way(asked("say hello")), "say hello")
        added = way(asked("add two numbers"))
        is_stored_as_shown(added, "add two numbers")
        mixed = way(asked("weather and sum"), tools=TOOLS)
        is_stored_as_shown(mixed, "weather and sum")
        then = way(results(mixed), previous_response_id=mixed.id, tools=TOOLS)
        is_stored_as_shown(then, "-3 C")


def test_a_response_in_the_background_is_polled_and_streamed_again():
    for way in (create, streamed):
        mixed = way(asked("weather and sum"), tools=TOOLS)
        done = way(results(mixed), previous_response_id=mixed.id, tools=TOOLS)
        more = {**COMMON, "input": "which sum was it", "previous_response_id": done.id, "background": True}
        begun = client.responses.create(**more)
        equal((begun.status, begun.previous_response_id), ("queued", done.id))
        ended = client.responses.retrieve(begun.id)
        equal((ended.status, ended.output_text, ended.previous_response_id), ("completed", "It was 42.", done.id))
        equal(client.responses.cancel(begun.id).previous_response_id, done.id)
        live = list(client.responses.create(**more, stream=True))
        response = live[-1].response
        equal((response.output_text, response.previous_response_id), ("It was 42.", done.id))
        # As after a connection that was lost behind the third event.
        again = list(client.responses.retrieve(response.id, stream=True, starting_after=live[2].sequence_number))
        equal(again, live[3:], "the events behind the third")
        equal(len(list(client.responses.input_items.list(response.id))), 1, "what was sent")


def test_a_stored_response_is_deleted():
    response = create(asked("add two numbers"))
    client.responses.delete(response.id)
    try:
        client.responses.retrieve(response.id)
        raise AssertionError("it is still there")
    except openai.NotFoundError as error:
        equal(response.id in str(error), True, str(error))


def test_without_a_store_reasoning_is_shown_only_if_asked_for():
    for more in ({}, {"include": ["reasoning.encrypted_content"]}):
        response = create(asked("weather and sum"), tools=TOOLS, store=False, **more)
        shown = [item.encrypted_content for item in response.output if item.type == "reasoning"]
        equal([bool(content) for content in shown], [bool(more)], "encrypted content")


def test_a_loaded_skill_outlives_a_client_call():
    given = asked("load first")
    first = create(given, tools=TOOLS)
    given = [*given, *echoed(first), *results(first, "18 C")]
    second = create(given, tools=TOOLS)
    equal(second.output_text, "Rome has 18 C.")
    given += [*echoed(second), *asked("now add")]
    equal(create(given, tools=TOOLS).output_text, "That is 2.")


def test_a_hidden_turn_is_found_behind_results_of_a_file_search():
    for way in (create, streamed):
        given = asked("search my files")
        first = way(given, store=False)
        equal(first.output_text, "Found.")
        given = [*given, *echoed(first), *asked("what did you load")]
        equal(way(given, store=False).output_text, "It was the adder.")


def test_only_client_tools_pass_through():
    for response in both(asked("only my tool"), tools=TOOLS):
        equal(len(calls(response)), 2)
        given = [*asked("only my tool"), *echoed(response), *results(response)]
        equal(create(given, tools=TOOLS).output_text, "Two cities.")


def test_a_shell_with_a_skill_of_ours_runs_here():
    environment = {"type": "container_auto", "skills": [{"type": "skill_reference", "skill_id": "litellm:adder"}]}
    tools = [{"type": "shell", "environment": environment}]
    for way in (create, streamed):
        given = asked("sum in a shell")
        response = way(given, tools=tools)
        call, output, message = response.output
        equal((call.type, call.status, call.action.commands), ("shell_call", "completed", ["python3 skills/adder/scripts/add.py 2 3"]))
        equal((output.type, output.call_id, output.status), ("shell_call_output", call.call_id, "completed"))
        [ran] = output.output
        equal((ran.stdout, ran.stderr, ran.outcome.type, ran.outcome.exit_code), ("sum=5\n", "", "exit", 0))
        equal((message.type, response.output_text), ("message", "The shell says 5."))
        given += [*echoed(response), *asked("what did the shell say")]
        equal(way(given, tools=tools).output_text, "It said 5.")


def test_files_are_served_and_come_back():
    given = asked("write a file")
    response = create(given)
    status, _, data = raw("GET", f"/knack/v1/responses/{response.id}/files/Note.TXT")
    equal((status, data), (200, b"from the first run"))
    given += [*echoed(response), *asked("read it back")]
    equal(create(given).output_text, "It says what the first run wrote.")


def test_tokens_are_counted_with_the_skills():
    bare = client.responses.input_tokens.count(model="gpt-x", input="say hello", extra_headers={"x-knack-skills": "none"})
    whole = client.responses.input_tokens.count(model="gpt-x", input="say hello")
    equal(whole.input_tokens > bare.input_tokens + 100, True, f"{whole.input_tokens} and {bare.input_tokens}")


def test_errors_keep_status_and_shape():
    try:
        create(asked("too busy"))
        raise AssertionError("no error")
    except openai.RateLimitError as error:
        equal(error.response.headers["retry-after"], "7")
    try:
        create("go on", previous_response_id="resp_of_nobody")
        raise AssertionError("no error")
    except openai.BadRequestError as error:
        equal((error.code, error.param), ("previous_response_not_found", "previous_response_id"))


def test_a_broken_stream_is_an_error_and_no_end():
    try:
        for _ in client.responses.create(**COMMON, input=asked("break off"), stream=True):
            pass
        raise AssertionError("the stream ended as if it were whole")
    except openai.APIError:
        pass


def test_a_model_that_never_stops_is_stopped():
    response = create(asked("never stop"))
    equal((response.status, response.incomplete_details.reason), ("incomplete", "max_messages"))
    no_internals(response.model_dump_json())
    _, end = raw_stream(asked("never stop"))
    equal(end["status"], "incomplete")


if __name__ == "__main__":
    run(tests_of(globals()), f"openai responses {openai.__version__}")
