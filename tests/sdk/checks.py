"""What the SDK tests share: a runner without a framework, raw HTTP, and checks on raw bytes.

The SDKs forgive much, so every stream is looked at twice: by attribute through the SDK, and as bytes.
"""

import http.client
import json
import os
import sys
import traceback

PORT = int(os.environ["KNACK_PORT"])
KEY = "test-key"
# Names, paths and texts that belong to the gateway and may not reach a client.
INTERNAL = ["load_skill", "run_code", "run_skill_tool", "skills/adder", "available_skills", "# Skills", "sum=42", "x-mock"]

WEATHER_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def asked(text):
    """A conversation of one question, in the formats that have system texts elsewhere."""
    return [{"role": "user", "content": text}]


def conversation(text):
    """A conversation of one question for chat completions, with the application's own system text."""
    return [{"role": "system", "content": "Be brief."}, *asked(text)]


def equal(actual, expected, what=""):
    """Fails with both values; `assert` alone shows neither."""
    if actual != expected:
        raise AssertionError(f"{what}: expected {expected!r}, came {actual!r}")


def no_internals(data):
    text = data if isinstance(data, str) else data.decode()
    found = [name for name in INTERNAL if name in text]
    equal(found, [], f"internal names in {text[:2000]!r}")


def raw(method, path, body=None, headers=None):
    """One request without any SDK: status, headers (lower case), bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=300)
    sent = {"authorization": f"Bearer {KEY}", **(headers or {})}
    # An empty value takes a header away.
    sent = {name: value for name, value in sent.items() if value}
    if body is not None:
        body = json.dumps(body).encode()
        sent["content-type"] = "application/json"
    connection.request(method, path, body, sent)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, {key.lower(): value for key, value in response.getheaders()}, data


def events(data):
    """Server-sent events as (event line or None, data line); comments are left out."""
    found = []
    for block in data.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if not lines:
            continue
        kind = next((line[len("event: "):] for line in lines if line.startswith("event: ")), None)
        texts = [line[len("data: "):] for line in lines if line.startswith("data: ")]
        equal(len(texts), 1, f"data lines of {block!r}")
        found.append((kind, texts[0]))
    return found


def run(tests, label):
    """Runs every test, prints one line each, ends with `N passed, N failed`."""
    failed = 0
    for test in tests:
        try:
            test()
            print(f"ok   {label} {test.__name__}")
        except Exception:
            failed += 1
            print(f"FAIL {label} {test.__name__}")
            traceback.print_exc(file=sys.stdout)
    print(f"{label}: {len(tests) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def refused(kind, call):
    """The error of a call that has to be refused with this kind."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def tests_of(module):
    return [value for name, value in module.items() if name.startswith("test_")]
