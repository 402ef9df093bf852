"""OpenAI's Files and containers through the official SDK: uploads, runs that read and write them, a container over two requests."""

import openai
from checks import KEY, PORT, equal, refused, run, tests_of

URL = f"http://127.0.0.1:{PORT}/v1"
client = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0, timeout=300)
# The other credential that the model of these tests takes from nobody: it lists and uploads, and asks no model.
stranger = openai.OpenAI(base_url=URL, api_key="another-key", max_retries=0, timeout=300)


def test_a_file_is_uploaded_listed_read_and_deleted():
    made = [client.files.create(file=(f"{n}.csv", b"a,b\n"), purpose="user_data") for n in range(5)]
    file = client.files.retrieve(made[0].id)
    equal(file, made[0])
    equal((file.object, file.filename, file.bytes, file.purpose), ("file", "0.csv", 4, "user_data"))
    equal(client.files.content(file.id).read(), b"a,b\n")
    ours = {file.id for file in made}
    newest = [file.id for file in reversed(made)]
    equal([file.id for file in client.files.list(limit=2) if file.id in ours], newest, "over three pages")
    oldest = [file.id for file in client.files.list(limit=2, order="asc", purpose="user_data") if file.id in ours]
    equal(oldest, newest[::-1])
    refused(openai.NotFoundError, lambda: stranger.files.retrieve(file.id))
    equal([file.id for file in stranger.files.list()], [])
    for file in made:
        equal(client.files.delete(file.id).deleted, True)
    error = refused(openai.NotFoundError, lambda: client.files.content(made[0].id))
    equal((error.code, error.type), ("not_found", "invalid_request_error"))


def test_expiry_and_purposes():
    file = client.files.create(file=("a.txt", b"x"), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3600})
    equal(file.expires_at - file.created_at, 3600)
    client.files.delete(file.id)
    error = refused(openai.BadRequestError, lambda: client.files.create(file=("a.jsonl", b"{}"), purpose="batch"))
    assert "provider" in str(error), error


def test_a_run_reads_an_upload_that_a_message_names():
    file = client.files.create(file=("fruit.txt", b"kumquat"), purpose="user_data")
    content = [{"type": "input_text", "text": "read my upload"}, {"type": "input_file", "file_id": file.id}]
    response = client.responses.create(model="gpt-x", instructions="Be brief.", input=[{"role": "user", "content": content}])
    equal(response.output_text, "It says kumquat.")
    client.files.delete(file.id)
    gone = lambda: client.responses.create(model="gpt-x", input=[{"role": "user", "content": content}])
    refused(openai.NotFoundError, gone)


def shell(environment):
    return [{"type": "shell", "environment": environment}]


def ask(text, environment):
    return client.responses.create(model="gpt-x", input=text, tools=shell(environment))


def test_a_container_carries_a_file_between_two_runs():
    upload = client.files.create(file=("in.txt", b"one"), purpose="assistants")
    first = ask("put into the box", {"type": "container_auto", "file_ids": [upload.id]})
    equal(first.output_text, "It is in the box.")
    call = next(item for item in first.output if item.type == "shell_call")
    box = call.environment.container_id
    files = list(client.containers.files.list(box, order="asc"))
    equal([(file.path, file.source) for file in files], [("/mnt/data/in.txt", "user"), ("/mnt/data/out.txt", "assistant")])
    equal(client.containers.files.content.retrieve(files[1].id, container_id=box).read(), b"two")
    cited = first.output[-1].content[0].annotations[0]
    equal((cited.type, cited.container_id, cited.file_id, cited.filename), ("container_file_citation", box, files[1].id, "out.txt"))
    equal((cited.start_index, cited.end_index), (17, 17))
    second = ask("take out of the box", {"type": "container_reference", "container_id": box})
    equal(second.output_text, "The box has one and two.")
    client.containers.delete(box)
    refused(openai.NotFoundError, lambda: ask("take out of the box", {"type": "container_reference", "container_id": box}))


def test_skills_of_a_container_are_attached_to_its_requests():
    reference = {"type": "skill_reference", "skill_id": "litellm:adder"}
    made = client.containers.create(name="skilled", skills=[reference])
    answer = ask("sum in a shell", {"type": "container_reference", "container_id": made.id})
    equal(answer.output_text, "The shell says 5.")
    foreign = {"type": "skill_reference", "skill_id": "skill_of_openai"}
    error = refused(openai.BadRequestError, lambda: client.containers.create(name="foreign", skills=[foreign]))
    equal(error.param, "skills")
    client.containers.delete(made.id)


def test_a_container_and_its_files():
    upload = client.files.create(file=("a.txt", b"a"), purpose="user_data")
    made = client.containers.create(name="mine", file_ids=[upload.id], expires_after={"anchor": "last_active_at", "minutes": 5})
    equal((made.object, made.name, made.status, made.expires_after.minutes), ("container", "mine", "running", 5))
    equal(client.containers.retrieve(made.id).id, made.id)
    equal(made.memory_limit, "1g")
    client.containers.files.create(made.id, file=("x/b.txt", b"bee"))
    more = [client.containers.files.create(made.id, file=(f"{n}.txt", b"n")) for n in range(3)]
    paths = [file.path for file in client.containers.files.list(made.id, limit=2, order="asc")]
    equal(paths, [f"/mnt/data/{name}.txt" for name in ("a", "b", "0", "1", "2")], "over three pages")
    again = client.containers.files.create(made.id, file_id=upload.id)
    equal((again.path, again.source, again.bytes), ("/mnt/data/a.txt", "user", 1))
    client.containers.files.delete(more[0].id, container_id=made.id)
    refused(openai.NotFoundError, lambda: client.containers.files.retrieve(more[0].id, container_id=made.id))
    refused(openai.NotFoundError, lambda: stranger.containers.retrieve(made.id))
    equal([one.id for one in client.containers.list(name="mine")], [made.id])
    client.containers.delete(made.id)
    refused(openai.NotFoundError, lambda: client.containers.retrieve(made.id))


run(tests_of(globals()), f"openai files {openai.__version__}")
