"""LangChain in every format: what it keeps of an answer is less than came, and it must still find its hidden turns."""

from checks import KEY, PORT, equal, no_internals, run, tests_of
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI

BASE = f"http://127.0.0.1:{PORT}"
ANSWER = "Oslo has -3 C and the sum is 42."


@tool
def get_weather(city: str) -> str:
    """Weather of a city."""
    return "-3 C"


def models():
    openai = {"model": "gpt-x", "base_url": f"{BASE}/v1", "api_key": KEY, "max_retries": 0}
    return [
        ChatOpenAI(**openai),
        ChatOpenAI(**openai, use_responses_api=True),
        ChatAnthropic(model="claude-x", base_url=BASE, api_key=KEY, max_retries=0, max_tokens=2000),
        ChatGoogleGenerativeAI(model="gemini-x", base_url=BASE, api_key=KEY, max_retries=0),
    ]


def invoke(model, messages, stream):
    if not stream:
        return model.invoke(messages)
    whole = None
    for piece in model.stream(messages):
        whole = piece if whole is None else whole + piece
    return whole


def test_langchain_gets_the_answer_of_a_skill():
    for model in models():
        for stream in (False, True):
            answer = invoke(model, [SystemMessage("Be brief."), HumanMessage("add two numbers")], stream)
            text = answer.text if isinstance(answer.text, str) else answer.text()
            equal(text.replace("\n", ""), "Let me compute.The sum is 5.", type(model).__name__)
            equal(answer.tool_calls, [])
            no_internals(answer.model_dump_json())


def test_langchain_keeps_a_mixed_turn():
    for model in models():
        for stream in (False, True):
            bound = model.bind_tools([get_weather])
            messages = [SystemMessage("Be brief."), HumanMessage("weather and sum")]
            first = invoke(bound, messages, stream)
            equal([(call["name"], call["args"]) for call in first.tool_calls], [("get_weather", {"city": "Oslo"})])
            messages += [first, ToolMessage("-3 C", tool_call_id=first.tool_calls[0]["id"])]
            answer = invoke(bound, messages, stream)
            text = answer.text if isinstance(answer.text, str) else answer.text()
            equal(text, ANSWER, f"{type(model).__name__}, stream {stream}")


if __name__ == "__main__":
    run(tests_of(globals()), "LangChain")
