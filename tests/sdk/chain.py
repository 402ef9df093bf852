"""Processes of a chain of proxies: LiteLLM's proxy and commands of knack, each on a free port and stopped at the end."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

KNACK = os.environ["KNACK"]
# A proxy imports for half a minute on a busy machine; a test that waits for it must outlast that.
START_SECONDS = 300
# The proxy wants a key of its own, which its clients send.
PROXY_KEY = "sk-litellm"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def process(command, ready, **more):
    """A process that is stopped at the end; `ready` says when it serves."""
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, **more)
        try:
            until = time.monotonic() + START_SECONDS
            while not ready():
                if child.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    raise AssertionError(f"{command[0]} does not serve: {log.read().decode()[-3000:]}")
                time.sleep(0.2)
            yield
        finally:
            child.terminate()
            child.wait(60)


@contextlib.contextmanager
def litellm_proxy(config, **environment):
    """LiteLLM's proxy with this configuration, the tests' own key, and these variables; gives its base."""
    port = free_port()

    def ready():
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=5).status == 200
        except OSError:
            return False

    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "config.yaml"
        # JSON is YAML, too.
        file.write_text(json.dumps({"general_settings": {"master_key": PROXY_KEY}, **config}))
        command = [pathlib.Path(sys.executable).parent / "litellm", "--config", file, "--host", "127.0.0.1", "--port", str(port)]
        with process(command, ready, cwd=folder, env={**os.environ, **environment}):
            yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def knack(*arguments):
    """A command of knack that serves; gives its base."""
    port = free_port()

    def ready():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with tempfile.TemporaryDirectory() as folder, \
            process([KNACK, *arguments, "--listen", f"127.0.0.1:{port}"], ready, cwd=folder):
        yield f"http://127.0.0.1:{port}"
