// A `knack dev` of the example skills: the one that the other suites share has no declared tool.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

export const EXAMPLES = process.env.KNACK_EXAMPLES;
// A start looks for interpreters and warms sandboxes; on a busy machine that takes some seconds.
const START_MS = 300000;

// The address of one, which ends with this process.
export async function serve(folder = EXAMPLES) {
  const work = mkdtempSync(join(tmpdir(), "knack-sdk-"));
  const [port, log] = [join(work, "port"), join(work, "log")];
  const words = ["dev", folder, "--listen", "127.0.0.1:0", "--upstream", "mock", "--registry", join(work, "registry")];
  const out = openSync(log, "w");
  const child = spawn(process.env.KNACK, [...words, "--files-dir", join(work, "files"), "--print-port-file", port], { cwd: work, stdio: ["ignore", out, out] });
  process.once("exit", () => {
    child.kill("SIGKILL");
    rmSync(work, { recursive: true, force: true, maxRetries: 3 });
  });
  const until = Date.now() + START_MS;
  while (!(existsSync(port) && readFileSync(port, "utf8").trim())) {
    if (child.exitCode !== null || Date.now() > until) throw new Error(`knack dev did not start:\n${readFileSync(log, "utf8")}`);
    await pause(100);
  }
  return `http://127.0.0.1:${readFileSync(port, "utf8").trim()}`;
}
