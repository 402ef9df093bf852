// `npx skills add`, the installer that most agents know, unchanged: what it reads from a `knack dev` is what that serves.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { promisify } from "node:util";
import { run } from "./checks.mjs";
import { EXAMPLES, serve } from "./served.mjs";

const CLI = join(dirname(createRequire(import.meta.url).resolve("skills/package.json")), "bin", "cli.mjs");

// Paths and contents of all files below a folder.
function tree(folder) {
  const files = {};
  const walk = (at) => {
    for (const name of readdirSync(at)) {
      const path = join(at, name);
      if (statSync(path).isDirectory()) walk(path);
      else files[relative(folder, path)] = readFileSync(path).toString("base64");
    }
  };
  walk(folder);
  return files;
}

async function install(...words) {
  const home = mkdtempSync(join(tmpdir(), "knack-install-"));
  process.once("exit", () => rmSync(home, { recursive: true, force: true }));
  const environment = { PATH: process.env.PATH, HOME: home, DISABLE_TELEMETRY: "1", NO_PROXY: "127.0.0.1", CI: "1" };
  const asked = [CLI, "add", base, "--agent", "claude-code", "--copy", "--yes", ...words];
  const done = await promisify(execFile)(process.execPath, asked, { cwd: home, env: environment, timeout: 600000 });
  return { home, said: done.stdout + done.stderr };
}

const base = await serve();

await run("skills add", {
  async the_skills_are_installed_as_they_are_served() {
    const { home, said } = await install("--skill", "csv-chart", "code-review");
    const installed = join(home, ".claude", "skills");
    assert.ok(existsSync(installed), said);
    assert.deepEqual(readdirSync(installed).sort(), ["code-review", "csv-chart"], said);
    for (const skill of readdirSync(installed)) assert.deepEqual(tree(join(installed, skill)), tree(join(EXAMPLES, skill)), skill);
  },
  async what_is_offered_is_listed() {
    const { said } = await install("--list");
    for (const skill of readdirSync(EXAMPLES)) assert.ok(said.includes(skill), `${skill} in ${said}`);
  },
});
