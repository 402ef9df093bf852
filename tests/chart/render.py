"""Renders the chart for sets of values, each once, several at a time."""

import concurrent.futures
import hashlib
import json
import os
import re
import tempfile

import yaml

from harness import CHART, ROOT, assert_equal, binary, helm, run

NAMESPACE = "chart-knack"
# Two, since a test machine has two cores.
WORKERS = int(os.environ.get("KNACK_CHART_WORKERS", "2"))
# Renderings of which helm's command is asked, too.
COMPARED = 50
RENDERED = {}
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def render(values, release="knack", namespace=NAMESPACE, chart=CHART, expect=0, extra=()):
    """The text of a rendering."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values, file)
        file.flush()
        return helm("template", release, chart, "--namespace", namespace, "--values", file.name, *extra, expect=expect)


def documents(text):
    return [document for document in yaml.load_all(text, LOADER) if document]


# Thousands of renderings have few distinct documents.
PARSED = {}


def shared_documents(text):
    """(key, document) of each document, for looks at thousands of renderings: equal texts are one object and have one key, so nobody changes them."""
    found = []
    for part in re.split(r"(?m)^---[ ]*$", text):
        if part not in PARSED:
            PARSED[part] = documents(part)
            assert len(PARSED[part]) < 2, part
        found += [(part, document) for document in PARSED[part]]
    return found


def render_all(cases, written=False):
    """{name: text} of many sets of values. Offline and cluster tests ask for the same, in one process or in two: they are written
    down, and with `written` those are taken that another process made of the same values, chart and program."""
    if not RENDERED:
        cases = list(cases)
        key = inputs(cases)
        if written and (found := read_renderings(key)):
            RENDERED.update(found)
            return RENDERED
        shares = [cases[share::WORKERS] for share in range(WORKERS)]
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            for share in pool.map(rendered_now, shares):
                RENDERED.update(share)
        # They are by helm's library; the command says the same.
        for name, values in cases[::max(1, len(cases) // COMPARED)]:
            assert_equal(RENDERED[name], render(values), "what helm template prints: " + name)
        write_renderings(key)
    return RENDERED


WRITTEN = os.path.join(os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target"), "chart-renderings.json")
BETWEEN = "\n---\n"


def inputs(cases):
    """A digest of all that decides what the renderings are."""
    digest = hashlib.sha256(json.dumps(cases).encode())
    files = [os.path.join(folder, name) for folder, _, names in os.walk(CHART) for name in names]
    for path in sorted(files) + [renderer()]:
        with open(path, "rb") as file:
            digest.update(("%s %s\n" % (path, hashlib.sha256(file.read()).hexdigest())).encode())
    return digest.hexdigest()


def write_renderings(key):
    """Each distinct part once: all texts together are a hundred times as long."""
    parts = {}
    texts = {name: [parts.setdefault(part, len(parts)) for part in text.split(BETWEEN)] for name, text in RENDERED.items()}
    os.makedirs(os.path.dirname(WRITTEN), exist_ok=True)
    with open("%s.%d" % (WRITTEN, os.getpid()), "w") as file:
        json.dump({"key": key, "parts": list(parts), "texts": texts}, file)
    os.replace(file.name, WRITTEN)


def read_renderings(key):
    """Those of this key, or nothing."""
    try:
        with open(WRITTEN) as file:
            found = json.load(file)
    except FileNotFoundError:
        return {}
    if found["key"] != key:
        return {}
    return {name: BETWEEN.join(found["parts"][number] for number in numbers) for name, numbers in found["texts"].items()}


# All cases in one command, which computes without a wait: a minute alone, and several as what gives way to other suites.
RENDERING_SECONDS = 900


def renderer():
    """The program that renders by helm's library."""
    return os.path.join(os.path.dirname(os.path.realpath(binary("HELM", "helm"))), "helm-renderings")


def rendered_now(cases):
    lines = "".join(json.dumps({"name": name, "values": values}) + "\n" for name, values in cases)
    answers = [json.loads(line) for line in run([renderer(), "knack", CHART, NAMESPACE], stdin=lines, seconds=RENDERING_SECONDS).splitlines()]
    failed = ["%(name)s: %(error)s" % answer for answer in answers if "error" in answer]
    if failed:
        raise AssertionError("%d renderings fail, the first: %s" % (len(failed), failed[0]))
    assert_equal(len(answers), len(cases), "answers of helm-renderings")
    return {answer["name"]: answer["text"] for answer in answers}


def identity(document):
    metadata = document["metadata"]
    return document["apiVersion"], document["kind"], metadata.get("namespace", ""), metadata["name"]
