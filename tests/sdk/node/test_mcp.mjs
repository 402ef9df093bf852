// MCP through the official TypeScript client, against a `knack dev` of the example skills.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResultSchema } from "@modelcontextprotocol/sdk/types.js";
import { run } from "./checks.mjs";
import { EXAMPLES, serve } from "./served.mjs";

// Does something with a client after its handshake.
async function talk(use, key, at = base) {
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const client = new Client({ name: "knack-test", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(`${at}/mcp`), { requestInit: { headers } }));
  try {
    return await use(client);
  } finally {
    await client.close();
  }
}

const base = await serve();

const WAITING = `---
name: slow
description: Waits. Use when asked to wait.
timeout_ms: 120000
tools:
  - name: wait
    description: Waits.
    command: ['python3', 'wait.py']
    parameters:
      - name: seconds
        description: How long.
        required: true
---
Call wait.
`;
// The longest wait for a run to begin or to end, where all other suites come first; below the seconds that a run waits.
const SOON_MS = 80000;
// The limit of a call: a run has begun by then.
const LIMIT_MS = 10000;
// Of a call that is given up by a signal: the client's own is a minute.
const LONG_MS = 120000;

// Whether the slow tool runs that was started with this argument.
function isRunning(seconds) {
  return readdirSync("/proc").some((name) => {
    try {
      const words = readFileSync(`/proc/${name}/cmdline`, "utf8").split("\0");
      return words.includes("wait.py") && words.includes(seconds);
    } catch {
      return false;
    }
  });
}

async function until(what, isSo) {
  for (const end = Date.now() + SOON_MS; !isSo(); await pause(50)) assert.ok(Date.now() < end, what);
}

await run("mcp for node", {
  async the_server_names_itself_and_lists_its_skills() {
    await talk(async (client) => {
      assert.equal(client.getServerVersion().name, "knack");
      assert.ok(client.getInstructions().includes('<skill name="csv-chart">'), client.getInstructions());
      const tools = new Map((await client.listTools()).tools.map((tool) => [tool.name, tool]));
      for (const name of ["load_skill", "run_code", "text-stats__text_stats"]) assert.ok(tools.has(name), name);
      const stats = tools.get("text-stats__text_stats");
      assert.ok(stats.description.startsWith("Measures a text."), stats.description);
      assert.deepEqual(stats.inputSchema.required, ["text"]);
      assert.equal(tools.get("load_skill").annotations.readOnlyHint, true);
    });
  },
  async a_declared_tool_and_code_run_and_files_come_back() {
    await talk(async (client) => {
      const stats = await client.callTool({ name: "text-stats__text_stats", arguments: { text: "one two three" } });
      assert.deepEqual([stats.isError, JSON.parse(stats.content[0].text).words], [false, 3]);
      const code = "open('a.csv','w').write('q,n\\n')";
      const ran = await client.callTool({ name: "run_code", arguments: { code } });
      assert.deepEqual([ran.isError, ran.content[1].type, ran.content[1].resource.mimeType], [false, "resource", "text/csv"]);
      assert.equal(Buffer.from(ran.content[1].resource.blob, "base64").toString(), "q,n\n");
    });
  },
  async every_file_is_a_resource_whose_digest_is_right_and_skills_have_manifests() {
    await talk(async (client) => {
      const { resources } = await client.listResources();
      assert.ok(resources.length > 10, `${resources.length} resources`);
      for (const resource of resources) {
        const data = readFileSync(join(EXAMPLES, decodeURI(resource.uri.replace("skill://", ""))));
        const digest = `sha256:${createHash("sha256").update(data).digest("hex")}`;
        assert.deepEqual([resource.size, resource._meta["knack.dev/digest"]], [data.length, digest], resource.uri);
        const { contents } = await client.readResource({ uri: resource.uri });
        assert.equal(contents[0].text, data.toString(), resource.uri);
      }
      const passing = ResultSchema.passthrough();
      const { skills } = await client.request({ method: "skills/list", params: {} }, passing);
      assert.ok(skills.some((skill) => skill.frontmatter.name === "csv-chart"), JSON.stringify(skills).slice(0, 500));
      const { skill } = await client.request({ method: "skills/get", params: { uri: "skill://csv-chart/SKILL.md" } }, passing);
      const digests = new Map(resources.map((resource) => [resource.uri, resource._meta["knack.dev/digest"]]));
      for (const file of skill.resources) assert.equal(file.digest, digests.get(file.uri), file.uri);
    });
  },
  async mistakes_are_results_that_a_model_can_read() {
    await talk(async (client) => {
      for (const [name, given, said] of [
        ["text-stats__text_stats", { words: 1 }, "do not match its schema"],
        ["make_coffee", {}, 'No tool "make_coffee".'],
        ["load_skill", { skill: "csv-charts" }, "Closest: csv-chart"],
      ]) {
        const result = await client.callTool({ name, arguments: given });
        assert.ok(result.isError && result.content[0].text.includes(said), JSON.stringify(result));
      }
    });
  },
  async a_call_that_is_given_up_ends_its_run_and_the_next_one_works() {
    const folder = mkdtempSync(join(tmpdir(), "knack-sdk-"));
    process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
    mkdirSync(join(folder, "slow"));
    writeFileSync(join(folder, "slow", "SKILL.md"), WAITING);
    writeFileSync(join(folder, "slow", "wait.py"), "import sys, time\ntime.sleep(float(sys.argv[1]))\nprint('waited')\n");
    await talk(
      async (client) => {
        for (const [seconds, way] of [["101.1", "signal"], ["101.2", "timeout"]]) {
          const controller = new AbortController();
          const limits = way === "signal" ? { signal: controller.signal, timeout: LONG_MS } : { timeout: LIMIT_MS };
          const calling = client.callTool({ name: "slow__wait", arguments: { seconds } }, undefined, limits);
          const ended = assert.rejects(calling, way === "signal" ? /given up/ : /timed out/);
          // One that ends too early is told below.
          ended.catch(() => {});
          if (way === "signal") {
            await until("the tool runs", () => isRunning(seconds));
            controller.abort("given up");
          }
          await ended;
          await until("the tool has ended", () => !isRunning(seconds));
          // The end is noted after the process is gone.
          const newest = async () => JSON.parse((await client.callTool({ name: "omniroute_skills_executions", arguments: { limit: 1 } })).content[0].text).data[0];
          let last = await newest();
          for (const end = Date.now() + SOON_MS; (last.status !== "error" || last.input.seconds !== seconds) && Date.now() < end; last = await newest()) await pause(50);
          assert.deepEqual([last.status, last.input], ["error", { seconds }], JSON.stringify(last));
          assert.ok(last.errorMessage.includes("cancelled the request") && last.durationMs < SOON_MS, JSON.stringify(last));
          const after = await client.callTool({ name: "slow__wait", arguments: { seconds: "0" } });
          assert.deepEqual([after.isError, after.content[0].text.trim()], [false, "waited"]);
        }
      },
      "key-c",
      await serve(folder),
    );
  },
  async a_caller_with_a_credential_manages_its_skills() {
    const managing = (tools) => tools.filter((tool) => tool.name.startsWith("omniroute_skills_")).length;
    assert.equal(await talk(async (client) => managing((await client.listTools()).tools)), 0);
    await talk(async (client) => {
      assert.equal(managing((await client.listTools()).tools), 4);
      const ask = async (word, given) => {
        const result = await client.callTool({ name: `omniroute_skills_${word}`, arguments: given });
        assert.equal(result.isError, false, JSON.stringify(result));
        return JSON.parse(result.content[0].text);
      };
      const listed = await ask("list", { name: "text-stats" });
      assert.deepEqual(listed.data.map((row) => row.name), ["text-stats"]);
      const ran = await ask("execute", { skillName: "text-stats", input: { text: "one two three" } });
      assert.equal(ran.execution.output.words, 3);
      const past = await ask("executions", { status: "success", limit: 1 });
      assert.deepEqual(past.data, [ran.execution]);
      const handlerCode = "---\nname: word\ndescription: Says a word.\n---\nThe word is plover.\n";
      const body = JSON.stringify({ name: "word", description: "Says a word.", schema: {}, handlerCode });
      const headers = { authorization: "Bearer key-m", "content-type": "application/json" };
      const { id } = await (await fetch(`${base}/api/skills/install`, { method: "POST", headers, body })).json();
      assert.deepEqual(await ask("enable", { skillId: id, enabled: false }), { success: true, enabled: false, mode: "off" });
      assert.deepEqual((await ask("list", { mode: "off" })).data.map((row) => row.id), [id]);
    }, "key-m");
  },
});
