// Anthropic's Files and Skills APIs through the official JavaScript SDK: general and beta shapes, and runs that read and write files.
import assert from "node:assert/strict";
import Anthropic, { toFile } from "@anthropic-ai/sdk";
import { BASE, KEY, all, run } from "./checks.mjs";

const client = new Anthropic({ baseURL: BASE, apiKey: KEY, maxRetries: 0, timeout: 300000 });
const stranger = new Anthropic({ baseURL: BASE, apiKey: "another-key", maxRetries: 0, timeout: 300000 });

async function textOf(response) {
  return (await response).text();
}

function ask(text, blocks = [], more = {}) {
  const tools = [{ type: "code_execution_20250825", name: "code_execution" }];
  const messages = [{ role: "user", content: [{ type: "text", text }, ...blocks] }];
  return client.beta.messages.create({ model: "claude-x", max_tokens: 500, tools, messages, ...more });
}

function said(message) {
  return message.content.filter((block) => block.type === "text").at(-1).text;
}

async function a_life_of_files(files) {
  const made = [];
  for (let n = 0; n < 5; n += 1) {
    made.push(await files.upload({ file: await toFile(Buffer.from("a,b\n"), `${n}.csv`, { type: "text/csv" }) }));
  }
  const file = await files.retrieveMetadata(made[0].id);
  assert.deepEqual([file.type, file.filename, file.mime_type, file.size_bytes], ["file", "0.csv", "text/csv", 4]);
  assert.deepEqual([file.created_at, file.downloadable], [made[0].created_at, true]);
  assert.equal(await textOf(files.download(file.id)), "a,b\n");
  const ours = new Set(made.map((one) => one.id));
  const listed = (await all(files.list({ limit: 2 }))).map((one) => one.id).filter((id) => ours.has(id));
  assert.deepEqual(listed, made.map((one) => one.id).reverse(), "over three pages");
  await assert.rejects(stranger.files.retrieveMetadata(file.id), Anthropic.NotFoundError);
  assert.deepEqual(await all(stranger.files.list()), []);
  for (const one of made) assert.equal((await files.delete(one.id)).type, "file_deleted");
  await assert.rejects(files.download(file.id), (error) => {
    assert.ok(error instanceof Anthropic.NotFoundError, String(error));
    assert.equal(error.error.error.type, "not_found_error");
    return true;
  });
}

async function folder(name, text) {
  const document = `---\nname: ${name}\ndescription: Says the word. Use when somebody asks for it.\n---\n${text}\n`;
  return [await toFile(Buffer.from(document), `${name}/SKILL.md`), await toFile(Buffer.from([0, 255]), `${name}/data/all.bin`)];
}

await run("anthropic files for node", {
  async skills_are_created_listed_and_deleted() {
    const made = [];
    for (let n = 0; n < 3; n += 1) made.push(await client.skills.create({ files: await folder(`node-ant-${n}`, "The word is plover.") }));
    assert.deepEqual([made[0].type, made[0].display_name, made[0].source.type], ["skill", "node-ant-0", "custom"]);
    const second = await client.skills.versions.create(made[0].id, { files: await folder("node-ant-0", "The word is avocet.") });
    assert.deepEqual([second.type, second.skill_id], ["skill_version", made[0].id]);
    const ids = made.map((skill) => skill.id);
    const listed = (await all(client.skills.list({ limit: 2 }))).map((skill) => skill.id).filter((id) => ids.includes(id));
    assert.deepEqual(listed, [...ids].reverse(), "over two pages");
    assert.deepEqual(await all(stranger.skills.list()), []);
    await assert.rejects(stranger.skills.delete(ids[0]), Anthropic.NotFoundError);
    for (const id of ids) assert.equal((await client.skills.delete(id)).type, "skill_deleted");
    await assert.rejects(client.skills.retrieve(ids[0]), Anthropic.NotFoundError);
  },
  async a_file_is_uploaded_listed_read_and_deleted() {
    await a_life_of_files(client.files);
  },
  async the_same_in_the_beta_namespace() {
    await a_life_of_files(client.beta.files);
  },
  async a_run_reads_an_upload_and_what_it_wrote_is_downloaded_and_carried_on() {
    const upload = await client.beta.files.upload({ file: await toFile(Buffer.from("one"), "in.txt") });
    const block = { type: "container_upload", file_id: upload.id };
    const first = await ask("write from my upload", [block]);
    assert.equal(said(first), "It is written.");
    const result = first.content.find((one) => one.type === "bash_code_execution_tool_result");
    const written = result.content.content[0].file_id;
    assert.equal(await textOf(client.beta.files.download(written)), "one and two");
    assert.equal((await client.beta.files.retrieveMetadata(written)).filename, "out.txt");
    const listed = await all(client.beta.files.list());
    assert.ok(listed.some((file) => file.id === written));
    const second = await ask("read what you wrote", [], { container: first.container.id });
    assert.deepEqual([said(second), second.container.id], ["It says one and two.", first.container.id]);
    assert.equal((await client.beta.files.delete(written)).type, "file_deleted");
    await client.beta.files.delete(upload.id);
    await assert.rejects(ask("write from my upload", [block]), Anthropic.NotFoundError);
  },
});
