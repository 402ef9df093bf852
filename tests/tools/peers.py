"""The comparison with other gateways, without them: what it configures, sends and reads."""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import types

from harness import ROOT, case, expect


def module(name):
    spec = importlib.util.spec_from_file_location(f"peers_{name}", f"{ROOT}/benches/peers/{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


@case
def a_comparison_counts_no_run_with_a_failed_request():
    load = module("load")
    run = load.read("noise\nmeasured p50=1500 p99=20000 requests=400 microseconds=4000000 failed=0\n")
    expect((run.p50_ms, run.p99_ms, run.per_second) == (1.5, 20.0, 100.0), run)
    for bad in ["", "unable to connect", "measured p50=1 p99=1 requests=9 microseconds=9 failed=1", "measured p50=0 p99=0 requests=0 microseconds=9 failed=0"]:
        try:
            load.read(bad)
        except RuntimeError:
            continue
        raise AssertionError(f"{bad!r} was read")
    expect(load.middle([1.0, 2.0, 3.0]) == (2.0, 0.25), load.middle([1.0, 2.0, 3.0]))
    for size, bytes_of_it, tools in (("2k", 2_000, 0), ("64k", 55_000, 20)):
        data = load.body(size)
        asked = json.loads(data)
        expect(bytes_of_it <= len(data) <= 1.2 * bytes_of_it, f"{size}: {len(data)}")
        expect(len(asked.get("tools", [])) == tools and asked["messages"][-1]["content"] == load.LAST, size)
        expect(json.loads(load.body(size, "other"))["messages"][0] == {"role": "system", "content": "other"}, size)


@case
def a_comparison_lets_each_gateway_add_the_same_text():
    servers, text = module("servers"), 'Skills: "a"\n{b} ü'
    wanted = json.loads(servers.script(text, "And now?"))["turns"][1]
    expect(wanted["rounds"][0]["expect"] == {"system": text}, wanted)
    headers = servers.portkey_headers("http://127.0.0.1:1", text)
    expect(all(value.isascii() and "\n" not in value for value in headers.values()), headers)
    guardrail = json.loads(headers["x-portkey-config"])["input_guardrails"][0]["default.addPrefix"]
    expect(guardrail == {"prefix": f"{text}\n\n", "applyToRole": "system"}, guardrail)
    with tempfile.TemporaryDirectory() as folder:
        config = json.loads(servers.litellm_files(pathlib.Path(folder), "http://127.0.0.1:1", text).read_text())
        expect(config["litellm_settings"]["callbacks"] == "add_text.add_text", config)
        expect(config["model_list"][0]["litellm_params"]["api_base"] == "http://127.0.0.1:1/v1", config)
        # The hook, as LiteLLM imports it.
        logger = types.ModuleType("litellm.integrations.custom_logger")
        logger.CustomLogger = object
        stand_in = {"litellm": types.ModuleType("litellm"), "litellm.integrations": types.ModuleType("litellm.integrations"), logger.__name__: logger}
        sys.modules.update(stand_in)
        try:
            hook = {}
            exec(pathlib.Path(folder, "add_text.py").read_text(), hook)
        finally:
            for name in stand_in:
                del sys.modules[name]
        data = {"messages": [{"role": "system", "content": "Be brief."}]}
        try:
            hook["add_text"].async_pre_call_hook(None, None, data, "completion").send(None)
        except StopIteration as done:
            expect(done.value["messages"][0]["content"] == f"Be brief.\n\n{text}", done.value)


def main_module():
    sys.path.insert(0, f"{ROOT}/benches/peers")
    try:
        return module("main")
    finally:
        sys.path.pop(0)


@case
def a_comparison_starts_knack_and_learns_the_text_that_it_adds():
    program = os.environ.get("KNACK_PROGRAM")
    expect(program, "KNACK_PROGRAM names no program; make test-tools does")
    with tempfile.TemporaryDirectory() as folder:
        text = main_module().learned(pathlib.Path(program), pathlib.Path(folder))
    expect("Use when somebody asks for matter 7." in text, text)


@case
def a_comparison_writes_one_row_for_each_server():
    main = main_module()
    found = {("upstream alone", "p50_2k"): [0.2, 0.3, 0.4], ("Knack", "p50_2k"): [1.0, 2.0, 3.0], ("Knack", "per_second"): [10.0], ("Knack", "resident_mb"): [7.4]}
    with contextlib.redirect_stdout(io.StringIO()):
        rows = main.table(found)
    expect(rows[2:] == ["| upstream alone | 0.30 ms |  |  |  |  |  |", "| Knack | 2.00 ms |  |  |  | 10 | 7 |"], rows)
    expect(len({row.count("|") for row in rows}) == 1, rows)
