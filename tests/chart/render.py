"""Renders the chart for sets of values, each once, several at a time."""

import concurrent.futures
import json
import os
import tempfile

import yaml

from harness import CHART, helm

NAMESPACE = "chart-knack"
# Two, since a test machine has two cores and helm is one process per rendering.
WORKERS = int(os.environ.get("KNACK_CHART_WORKERS", "2"))
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


def render_all(cases):
    """{name: text} of many sets of values; remembered, since offline and cluster tests ask for the same."""
    if not RENDERED:
        RENDERED.update(rendered_now(cases))
    return RENDERED


def rendered_now(cases):
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        futures = {name: pool.submit(render, values) for name, values in cases}
        return {name: future.result() for name, future in futures.items()}


def identity(document):
    metadata = document["metadata"]
    return document["apiVersion"], document["kind"], metadata.get("namespace", ""), metadata["name"]
