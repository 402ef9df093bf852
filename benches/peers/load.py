"""What is sent, by whom it is sent, and what is read from that."""

import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess

HERE = pathlib.Path(__file__).parent
WORDS = ["the", "report", "of", "last", "quarter", '"shows"', "a", "rise\n", "in", "sales", "überall", "again."]
# Messages, bytes of one, tools: the bodies of 2 KB and 64 KB of benches/gateway/bodies.rs.
SIZES = {"2k": (2, 900, 0), "64k": (40, 1_200, 20)}
LAST = "And now?"
MEASURED = re.compile(r"^measured p50=(\d+) p99=(\d+) requests=(\d+) microseconds=(\d+) failed=(\d+)$", re.M)


@dataclasses.dataclass(frozen=True)
class Measured:
    """One run of the load."""

    p50_ms: float
    p99_ms: float
    per_second: float


def prose(seed, length):
    """Text as chats have it: words, line breaks, quotes to escape."""
    text, n = "", seed
    while len(text.encode()) < length:
        text += WORDS[n % len(WORDS)] + " "
        n = (n * 7 + 3) % 1_000_003
    return text


def body(size, system="Be brief."):
    """A request of Chat Completions."""
    messages, length, tools = SIZES[size]
    roles = ("user", "assistant")
    chat = [{"role": "system", "content": system}]
    chat += [{"role": roles[n % 2], "content": prose(n, length)} for n in range(messages)]
    chat.append({"role": "user", "content": LAST})
    asked = {"model": "bench", "messages": chat, "temperature": 0.7}
    if tools:
        properties = {"city": {"type": "string", "description": "Name of a city"}, "unit": {"type": "string", "enum": ["c", "f"]}}
        asked["tools"] = [{"type": "function", "function": {
            "name": f"tool_{n}", "description": "Looks something up in a table of the application and returns it.",
            "parameters": {"type": "object", "properties": properties, "required": ["city"]}}} for n in range(tools)]
    return json.dumps(asked, ensure_ascii=False, separators=(",", ":")).encode()


def read(text):
    """The measured values of what wrk printed. A request that failed makes the whole run worthless."""
    found = MEASURED.search(text)
    if not found:
        raise RuntimeError(f"wrk measured nothing: {text[-500:]}")
    p50, p99, requests, microseconds, failed = map(int, found.groups())
    if failed or not requests:
        raise RuntimeError(f"{failed} of {requests} requests failed")
    return Measured(p50 / 1e3, p99 / 1e3, requests / microseconds * 1e6)


def run(folder, url, headers, data, connections, seconds):
    """Posts the body over these connections, each with one request at a time."""
    sent, named = folder / "body", folder / "headers"
    sent.write_bytes(data)
    named.write_text("".join(f"{name}: {value}\n" for name, value in headers.items()))
    environment = {**os.environ, "KNACK_BODY": str(sent), "KNACK_HEADERS": str(named)}
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "20s", "-s", str(HERE / "load.lua"), url]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds + 60)
    return read(done.stdout + done.stderr)


def middle(values):
    """Median, and half the distance between the quartiles as a share of it."""
    median = statistics.median(values)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return median, (high - low) / 2 / abs(median) if median else 0.0
