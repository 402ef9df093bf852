"""MCP through the official client, of both of its major versions, against a `knack dev` of the example skills."""

import asyncio
import base64
import contextlib
import datetime
import hashlib
import http.client
import importlib
import importlib.metadata
import json
import os
import pathlib
import subprocess
import tempfile
import time

import anyio
import mcp
from checks import equal, run, tests_of

VERSION = importlib.metadata.version("mcp")
EXAMPLES = pathlib.Path(os.environ["KNACK_EXAMPLES"])
# A start looks for interpreters and warms sandboxes; on a busy machine that takes some seconds.
START_SECONDS = 300


@contextlib.contextmanager
def serving(folder=EXAMPLES):
    """The port of a `knack dev` of its own: the one of the other suites has no declared tool."""
    with tempfile.TemporaryDirectory() as work:
        port = pathlib.Path(work, "port")
        command = [os.environ["KNACK"], "dev", str(folder), "--listen", "127.0.0.1:0", "--upstream", "mock"]
        command += ["--files-dir", f"{work}/files", "--registry", f"{work}/registry", "--print-port-file", str(port)]
        log = pathlib.Path(work, "log")
        with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=work) as child:
            try:
                until = time.monotonic() + START_SECONDS

                def wait(what, is_there):
                    while not is_there():
                        assert child.poll() is None and time.monotonic() < until, f"{what}:\n{log.read_text()}"
                        time.sleep(0.1)

                wait("knack dev did not start", lambda: port.exists() and port.read_text().strip())
                number = int(port.read_text())
                # Lines are written by a thread of their own, soon after the port.
                wait("the start lines do not name the address", lambda: f"http://127.0.0.1:{number}/mcp" in log.read_text())
                yield number
            finally:
                child.terminate()


@contextlib.asynccontextmanager
async def connected(key=None, port=None, **more):
    """A session after its handshake, and what the server said of itself."""
    from mcp.client.streamable_http import streamable_http_client

    url = f"http://127.0.0.1:{port or PORT}/mcp"
    http_client = None
    if key:
        client_module = importlib.import_module("httpx" if VERSION.startswith("1.") else "httpx2")
        http_client = client_module.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=SOON_SECONDS)
    if VERSION.startswith("1."):
        async with streamable_http_client(url, http_client=http_client) as (incoming, outgoing, _), mcp.ClientSession(incoming, outgoing) as session:
            opened = await session.initialize()
            yield session, opened.serverInfo.name, opened.instructions
    else:
        transport = streamable_http_client(url, http_client=http_client) if key else url
        async with mcp.Client(transport, **more) as client:
            yield client, client.server_info.name, client.instructions


def plain(value):
    """A result as it was on the wire: attribute names differ between versions."""
    return json.loads(value.model_dump_json(by_alias=True, exclude_none=True))


def talk(conversation, key=None):
    async def whole():
        async with connected(key) as (session, name, instructions):
            return await conversation(session, name, instructions)

    return asyncio.run(whole())


def called(tool, arguments):
    async def one(session, *_):
        return plain(await session.call_tool(tool, arguments))

    return talk(one)


def test_the_server_names_itself_and_lists_its_skills():
    async def look(session, name, instructions):
        equal(name, "knack")
        assert '<skill name="csv-chart">' in instructions, instructions
        return plain(await session.list_tools())["tools"]

    tools = {tool["name"]: tool for tool in talk(look)}
    expected = {"load_skill", "run_code", "text-stats__text_stats"}
    equal(expected - set(tools), set(), f"tools {sorted(tools)}")
    stats = tools["text-stats__text_stats"]
    assert stats["description"].startswith("Measures a text."), stats
    equal(stats["inputSchema"]["required"], ["text"])
    equal(tools["load_skill"]["inputSchema"]["required"], ["skill"])
    equal(tools["load_skill"]["annotations"]["readOnlyHint"], True)


def test_a_declared_tool_runs_with_its_arguments():
    result = called("text-stats__text_stats", {"text": "one two three"})
    equal((result["isError"], len(result["content"])), (False, 1), result)
    equal('"words": 3' in result["content"][0]["text"], True, result)


def test_code_runs_and_its_files_come_back():
    chart = "python3 skills/csv-chart/scripts/chart.py in.csv out.png"
    code = "open('in.csv','w').write('q,n\\na,1\\nb,2\\n')\nimport subprocess, sys\n"
    code += f"subprocess.run([sys.executable, *{chart.split()[1:]!r}], check=True)"
    result = called("run_code", {"skill": "csv-chart", "code": code})
    equal(result["isError"], False, result)
    assert "out.png" in result["content"][0]["text"], result
    files = {block["type"]: block for block in result["content"][1:]}
    equal(set(files), {"image", "resource"})
    equal((files["image"]["mimeType"], base64.b64decode(files["image"]["data"])[:4]), ("image/png", b"\x89PNG"))
    resource = files["resource"]["resource"]
    equal((resource["mimeType"], base64.b64decode(resource["blob"])), ("text/csv", b"q,n\na,1\nb,2\n"))


def test_a_skill_is_loaded_and_one_of_its_files():
    body = called("load_skill", {"skill": "csv-chart"})
    assert "# CSV chart" in body["content"][0]["text"] and "scripts/chart.py" in body["content"][0]["text"], body
    file = called("load_skill", {"skill": "csv-chart", "path": "scripts/table.py"})
    equal(file["content"][0]["text"], (EXAMPLES / "csv-chart/scripts/table.py").read_text())


def test_every_file_is_a_resource_whose_digest_is_right():
    async def look(session, *_):
        listed = plain(await session.list_resources())["resources"]
        contents = {}
        for resource in listed:
            contents[resource["uri"]] = plain(await session.read_resource(resource["uri"]))["contents"][0]
        return listed, contents

    listed, contents = talk(look)
    files = [path for path in EXAMPLES.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    equal(
        sorted(resource["uri"] for resource in listed),
        sorted(f"skill://{path.relative_to(EXAMPLES).as_posix()}" for path in files),
    )
    for resource in listed:
        data = (EXAMPLES / resource["uri"].removeprefix("skill://")).read_bytes()
        equal(contents[resource["uri"]]["text"].encode(), data, resource["uri"])
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        equal((resource["size"], resource["_meta"]), (len(data), {"knack.dev/digest": digest}), resource["uri"])


def test_mistakes_are_results_that_a_model_can_read():
    for tool, arguments, expected in [
        ("text-stats__text_stats", {"words": 1}, "do not match its schema"),
        ("make_coffee", {}, 'No tool "make_coffee".'),
        ("load_skill", {"skill": "csv-charts"}, "Closest: csv-chart"),
    ]:
        result = called(tool, arguments)
        equal((result["isError"], expected in result["content"][0]["text"]), (True, True), result)


def without_sdk(method, headers):
    """One request: its status, and its answer as text."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method})
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=300)
    accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    connection.request("POST", "/mcp", body, accept | headers)
    response = connection.getresponse()
    status, text = response.status, response.read().decode()
    connection.close()
    return status, text


def test_a_page_of_another_origin_is_refused():
    for origin, expected in [("https://evil.example", 403), ("http://localhost:6274", 200)]:
        equal(without_sdk("tools/list", {"origin": origin})[0], expected, origin)


def test_uploaded_skills_are_those_of_the_credential():
    with tempfile.TemporaryDirectory() as work:
        skill = pathlib.Path(work, "of-one-caller")
        skill.mkdir()
        command = [os.environ["KNACK"], "skill", "push", str(skill), "--to", f"http://127.0.0.1:{PORT}/v1"]
        # The first version is kept beside the second, for requests that name it.
        for word in ["avocet", "plover"]:
            text = f"---\nname: of-one-caller\ndescription: Says a word. Use when asked for it.\n---\nThe word is {word}.\n"
            (skill / "SKILL.md").write_text(text)
            subprocess.run(command, env=os.environ | {"OPENAI_API_KEY": "key-a"}, check=True, stdout=subprocess.DEVNULL)
    for headers, expected in [
        ({"authorization": "Bearer key-a"}, True),
        ({"x-api-key": "key-a"}, True),
        ({"authorization": "Bearer key-b"}, False),
        ({}, False),
    ]:
        status, text = without_sdk("resources/list", headers)
        equal((status, "skill://of-one-caller/SKILL.md" in text), (200, expected), headers)
        equal(text.count("of-one-caller/SKILL.md"), 2 * expected, "URI and name of one version")

    async def switch(session, *_):
        asked = {"skillId": "of-one-caller", "enabled": False}
        return plain(await session.call_tool("omniroute_skills_enable", asked))

    switched = talk(switch, "key-a")
    equal((switched["isError"], json.loads(switched["content"][0]["text"])), (False, {"success": True, "enabled": False, "mode": "off"}))
    equal("of-one-caller" in without_sdk("resources/list", {"x-api-key": "key-a"})[1], False, "it is off")
    equal(talk(switch, "key-b")["isError"], True, "another's")


def test_a_caller_with_a_credential_manages_its_skills():
    async def look(session, *_):
        return [tool["name"] for tool in plain(await session.list_tools())["tools"]]

    expected = {f"omniroute_skills_{word}" for word in ("list", "enable", "execute", "executions")}
    equal(expected & set(talk(look)), set(), "without a credential")
    equal(expected - set(talk(look, "key-m")), set(), "with one")

    async def manage(session, *_):
        async def ask(word, arguments):
            result = plain(await session.call_tool(f"omniroute_skills_{word}", arguments))
            equal(result["isError"], False, result)
            return json.loads(result["content"][0]["text"])

        listed = await ask("list", {"name": "text-stats"})
        ran = await ask("execute", {"skillName": "text-stats", "input": {"text": "one two three"}})
        return listed, ran, await ask("executions", {"status": "success", "limit": 1})

    listed, ran, past = talk(manage, "key-m")
    equal([row["name"] for row in listed["data"]], ["text-stats"])
    equal(ran["execution"]["output"]["words"], 3, ran)
    equal(past["data"], [ran["execution"]])


WAITING = """---
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
"""
# The longest wait for a run to begin or to end, where all other suites come first; below the seconds that a run waits.
SOON_SECONDS = 80
WAITS_SECONDS = 100
# The limit of a call: a run has begun by then.
LIMIT_SECONDS = 10


def running(seconds):
    """Processes of the slow tool that were started with this argument."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            found += [process.name] * (b"wait.py" in words and seconds.encode() in words)
    return found


async def until(what, is_so):
    with anyio.fail_after(SOON_SECONDS):
        while not is_so():
            await anyio.sleep(0.05)


async def give_up(session, seconds, way):
    """Starts a slow call and gives it up, as an application does."""
    if way == "timeout":
        # As the time limit of a call is written in the older version, and in the newer one.
        limit = datetime.timedelta(seconds=LIMIT_SECONDS) if VERSION.startswith("1.") else LIMIT_SECONDS
        try:
            await session.call_tool("slow__wait", {"seconds": seconds}, limit)
        except Exception as error:
            assert "imed out" in str(error), error
        else:
            raise AssertionError("the call has a result")
    else:
        async with anyio.create_task_group() as group:
            group.start_soon(session.call_tool, "slow__wait", {"seconds": seconds})
            await until("the tool runs", lambda: running(seconds))
            group.cancel_scope.cancel()
    if VERSION.startswith("1."):
        # It tells the server nothing by itself: applications do so.
        params = mcp.types.CancelledNotificationParams(requestId=session._request_id - 1, reason="given up")
        await session.send_notification(mcp.types.ClientNotification(mcp.types.CancelledNotification(params=params)))


async def noted(session, seconds):
    """The newest execution of the history, once it is the call that was given up and has ended: that is noted after its process is gone."""
    end = time.monotonic() + SOON_SECONDS
    while True:
        past = plain(await session.call_tool("omniroute_skills_executions", {"limit": 1}))
        last = json.loads(past["content"][0]["text"])["data"][0]
        if (last["status"], last["input"]) == ("error", {"seconds": seconds}) or time.monotonic() > end:
            return last
        await anyio.sleep(0.05)


def test_a_call_that_is_given_up_ends_its_run_and_the_next_one_works():
    with tempfile.TemporaryDirectory() as folder:
        skill = pathlib.Path(folder, "slow")
        skill.mkdir()
        (skill / "SKILL.md").write_text(WAITING)
        (skill / "wait.py").write_text("import sys, time\ntime.sleep(float(sys.argv[1]))\nprint('waited')\n")
        # With a handshake a message says what is cancelled; without one it is the end of the request's connection.
        modes = [{}] if VERSION.startswith("1.") else [{"mode": "legacy"}, {"mode": "auto"}]
        with serving(folder) as port:
            for number, (mode, way) in enumerate((mode, way) for mode in modes for way in ("scope", "timeout")):
                seconds = f"{WAITS_SECONDS}.{number + 1}"

                async def conversation():
                    async with connected("key-c", port, **mode) as (session, *_):
                        await give_up(session, seconds, way)
                        await until("the tool has ended", lambda: not running(seconds))
                        last = await noted(session, seconds)
                        after = await session.call_tool("slow__wait", {"seconds": "0"})
                        return last, plain(after)

                last, after = asyncio.run(conversation())
                equal((last["status"], last["input"]), ("error", {"seconds": seconds}), (mode, way, last))
                assert "cancelled the request" in last["errorMessage"] and last["durationMs"] < 1000 * SOON_SECONDS, last
                equal((after["isError"], after["content"][0]["text"].strip()), (False, "waited"), (mode, way))


with serving() as PORT:
    run(tests_of(globals()), f"mcp {VERSION}")
