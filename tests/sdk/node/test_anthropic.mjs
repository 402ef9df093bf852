// The official JavaScript SDK of Anthropic.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { BASE, KEY, noInternals, run } from "./checks.mjs";

const client = new Anthropic({ baseURL: BASE, apiKey: null, authToken: KEY, maxRetries: 0 });

function asked(text) {
  return { model: "claude-x", max_tokens: 2000, system: "Be brief.", messages: [{ role: "user", content: text }] };
}

function textOf(message) {
  return message.content.flatMap((block) => (block.type === "text" ? [block.text] : []));
}

await run("anthropic for node", {
  async whole() {
    const message = await client.messages.create(asked("add two numbers"));
    assert.deepEqual(textOf(message), ["Let me compute.", "The sum is 5."]);
    assert.equal(message.stop_reason, "end_turn");
    assert.deepEqual([message.usage.input_tokens, message.usage.output_tokens], [600, 60]);
    noInternals(message);
  },
  async stream() {
    const stream = client.messages.stream(asked("add two numbers"));
    for await (const event of stream) noInternals(event);
    const message = await stream.finalMessage();
    assert.deepEqual(textOf(message), ["Let me compute.", "The sum is 5."]);
    assert.equal(message.usage.output_tokens, 60);
  },
  async tool_of_the_app() {
    const tools = [{ name: "get_weather", input_schema: { type: "object", properties: { city: { type: "string" } } } }];
    const given = { ...asked("weather and sum"), tools };
    const first = await client.messages.stream(given).finalMessage();
    const calls = first.content.filter((block) => block.type === "tool_use");
    assert.deepEqual(calls.map((call) => [call.name, call.input]), [["get_weather", { city: "Oslo" }]]);
    const result = { type: "tool_result", tool_use_id: calls[0].id, content: "-3 C" };
    given.messages.push({ role: "assistant", content: first.content }, { role: "user", content: [result] });
    const second = await client.messages.create(given);
    assert.deepEqual(textOf(second), ["Oslo has -3 C and the sum is 42."]);
  },
  async tool_runner() {
    const weather = betaTool({
      name: "get_weather",
      description: "Weather of a city.",
      inputSchema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
      run: () => "-3 C",
    });
    for (const stream of [false, true]) {
      const message = await client.beta.messages.toolRunner({ ...asked("weather and sum"), tools: [weather], stream }).runUntilDone();
      assert.deepEqual(textOf(message), ["Oslo has -3 C and the sum is 42."]);
    }
  },
  async thread() {
    const { messages, ...given } = asked("weather and sum");
    const tools = [{ name: "get_weather", input_schema: { type: "object", properties: { city: { type: "string" } } } }];
    const thread = client.beta.messages.thread({ ...given, tools });
    const first = await thread.send(messages[0]);
    const call = first.content.find((block) => block.type === "tool_use");
    const result = { type: "tool_result", tool_use_id: call.id, content: "-3 C" };
    assert.deepEqual(textOf(await thread.send({ role: "user", content: [result] })), ["Oslo has -3 C and the sum is 42."]);
    assert.deepEqual(textOf(await thread.send({ role: "user", content: "which sum was it" })), ["It was 42."]);
  },
  async errors_keep_their_class() {
    await assert.rejects(client.messages.create(asked("too busy")), Anthropic.RateLimitError);
  },
});
