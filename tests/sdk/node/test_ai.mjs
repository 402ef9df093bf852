// The Vercel AI SDK over all four formats: it runs the app's tool itself, and sees nothing of ours.
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";
import { BASE, KEY, noInternals, run } from "./checks.mjs";

const openai = createOpenAI({ baseURL: `${BASE}/v1`, apiKey: KEY });
const models = {
  chat: openai.chat("gpt-x"),
  responses: openai.responses("gpt-x"),
  messages: createAnthropic({ baseURL: `${BASE}/v1`, authToken: KEY })("claude-x"),
  gemini: createGoogleGenerativeAI({ baseURL: `${BASE}/v1beta`, apiKey: KEY })("gemini-x"),
};
const tests = {};

for (const [format, model] of Object.entries(models)) {
  const common = { model, system: "Be brief.", maxRetries: 0, maxOutputTokens: 2000 };
  tests[`${format}_whole`] = async () => {
    const answer = await generateText({ ...common, prompt: "add two numbers" });
    assert.match(answer.text, /The sum is 5\.$/);
    assert.equal(answer.finishReason, "stop");
    assert.equal(answer.usage.inputTokens, 600);
    noInternals(answer.response);
  };
  tests[`${format}_stream`] = async () => {
    const answer = streamText({ ...common, prompt: "add two numbers" });
    let text = "";
    for await (const piece of answer.textStream) text += piece;
    assert.match(text, /^Let me compute\.\s*The sum is 5\.$/);
  };
  tests[`${format}_tool_of_the_app`] = async () => {
    let runs = 0;
    const get_weather = tool({
      description: "Weather of a city.",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => `${(runs += 1, city)}: -3 C`,
    });
    const answer = await generateText({ ...common, prompt: "weather and sum", tools: { get_weather }, stopWhen: isStepCount(3) });
    assert.equal(runs, 1);
    assert.match(answer.text, /Oslo has -3 C and the sum is 42\.$/);
    // The next turn, as an application keeps its messages: the hidden run is in it, and nothing runs again.
    const messages = [
      { role: "user", content: "weather and sum" },
      ...answer.responseMessages,
      { role: "user", content: "which sum was it" },
    ];
    const next = await generateText({ ...common, messages, tools: { get_weather } });
    assert.equal(next.text, "It was 42.");
    assert.equal(runs, 1);
    noInternals(next.response);
  };
}

await run("Vercel AI SDK", tests);
