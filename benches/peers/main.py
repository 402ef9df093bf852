#!/usr/bin/env python3
"""Knack beside other gateways: what each adds to a request that it forwards with the same text added.

The upstream is the scripted provider, which refuses a request without the text. wrk sends; rounds over all servers are
interleaved, so that a machine that drifts drifts for all. LiteLLM and Portkey add the text by their own means
(servers.py). Sent to the upstream itself, the request has the text already, so what a server adds is its own work.
"""

import argparse
import contextlib
import os
import pathlib
import sys
import tempfile

import load
import servers

# A round of one size and server, one request at a time; LiteLLM answers some 500 in it.
LATENCY_SECONDS = 4
LATENCY_ROUNDS = 5
# Many at a time.
CONNECTIONS = 32
THROUGHPUT_SECONDS = 8
THROUGHPUT_ROUNDS = 3
# Before anything is measured: imports that are put off, and just-in-time compilers.
WARM_SECONDS = 3
COLUMNS = ["added p50, 2 KB", "added p99, 2 KB", "added p50, 64 KB", "added p99, 64 KB", f"requests/s, {CONNECTIONS} connections", "resident MB after"]


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    for name, what in (("knack", "program"), ("floor", "program floor_proxy"), ("lines", "file that gets the rows of the table")):
        arguments.add_argument(f"--{name}", type=pathlib.Path, required=True, help=what)
    arguments.add_argument("--litellm", type=pathlib.Path, help="program litellm")
    arguments.add_argument("--portkey", type=pathlib.Path, help="node_modules with Portkey's gateway")
    arguments.add_argument("--missing", action="append", default=[], help="a line for a server that could not be installed")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        direct, measured = start(given, pathlib.Path(folder), running)
        rows = table(measure(pathlib.Path(folder), direct, measured))
    given.lines.write_text("\n".join([*rows, *given.missing]) + "\n", encoding="utf-8")


def start(given, folder, running):
    """The upstream, and all servers that add the text which Knack adds."""
    text = learned(given.knack, folder)
    base = running.enter_context(servers.upstream(given.knack, folder / "upstream", text, load.LAST))
    # What a shell exports for other proxies is not for servers on loopback.
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    wanted = [servers.floor(given.floor, folder / "floor", base, text), servers.gateway(given.knack, folder / "knack", base)]
    if given.litellm:
        # One worker is its default; one for each core is what its documentation advises for production.
        for workers in dict.fromkeys([1, len(os.sched_getaffinity(0))]):
            wanted.append(servers.litellm(given.litellm, folder / f"litellm-{workers}", base, text, environment, workers))
    if given.portkey:
        wanted.append(servers.portkey(given.portkey, folder / "portkey", base, text, environment))
    measured = []
    for one in wanted:
        measured.append(running.enter_context(one))
        said = servers.ask(measured[-1], load.body("2k").replace(load.LAST.encode(), b"what is the system text"))
        if text not in said:
            raise RuntimeError(f"{measured[-1].name} does not add the text")
    return (servers.Server("upstream alone", base), text), measured


def learned(knack, folder):
    """The text that Knack adds: the model repeats it."""
    with servers.upstream(knack, folder / "echo", "", load.LAST) as base, servers.gateway(knack, folder / "learning", base) as server:
        whole = servers.ask(server, load.body("2k").replace(load.LAST.encode(), b"what is the system text"))
    text = whole.removeprefix("Be brief.").strip()
    if f"skill-{servers.SKILLS - 1:03}" not in text:
        raise RuntimeError(f"Knack lists no skills: {text[:500]}")
    return text


def measure(folder, direct, measured):
    """Medians over the rounds, for each server and column."""
    (upstream, text), found = direct, {}

    def send(server, size, connections, seconds):
        data = load.body(size, f"Be brief.\n\n{text}") if server is upstream else load.body(size)
        return load.run(folder, f"{server.url}/v1/chat/completions", server.headers, data, connections, seconds)

    everyone = [upstream, *measured]
    for server in everyone:
        for size in load.SIZES:
            send(server, size, CONNECTIONS, WARM_SECONDS)
    for size in load.SIZES:
        for _ in range(LATENCY_ROUNDS):
            runs = {server.name: send(server, size, 1, LATENCY_SECONDS) for server in everyone}
            floor = runs[upstream.name]
            for name, run in runs.items():
                own = name == upstream.name
                found.setdefault((name, f"p50_{size}"), []).append(run.p50_ms if own else run.p50_ms - floor.p50_ms)
                found.setdefault((name, f"p99_{size}"), []).append(run.p99_ms if own else run.p99_ms - floor.p99_ms)
    for _ in range(THROUGHPUT_ROUNDS):
        for server in everyone:
            found.setdefault((server.name, "per_second"), []).append(send(server, "2k", CONNECTIONS, THROUGHPUT_SECONDS).per_second)
    for server in measured:
        found[server.name, "resident_mb"] = [servers.resident_mb(server.pid)]
    return found


def table(found):
    """Rows of Markdown, one for each server; prints each value with its spread."""
    keys = ["p50_2k", "p99_2k", "p50_64k", "p99_64k", "per_second", "resident_mb"]
    rows = ["| | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name in dict.fromkeys(name for name, _ in found):
        cells = []
        for key in keys:
            values = found.get((name, key))
            if values is None:
                cells.append("")
                continue
            value, spread = load.middle(values) if len(values) > 1 else (values[0], 0.0)
            shown = f"{value:.2f} ms" if key.startswith("p") and key != "per_second" else f"{value:.0f}"
            print(f"measured {name.replace(' ', '_')} {key} {value:.3f} (spread {spread * 100:.0f} %)", flush=True)
            cells.append(shown)
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return rows


if __name__ == "__main__":
    sys.exit(main())
