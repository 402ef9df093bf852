// What the tests of the JavaScript SDKs share: a runner without a framework, and the words that may not reach a client.
import assert from "node:assert/strict";

export const KEY = "test-key";
export const BASE = `http://127.0.0.1:${process.env.KNACK_PORT}`;
const INTERNAL = ["load_skill", "run_code", "run_skill_tool", "skills/adder", "available_skills", "# Skills", "x-mock"];

/// Fails if anything of the skills is in a value.
export function noInternals(value) {
  const text = JSON.stringify(value);
  assert.deepEqual(INTERNAL.filter((word) => text.includes(word)), [], text.slice(0, 2000));
}

/// Everything of a list that comes in pages.
export async function all(pages) {
  const items = [];
  for await (const item of pages) items.push(item);
  return items;
}

/// Runs every test, prints one line each, ends with `N passed, N failed`.
export async function run(label, tests) {
  let failed = 0;
  for (const [name, test] of Object.entries(tests)) {
    try {
      await test();
      console.log(`ok   ${label} ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL ${label} ${name}\n${error.stack}`);
    }
  }
  console.log(`${label}: ${Object.keys(tests).length - failed} passed, ${failed} failed`);
  // Open keep-alive sockets would hold the process.
  process.exit(failed ? 1 : 0);
}
