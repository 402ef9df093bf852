// OpenAI's Files, containers and Skills through the official JavaScript SDK: uploads, runs that read and write them, a container over two requests.
import assert from "node:assert/strict";
import OpenAI, { toFile } from "openai";
import { BASE, KEY, all, run } from "./checks.mjs";

const client = new OpenAI({ baseURL: `${BASE}/v1`, apiKey: KEY, maxRetries: 0, timeout: 300000 });
// The other credential that the model of these tests takes from nobody: it lists and uploads, and asks no model.
const stranger = new OpenAI({ baseURL: `${BASE}/v1`, apiKey: "another-key", maxRetries: 0, timeout: 300000 });

async function upload(name, text, more = {}) {
  return client.files.create({ file: await toFile(Buffer.from(text), name), purpose: "user_data", ...more });
}

async function textOf(response) {
  return (await response).text();
}

function ask(text, environment) {
  return client.responses.create({ model: "gpt-x", input: text, tools: [{ type: "shell", environment }] });
}

async function folder(name, text) {
  const document = `---\nname: ${name}\ndescription: Says the word. Use when somebody asks for it.\n---\n${text}\n`;
  return [await toFile(Buffer.from(document), `${name}/SKILL.md`), await toFile(Buffer.from([0, 255]), `${name}/data/all.bin`)];
}

await run("openai files for node", {
  async skills_are_created_listed_and_deleted() {
    const made = [];
    for (let n = 0; n < 3; n += 1) made.push(await client.skills.create({ files: await folder(`node-oai-${n}`, "The word is plover.") }));
    assert.deepEqual([made[0].object, made[0].name, made[0].default_version], ["skill", "node-oai-0", "1"]);
    const second = await client.skills.versions.create(made[0].id, { files: await folder("node-oai-0", "The word is avocet.") });
    assert.deepEqual([second.object, second.version, second.skill_id], ["skill.version", "2", made[0].id]);
    const ids = made.map((skill) => skill.id);
    const listed = (await all(client.skills.list({ limit: 2 }))).map((skill) => skill.id).filter((id) => ids.includes(id));
    assert.deepEqual(listed, [...ids].reverse(), "over two pages");
    assert.deepEqual(await all(stranger.skills.list()), []);
    await assert.rejects(stranger.skills.delete(ids[0]), OpenAI.NotFoundError);
    for (const id of ids) assert.equal((await client.skills.delete(id)).deleted, true);
    await assert.rejects(client.skills.retrieve(ids[0]), { status: 404, code: "not_found", param: "skill_id" });
  },
  async a_file_is_uploaded_listed_read_and_deleted() {
    const made = [];
    for (let n = 0; n < 5; n += 1) made.push(await upload(`${n}.csv`, "a,b\n"));
    const file = await client.files.retrieve(made[0].id);
    assert.deepEqual(file, made[0]);
    assert.deepEqual([file.object, file.filename, file.bytes, file.purpose], ["file", "0.csv", 4, "user_data"]);
    assert.equal(await textOf(client.files.content(file.id)), "a,b\n");
    const ours = new Set(made.map((one) => one.id));
    const listed = async (query) => (await all(client.files.list(query))).map((one) => one.id).filter((id) => ours.has(id));
    const newest = made.map((one) => one.id).reverse();
    assert.deepEqual(await listed({ limit: 2 }), newest, "over three pages");
    assert.deepEqual(await listed({ limit: 2, order: "asc", purpose: "user_data" }), [...newest].reverse());
    await assert.rejects(stranger.files.retrieve(file.id), OpenAI.NotFoundError);
    assert.deepEqual(await all(stranger.files.list()), []);
    for (const one of made) assert.equal((await client.files.delete(one.id)).deleted, true);
    await assert.rejects(client.files.content(file.id), { status: 404, code: "not_found", type: "invalid_request_error" });
  },
  async expiry_and_purposes() {
    const file = await upload("a.txt", "x", { expires_after: { anchor: "created_at", seconds: 3600 } });
    assert.equal(file.expires_at - file.created_at, 3600);
    await client.files.delete(file.id);
    await assert.rejects(upload("a.jsonl", "{}", { purpose: "batch" }), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError, String(error));
      assert.match(error.message, /provider/);
      return true;
    });
  },
  async a_run_reads_an_upload_that_a_message_names() {
    const file = await upload("fruit.txt", "kumquat");
    const content = [{ type: "input_text", text: "read my upload" }, { type: "input_file", file_id: file.id }];
    const given = { model: "gpt-x", instructions: "Be brief.", input: [{ role: "user", content }] };
    const response = await client.responses.create(given);
    assert.equal(response.output_text, "It says kumquat.");
    await client.files.delete(file.id);
    await assert.rejects(client.responses.create(given), OpenAI.NotFoundError);
  },
  async a_container_carries_a_file_between_two_runs() {
    const given = await upload("in.txt", "one", { purpose: "assistants" });
    const first = await ask("put into the box", { type: "container_auto", file_ids: [given.id] });
    assert.equal(first.output_text, "It is in the box.");
    const box = first.output.find((item) => item.type === "shell_call").environment.container_id;
    const files = await all(client.containers.files.list(box, { order: "asc" }));
    const places = files.map((file) => [file.path, file.source]);
    assert.deepEqual(places, [["/mnt/data/in.txt", "user"], ["/mnt/data/out.txt", "assistant"]]);
    assert.equal(await textOf(client.containers.files.content.retrieve(files[1].id, { container_id: box })), "two");
    const again = { type: "container_reference", container_id: box };
    const second = await ask("take out of the box", again);
    assert.equal(second.output_text, "The box has one and two.");
    await client.containers.delete(box);
    await assert.rejects(ask("take out of the box", again), OpenAI.NotFoundError);
    await client.files.delete(given.id);
  },
  async a_container_and_its_files() {
    const given = await upload("a.txt", "a");
    const expires_after = { anchor: "last_active_at", minutes: 5 };
    const made = await client.containers.create({ name: "of-node", file_ids: [given.id], expires_after });
    const shown = [made.object, made.name, made.status, made.expires_after.minutes];
    assert.deepEqual(shown, ["container", "of-node", "running", 5]);
    assert.equal((await client.containers.retrieve(made.id)).id, made.id);
    const more = [];
    for (const name of ["b.txt", "0.txt", "1.txt", "2.txt"]) {
      more.push(await client.containers.files.create(made.id, { file: await toFile(Buffer.from("bee"), name) }));
    }
    const paths = (await all(client.containers.files.list(made.id, { limit: 2, order: "asc" }))).map((file) => file.path);
    assert.deepEqual(paths, ["a", "b", "0", "1", "2"].map((name) => `/mnt/data/${name}.txt`), "over three pages");
    const again = await client.containers.files.create(made.id, { file_id: given.id });
    assert.deepEqual([again.path, again.source, again.bytes], ["/mnt/data/a.txt", "user", 1]);
    const place = { container_id: made.id };
    await client.containers.files.delete(more[0].id, place);
    await assert.rejects(client.containers.files.retrieve(more[0].id, place), OpenAI.NotFoundError);
    await assert.rejects(stranger.containers.retrieve(made.id), OpenAI.NotFoundError);
    assert.deepEqual((await all(client.containers.list({ name: "of-node" }))).map((one) => one.id), [made.id]);
    await client.containers.delete(made.id);
    await assert.rejects(client.containers.retrieve(made.id), OpenAI.NotFoundError);
    await client.files.delete(given.id);
  },
});
