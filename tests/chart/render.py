"""Renders the chart for sets of values, each once, several at a time."""

import concurrent.futures
import json
import os
import re
import tempfile

import yaml

from harness import CHART, assert_equal, binary, helm, run

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


def render_all(cases):
    """{name: text} of many sets of values; remembered, since offline and cluster tests ask for the same."""
    if not RENDERED:
        cases = list(cases)
        shares = [cases[share::WORKERS] for share in range(WORKERS)]
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            for share in pool.map(rendered_now, shares):
                RENDERED.update(share)
        # They are by helm's library; the command says the same.
        for name, values in cases[::max(1, len(cases) // COMPARED)]:
            assert_equal(RENDERED[name], render(values), "what helm template prints: " + name)
    return RENDERED


def rendered_now(cases):
    lines = "".join(json.dumps({"name": name, "values": values}) + "\n" for name, values in cases)
    program = os.path.join(os.path.dirname(os.path.realpath(binary("HELM", "helm"))), "helm-renderings")
    answers = [json.loads(line) for line in run([program, "knack", CHART, NAMESPACE], stdin=lines).splitlines()]
    failed = ["%(name)s: %(error)s" % answer for answer in answers if "error" in answer]
    if failed:
        raise AssertionError("%d renderings fail, the first: %s" % (len(failed), failed[0]))
    assert_equal(len(answers), len(cases), "answers of helm-renderings")
    return {answer["name"]: answer["text"] for answer in answers}


def identity(document):
    metadata = document["metadata"]
    return document["apiVersion"], document["kind"], metadata.get("namespace", ""), metadata["name"]
