// The official JavaScript SDK of Google.
import assert from "node:assert/strict";
import { ApiError, GoogleGenAI } from "@google/genai";
import { BASE, KEY, noInternals, run } from "./checks.mjs";

const client = new GoogleGenAI({ apiKey: KEY, httpOptions: { baseUrl: BASE } });
const weather = { name: "get_weather", parametersJsonSchema: { type: "object", properties: { city: { type: "string" } } } };

function asked(contents, tools) {
  return { model: "gemini-x", contents, config: { systemInstruction: "Be brief.", ...(tools && { tools }) } };
}

await run("google-genai for node", {
  async whole() {
    const answer = await client.models.generateContent(asked("add two numbers"));
    assert.equal(answer.text, "Let me compute.\n\nThe sum is 5.");
    assert.equal(answer.usageMetadata.totalTokenCount, 660);
    assert.equal(answer.candidates[0].finishReason, "STOP");
    noInternals(answer);
  },
  async stream() {
    let text = "";
    const ids = new Set();
    for await (const chunk of await client.models.generateContentStream(asked("add two numbers"))) {
      text += chunk.text ?? "";
      ids.add(chunk.responseId);
      noInternals(chunk);
    }
    assert.deepEqual([text, ids.size], ["Let me compute.\n\nThe sum is 5.", 1]);
  },
  async tool_of_the_app() {
    const tools = [{ functionDeclarations: [weather] }];
    const contents = [{ role: "user", parts: [{ text: "weather and sum" }] }];
    const first = await client.models.generateContent(asked(contents, tools));
    assert.deepEqual(first.functionCalls.map((call) => call.name), ["get_weather"]);
    const { id, name } = first.functionCalls[0];
    contents.push(first.candidates[0].content, { role: "user", parts: [{ functionResponse: { id, name, response: { result: "-3 C" } } }] });
    const second = await client.models.generateContent(asked(contents, tools));
    assert.equal(second.text, "Oslo has -3 C and the sum is 42.");
  },
  async a_chat_remembers_the_hidden_run() {
    const chat = client.chats.create({ model: "gemini-x", config: { systemInstruction: "Be brief." } });
    assert.equal((await chat.sendMessage({ message: "write a file" })).text, "The note is written.");
    assert.equal((await chat.sendMessage({ message: "read it back" })).text, "It says what the first run wrote.");
  },
  async a_chat_remembers_behind_parts_of_built_in_tools() {
    const chat = client.chats.create({ model: "gemini-x", config: { systemInstruction: "Be brief." } });
    assert.equal((await chat.sendMessage({ message: "search the web" })).text, "Found.");
    assert.equal((await chat.sendMessage({ message: "what did you load" })).text, "It was the adder.");
  },
  async errors_keep_their_status() {
    await assert.rejects(client.models.generateContent(asked("too busy")), (error) => error instanceof ApiError && error.status === 429);
  },
});
