"""The servers under measurement: how each is configured to add the system text, started and stopped."""

import contextlib
import dataclasses
import json
import pathlib
import socket
import subprocess
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).parent
# LiteLLM imports for half a minute on a busy machine.
START_SECONDS = 300
STOP_SECONDS = 30
KEY = "bench"
# LiteLLM starts with no short one, and with none only if told that this is dangerous.
LITELLM_KEY = "sk-" + "5e" * 32
# So many that Portkey's configuration, a header, stays below the 16 KiB that Node takes.
SKILLS = 20
# What the model says if it is asked for its system text: the text itself.
ECHO = {"user": "what is the system text", "rounds": [
    {"pick": {"whole": {"from": "system", "regex": r"([\s\S]+)"}}, "reply": {"text": "{{whole}}"}}]}


@dataclasses.dataclass
class Server:
    """One that runs. `headers` go with each request to it."""

    name: str
    url: str
    pid: int | None = None
    headers: dict = dataclasses.field(default_factory=lambda: headers(KEY))


def headers(key):
    return {"content-type": "application/json", "authorization": f"Bearer {key}"}


def script(text, last):
    """The script of the upstream: a request that lacks the text is refused, and so spoils the measurement."""
    answers = {"user": {"equals": last}, "rounds": [
        {"expect": {"system": text}, "reply": {"text": "Sales rose by four percent in the last quarter, most of it in the north."}}], "repeat_last": True}
    return json.dumps({"provider": {"api_key": KEY}, "turns": [ECHO, answers]})


def skills(folder):
    """The skills whose listing is the text."""
    for n in range(SKILLS):
        skill = folder / f"skill-{n:03}"
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(
            f"---\nname: skill-{n:03}\ndescription: Handles matter number {n} of the office. Use when somebody asks for matter {n}.\n---\n"
            f"# Matter {n}\n\n" + "Do this, then that, and write the result down.\n" * 40)


HOOK = '''from litellm.integrations.custom_logger import CustomLogger

with open({path!r}, encoding="utf-8") as file:
    TEXT = file.read()


class AddText(CustomLogger):
    async def async_pre_call_hook(self, user_api_key_dict, cache, data, call_type):
        system = data["messages"][0]
        system["content"] = system["content"] + "\\n\\n" + TEXT
        return data


add_text = AddText()
'''


def litellm_files(folder, upstream, text):
    """LiteLLM's own means: a callback before the call. Without a database and a log; its clients send its key."""
    (folder / "text").write_text(text, encoding="utf-8")
    (folder / "add_text.py").write_text(HOOK.format(path=str(folder / "text")))
    config = {
        "model_list": [{"model_name": "bench", "litellm_params": {"model": "openai/bench", "api_base": f"{upstream}/v1", "api_key": KEY}}],
        "litellm_settings": {"callbacks": "add_text.add_text", "num_retries": 0, "set_verbose": False},
        "general_settings": {"master_key": LITELLM_KEY},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    return folder / "config.yaml"


def portkey_headers(upstream, text):
    """Portkey's own means: a guardrail that adds a prefix, in the configuration that comes with each request."""
    config = {"provider": "openai", "api_key": KEY, "custom_host": f"{upstream}/v1",
              "input_guardrails": [{"default.addPrefix": {"prefix": f"{text}\n\n", "applyToRole": "system"}}]}
    return {**headers(KEY), "x-portkey-config": json.dumps(config)}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def process(command, port, folder, environment=None):
    """A process that is ready once something listens on its port, and is stopped by its id."""
    log = folder / "log"
    with open(log, "wb") as out:
        child = subprocess.Popen([str(word) for word in command], stdout=out, stderr=out, cwd=folder, env=environment)
    try:
        until = time.monotonic() + START_SECONDS
        while not listens(port() if callable(port) else port):
            if child.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{command[0]} does not serve: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield child.pid
    finally:
        child.terminate()
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def listens(port):
    if port is None:
        return False
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def upstream(knack, folder, text, last):
    folder.mkdir()
    (folder / "script.yaml").write_text(script(text, last))
    port = free_port()
    with process([knack, "mock", "--script", folder / "script.yaml", "--listen", f"127.0.0.1:{port}"], port, folder):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def gateway(knack, folder, base):
    """Knack; code is not run in these rows, so no sandbox is started."""
    skills(folder / "skills")
    port = free_port()
    command = [knack, "dev", folder / "skills", "--listen", f"127.0.0.1:{port}", "--no-local-executor", "--upstream", base]
    with process(command, port, folder) as pid:
        yield Server("Knack", f"http://127.0.0.1:{port}", pid)


@contextlib.contextmanager
def floor(program, folder, base, text):
    """The bare proxy of `make bench`."""
    folder.mkdir()
    (folder / "text").write_text(text, encoding="utf-8")
    written = folder / "port"

    def port():
        return int(written.read_text()) if written.exists() and written.read_text().endswith("\n") else None

    with process([program, base, folder / "text", written], port, folder) as pid:
        yield Server("bare proxy", f"http://127.0.0.1:{port()}", pid)


@contextlib.contextmanager
def litellm(program, folder, base, text, environment, workers):
    folder.mkdir()
    port = free_port()
    command = [program, "--config", litellm_files(folder, base, text), "--host", "127.0.0.1", "--port", port, "--num_workers", workers]
    with process(command, port, folder, {**environment, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION"}) as pid:
        name = "LiteLLM" if workers == 1 else f"LiteLLM, {workers} workers"
        yield Server(name, f"http://127.0.0.1:{port}", pid, headers(LITELLM_KEY))


@contextlib.contextmanager
def portkey(modules, folder, base, text, environment):
    folder.mkdir()
    port = free_port()
    command = [modules / ".bin" / "node", "--require", HERE / "loopback.cjs", modules / "@portkey-ai" / "gateway" / "build" / "start-server.js",
               f"--port={port}", "--headless"]
    with process(command, port, folder, {**environment, "NODE_ENV": "production"}) as pid:
        yield Server("Portkey", f"http://127.0.0.1:{port}", pid, portkey_headers(base, text))


def ask(server, data):
    """The text of one answer."""
    request = urllib.request.Request(f"{server.url}/v1/chat/completions", data, server.headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read())["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{server.name} answered {error.code}: {error.read()[:500]!r}") from error


def resident_mb(pid):
    """Resident memory of a process and of all that it started."""
    total = 0
    for each in family(pid):
        status = pathlib.Path(f"/proc/{each}/status").read_text()
        total += next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")), 0)
    return total * 1024 / 1e6


def family(pid):
    yield pid
    for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from family(int(child))
