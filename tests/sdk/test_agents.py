"""The OpenAI Agents SDK with a tool of the app beside the skills.

It runs the app's tool itself and keeps the conversation in its own way, so what it sends back is what matters.
"""

import asyncio

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, RunConfig, Runner, function_tool
from checks import KEY, PORT, equal, no_internals, run, tests_of
from openai import AsyncOpenAI

BASE = f"http://127.0.0.1:{PORT}"
ANSWER = "Oslo has -3 C and the sum is 42."


def agents(ran):
    """One agent for each model class of the SDK; `ran` gets the cities that its tool was asked for."""

    @function_tool
    def get_weather(city: str) -> str:
        """Weather of a city."""
        ran.append(city)
        return "-3 C"

    # Used within one event loop.
    client = AsyncOpenAI(base_url=f"{BASE}/v1", api_key=KEY, max_retries=0)
    # The conversation is the app's own: nothing is stored upstream, reasoning comes back sealed.
    sealed = ModelSettings(store=False, response_include=["reasoning.encrypted_content"])
    for model, settings in [
        (OpenAIResponsesModel(model="gpt-x", openai_client=client), ModelSettings()),
        (OpenAIResponsesModel(model="gpt-x", openai_client=client), sealed),
        (OpenAIChatCompletionsModel(model="gpt-x", openai_client=client), ModelSettings()),
    ]:
        yield Agent(name="app", instructions="Be brief.", model=model, model_settings=settings, tools=[get_weather])


async def agent_run(agent, given, stream):
    config = RunConfig(tracing_disabled=True)
    if not stream:
        return await Runner.run(agent, given, run_config=config)
    result = Runner.run_streamed(agent, given, run_config=config)
    async for _ in result.stream_events():
        pass
    return result


async def agents_with_tools(stream):
    ran = []
    for agent in agents(ran):
        first = await agent_run(agent, "weather and sum", stream)
        equal(first.final_output, ANSWER)
        kept = first.to_input_list()
        no_internals(str(kept))
        again = [*kept, {"role": "user", "content": "which sum was it"}]
        equal((await agent_run(agent, again, stream)).final_output, "It was 42.")
    equal(ran, ["Oslo"] * 3, "runs of the app's tool")


def test_an_agent_uses_its_own_tool_beside_a_skill():
    for stream in (False, True):
        asyncio.run(agents_with_tools(stream))


if __name__ == "__main__":
    run(tests_of(globals()), "openai agents")
