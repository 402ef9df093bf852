// The official JavaScript SDK of OpenAI: Chat Completions and Responses.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { BASE, KEY, noInternals, run } from "./checks.mjs";

const client = new OpenAI({ baseURL: `${BASE}/v1`, apiKey: KEY, maxRetries: 0 });
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const system = { role: "system", content: "Be brief." };

function asked(text) {
  return { model: "gpt-x", messages: [system, { role: "user", content: text }] };
}

await run("openai for node", {
  async chat_whole() {
    const answer = await client.chat.completions.create(asked("add two numbers"));
    assert.equal(answer.choices[0].message.content, "Let me compute.\n\nThe sum is 5.");
    assert.equal(answer.choices[0].finish_reason, "stop");
    assert.equal(answer.usage.total_tokens, 660);
    noInternals(answer);
  },
  async chat_stream() {
    const stream = client.chat.completions.stream({ ...asked("add two numbers"), stream_options: { include_usage: true } });
    const ids = new Set();
    for await (const chunk of stream) {
      ids.add(chunk.id);
      noInternals(chunk);
    }
    const answer = await stream.finalChatCompletion();
    assert.equal(ids.size, 1);
    assert.equal(answer.choices[0].message.content, "Let me compute.\n\nThe sum is 5.");
    assert.equal(answer.usage.total_tokens, 660);
  },
  async chat_tool_of_the_app() {
    const tools = [{ type: "function", function: { name: "get_weather", strict: true, parameters } }];
    const given = asked("weather and sum");
    const first = await client.chat.completions.create({ ...given, tools });
    const { message } = first.choices[0];
    assert.deepEqual(message.tool_calls.map((call) => call.function.name), ["get_weather"]);
    given.messages.push(message, { role: "tool", tool_call_id: message.tool_calls[0].id, content: "-3 C" });
    const second = await client.chat.completions.create({ ...given, tools });
    assert.equal(second.choices[0].message.content, "Oslo has -3 C and the sum is 42.");
  },
  async responses_whole() {
    const answer = await client.responses.create({ model: "gpt-x", instructions: "Be brief.", input: "add two numbers" });
    assert.equal(answer.output_text, "Let me compute.The sum is 5.");
    assert.equal(answer.usage.total_tokens, 660);
    noInternals(answer);
  },
  async responses_behind_a_file_search() {
    const given = { model: "gpt-x", instructions: "Be brief.", store: false, input: [{ role: "user", content: "search my files" }] };
    const first = await client.responses.create(given);
    assert.equal(first.output_text, "Found.");
    given.input.push(...first.output, { role: "user", content: "what did you load" });
    assert.equal((await client.responses.create(given)).output_text, "It was the adder.");
  },
  async responses_stream() {
    const stream = client.responses.stream({ model: "gpt-x", instructions: "Be brief.", input: "add two numbers" });
    let number = 0;
    for await (const event of stream) {
      assert.equal(event.sequence_number, number++);
      noInternals(event);
    }
    const answer = await stream.finalResponse();
    assert.equal(answer.output_text, "Let me compute.The sum is 5.");
  },
  async responses_tool_of_the_app() {
    const tools = [{ type: "function", name: "get_weather", strict: true, parameters }];
    const input = [{ role: "user", content: "weather and sum" }];
    const given = { model: "gpt-x", instructions: "Be brief.", tools, store: false, include: ["reasoning.encrypted_content"] };
    const first = await client.responses.create({ ...given, input });
    const call = first.output.find((item) => item.type === "function_call");
    assert.equal(call.name, "get_weather");
    input.push(...first.output, { type: "function_call_output", call_id: call.call_id, output: "-3 C" });
    const second = await client.responses.create({ ...given, input });
    assert.equal(second.output_text, "Oslo has -3 C and the sum is 42.");
  },
  async errors_keep_their_class() {
    await assert.rejects(client.responses.create({ model: "gpt-x", input: "too busy" }), OpenAI.RateLimitError);
    await assert.rejects(client.chat.completions.create(asked("too busy")), OpenAI.RateLimitError);
  },
});
