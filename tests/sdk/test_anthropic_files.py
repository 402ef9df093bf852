"""Anthropic's Files API through the official SDK of both eras: general and beta shapes, and runs that read and write files."""

import anthropic
from checks import KEY, PORT, equal, raw, refused, run, tests_of

URL = f"http://127.0.0.1:{PORT}"
client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=300)
stranger = anthropic.Anthropic(base_url=URL, api_key="another-key", max_retries=0, timeout=300)
# The headers of the older shapes, which no namespace of the newer SDK sends.
BETA = {"anthropic-version": "2023-06-01", "anthropic-beta": "files-api-2025-04-14"}


def test_a_file_is_uploaded_listed_read_and_deleted_in_both_namespaces():
    for files in (client.files, client.beta.files):
        made = [files.upload(file=(f"{n}.csv", b"a,b\n", "text/csv")) for n in range(5)]
        ours = {file.id for file in made}
        file = files.retrieve_metadata(made[0].id)
        equal((file.type, file.filename, file.mime_type, file.size_bytes), ("file", "0.csv", "text/csv", 4))
        equal((file.created_at, file.downloadable), (made[0].created_at, True))
        equal(files.download(file.id).read(), b"a,b\n")
        listed = [file.id for file in files.list(limit=2) if file.id in ours]
        equal(listed, [file.id for file in reversed(made)], "over three pages")
        refused(anthropic.NotFoundError, lambda: stranger.files.retrieve_metadata(file.id))
        equal([file.id for file in stranger.files.list()], [])
        for one in made:
            equal(files.delete(one.id).type, "file_deleted")
        error = refused(anthropic.NotFoundError, lambda: files.download(file.id))
        equal(error.body["error"]["type"], "not_found_error")


def test_the_older_shapes_of_a_list():
    ids = [client.beta.files.upload(file=(f"{n}.txt", b"x")).id for n in range(3)]
    status, _, data = raw("GET", f"/v1/files?limit=1&after_id={ids[2]}", headers=BETA)
    assert status == 200 and b'"has_more":true' in data and f'"first_id":"{ids[1]}"'.encode() in data, data
    for one in ids:
        client.beta.files.delete(one)


def ask(text, **more):
    tools = [{"type": "code_execution_20250825", "name": "code_execution"}]
    content = [{"type": "text", "text": text}, *more.pop("blocks", [])]
    return client.beta.messages.create(
        model="claude-x", max_tokens=500, tools=tools, messages=[{"role": "user", "content": content}], **more
    )


def said(message):
    return [block.text for block in message.content if block.type == "text"][-1]


def test_a_run_reads_an_upload_and_what_it_wrote_is_downloaded_and_carried_on():
    upload = client.beta.files.upload(file=("in.txt", b"one"))
    block = {"type": "container_upload", "file_id": upload.id}
    first = ask("write from my upload", blocks=[block])
    equal(said(first), "It is written.")
    result = next(block for block in first.content if block.type == "bash_code_execution_tool_result")
    written = result.content.content[0].file_id
    equal(client.beta.files.download(written).read(), b"one and two")
    equal(client.beta.files.retrieve_metadata(written).filename, "out.txt")
    assert written in [file.id for file in client.beta.files.list()]
    second = ask("read what you wrote", container=first.container.id)
    equal((said(second), second.container.id), ("It says one and two.", first.container.id))
    equal(client.beta.files.delete(written).type, "file_deleted")
    client.beta.files.delete(upload.id)
    refused(anthropic.NotFoundError, lambda: ask("write from my upload", blocks=[block]))


run(tests_of(globals()), f"anthropic files {anthropic.__version__}")
