"""Gemini through the official SDK, and as raw bytes."""

import json

from checks import KEY, PORT, equal, no_internals, raw, run, tests_of
from google import genai
from google.genai import errors, types

client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=f"http://127.0.0.1:{PORT}"))
beta = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=f"http://127.0.0.1:{PORT}", api_version="v1beta"))
WEATHER = types.Tool(function_declarations=[types.FunctionDeclaration(name="get_weather", description="Weather of a city.", parameters_json_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})])
# The SDK would run a callable on its own; a declaration is handed back.
GOOGLE = {"authorization": "", "x-goog-api-key": KEY}


def config(**more):
    return types.GenerateContentConfig(system_instruction="Be brief.", **more)


def user(text):
    return types.Content(role="user", parts=[types.Part.from_text(text=text)])


def ask(contents, way=client, **more):
    return way.models.generate_content(model="gemini-x", contents=contents, config=config(**more))


def stream(contents, **more):
    return list(client.models.generate_content_stream(model="gemini-x", contents=contents, config=config(**more)))


def text_of(chunks):
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
    return "".join(part.text or "" for part in parts if not part.thought)


def calls_of(contents):
    return [part.function_call for content in contents for part in content.parts if part.function_call]


def results(calls, text="-3 C"):
    return types.Content(role="user", parts=[types.Part.from_function_response(name=call.name, response={"result": text}) for call in calls])


def raw_stream(text, **more):
    """The stream as bytes: frames of one line, one end in the last, one id, nothing of ours."""
    body = {"contents": [{"role": "user", "parts": [{"text": text}]}], "systemInstruction": {"parts": [{"text": "Be brief."}]}, **more}
    status, headers, data = raw("POST", "/v1beta/models/gemini-x:streamGenerateContent?alt=sse", body, GOOGLE)
    equal(status, 200, data)
    equal(headers["content-type"].split(";")[0], "text/event-stream")
    no_internals(data)
    lines = [line for line in data.decode().split("\r\n") if line]
    equal([line for line in lines if not line.startswith("data: {")], [], "lines that the SDK cannot read")
    frames = [json.loads(line[len("data: "):]) for line in lines]
    ends = [frame["candidates"][0].get("finishReason") for frame in frames]
    equal([end for end in ends if end], [ends[-1]], "finish reasons")
    equal(len({frame["responseId"] for frame in frames}), 1, "ids")
    return frames, ends[-1]


def test_an_answer_without_skills():
    for way in (client, beta):
        answer = ask("say hello", way)
        equal(answer.text, "Grüße 🎈 from the model.")
        equal((answer.usage_metadata.prompt_token_count, answer.usage_metadata.total_token_count), (90, 99))
        equal(answer.candidates[0].finish_reason, types.FinishReason.STOP)
    chunks = stream("say hello")
    equal(text_of(chunks), "Grüße 🎈 from the model.")
    equal(chunks[-1].usage_metadata.total_token_count, 99)
    raw_stream("say hello")


def test_a_skill_runs_unseen():
    answer = ask("add two numbers")
    equal(answer.text, "Let me compute.\n\nThe sum is 5.")
    equal((answer.usage_metadata.prompt_token_count, answer.usage_metadata.total_token_count), (600, 660))
    no_internals(answer.model_dump_json())
    chunks = stream("add two numbers")
    equal(text_of(chunks), "Let me compute.\n\nThe sum is 5.")
    equal((len({chunk.response_id for chunk in chunks}), chunks[-1].usage_metadata.total_token_count), (1, 660))
    equal(raw_stream("add two numbers")[1], "STOP")


def test_mixed_tools_and_a_follow_up():
    contents = [user("weather and sum")]
    first = ask(contents, tools=[WEATHER])
    equal([(call.name, call.args) for call in first.function_calls], [("get_weather", {"city": "Oslo"})])
    equal([bool(part.thought_signature) for part in first.candidates[0].content.parts if part.function_call], [True], "the signature moved")
    no_internals(first.model_dump_json())
    contents += [first.candidates[0].content, results(first.function_calls)]
    second = ask(contents, tools=[WEATHER])
    equal(second.text, "Oslo has -3 C and the sum is 42.")
    contents += [second.candidates[0].content, user("which sum was it")]
    equal(ask(contents, tools=[WEATHER]).text, "It was 42.")


def test_mixed_tools_in_a_stream():
    contents = [user("weather and sum")]
    # One content for each frame, as the SDK's own chat keeps them.
    said = [chunk.candidates[0].content for chunk in stream(contents, tools=[WEATHER])]
    calls = calls_of(said)
    equal([call.name for call in calls], ["get_weather"])
    chunks = stream([*contents, *said, results(calls)], tools=[WEATHER])
    equal(text_of(chunks), "Oslo has -3 C and the sum is 42.")


def test_a_chat_keeps_its_history():
    for send in ("send_message", "send_message_stream"):
        chat = client.chats.create(model="gemini-x", config=config(tools=[WEATHER]))

        def say(message):
            answer = getattr(chat, send)(message)
            return [answer] if send == "send_message" else list(answer)

        first = say("weather and sum")
        calls = calls_of([chunk.candidates[0].content for chunk in first])
        parts = results(calls).parts
        equal(text_of(say(parts)), "Oslo has -3 C and the sum is 42.")
        equal(text_of(say("which sum was it")), "It was 42.")
        # The SDK drops an answer from the history that it takes for broken.
        equal(len(chat.get_history(curated=True)), len(chat.get_history()), send)


def test_a_callable_is_called_by_the_sdk_beside_our_skill():
    asked_for = []

    def get_weather(city: str) -> str:
        """Weather of a city."""
        asked_for.append(city)
        return "-3 C"

    answer = ask("weather and sum", tools=[get_weather])
    equal((answer.text, asked_for), ("Oslo has -3 C and the sum is 42.", ["Oslo"]))


def test_a_loaded_skill_outlives_a_client_call():
    contents = [user("load first")]
    first = ask(contents, tools=[WEATHER])
    contents += [first.candidates[0].content, results(first.function_calls, "18 C")]
    second = ask(contents, tools=[WEATHER])
    equal(second.text, "Rome has 18 C.")
    contents += [second.candidates[0].content, user("now add")]
    equal(ask(contents, tools=[WEATHER]).text, "That is 2.")


def test_only_client_tools_pass_through():
    contents = [user("only my tool")]
    first = ask(contents, tools=[WEATHER])
    equal([call.args["city"] for call in first.function_calls], ["Oslo", "Rome"])
    contents += [first.candidates[0].content, results(first.function_calls)]
    equal(ask(contents, tools=[WEATHER]).text, "Two cities.")


def test_files_are_served_and_come_back():
    contents = [user("write a file")]
    answer = ask(contents)
    status, _, data = raw("GET", f"/knack/v1/responses/{answer.response_id}/files/Note.TXT", headers=GOOGLE)
    equal((status, data), (200, b"from the first run"))
    contents += [answer.candidates[0].content, user("read it back")]
    equal(ask(contents).text, "It says what the first run wrote.")


def test_attached_bytes_reach_a_run():
    # The SDK writes them in the alphabet for URLs.
    part = types.Part.from_bytes(data=b"\xfb\xff\xfe", mime_type="application/octet-stream")
    answer = ask([types.Content(role="user", parts=[part, types.Part.from_text(text="read my bytes")])])
    equal(answer.text, "They are three.")


def test_a_hidden_turn_is_found_behind_parts_of_built_in_tools():
    for send in ("send_message", "send_message_stream"):
        chat = client.chats.create(model="gemini-x", config=config())

        def say(message):
            answer = getattr(chat, send)(message)
            return text_of([answer] if send == "send_message" else list(answer))

        equal(say("search the web"), "Found.", send)
        equal(say("what did you load"), "It was the adder.", send)


def test_code_execution_runs_here():
    tools = [types.Tool(code_execution=types.ToolCodeExecution())]
    for way in (client, beta):
        contents = [user("compute in code")]
        answer = ask(contents, way, tools=tools)
        said, code, result, picture, last = answer.candidates[0].content.parts
        equal((said.text, last.text), ("I compute.", "\n\nIt is 42."))
        equal((code.executable_code.language, code.executable_code.code.splitlines()[1]), (types.Language.PYTHON, "print(6 * 7)"))
        equal((result.code_execution_result.outcome, result.code_execution_result.output), (types.Outcome.OUTCOME_OK, "42\n"))
        equal(code.executable_code.id, result.code_execution_result.id)
        equal((picture.inline_data.mime_type, picture.inline_data.data), ("image/png", b"picture"))
        equal((answer.usage_metadata.prompt_token_count, answer.usage_metadata.total_token_count), (300, 330))
        contents += [answer.candidates[0].content, user("what did the code say")]
        equal(ask(contents, way, tools=tools).text, "It said 42.")
    # A chat keeps one content for each frame, and sends them all back.
    chat = client.chats.create(model="gemini-x", config=config(tools=tools))
    parts = [part for chunk in chat.send_message_stream("compute in code") for part in chunk.candidates[0].content.parts]
    equal([part.code_execution_result.output for part in parts if part.code_execution_result], ["42\n"])
    equal("".join(part.text or "" for part in parts), "I compute.\n\nIt is 42.")
    equal("".join(chunk.text for chunk in chat.send_message_stream("what did the code say")), "It said 42.")
    raw_stream("compute in code", tools=[{"codeExecution": {}}])


def test_tokens_are_counted_with_the_skills():
    whole = client.models.count_tokens(model="gemini-x", contents="say hello")
    equal(whole.total_tokens > 100, True, f"{whole.total_tokens}")


def test_a_stream_without_events_is_an_array():
    body = {"contents": [{"role": "user", "parts": [{"text": "add two numbers"}]}], "systemInstruction": {"parts": [{"text": "Be brief."}]}}
    status, headers, data = raw("POST", "/v1/models/gemini-x:streamGenerateContent", body, GOOGLE)
    equal((status, headers["content-type"]), (200, "application/json"))
    frames = json.loads(data)
    texts = [part["text"] for frame in frames for part in frame["candidates"][0]["content"]["parts"]]
    equal("".join(texts), "Let me compute.\n\nThe sum is 5.")


def test_errors_keep_status_and_shape():
    try:
        ask("too busy")
        raise AssertionError("no error")
    except errors.ClientError as error:
        equal((error.code, error.status, error.message), (429, "RESOURCE_EXHAUSTED", "Slow down."))


def test_a_broken_stream_is_an_error_and_no_end():
    try:
        stream("break off")
        raise AssertionError("the stream ended as if it were whole")
    except errors.ServerError as error:
        equal(error.code, 502)


def test_a_model_that_never_stops_is_stopped():
    answer = ask("never stop")
    equal(answer.candidates[0].finish_reason, types.FinishReason.TOO_MANY_TOOL_CALLS)
    no_internals(answer.model_dump_json())
    equal(raw_stream("never stop")[1], "TOO_MANY_TOOL_CALLS")


if __name__ == "__main__":
    run(tests_of(globals()), f"google-genai {genai.__version__}")
