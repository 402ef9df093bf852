"""The node of the hub and of its sandboxes is drained while code runs: each run ends where it began, once."""

import http.client
import json
import threading

from bed import get, wait_until
from drained import DRAIN_SECONDS, drain
from harness import assert_equal, kubectl
from rollout import asked

WORDS = "sleep for eight seconds"
RUNS = 4
# Both labels of pods; `kubectl drain` takes one selector.
SELECTORS = ("app.kubernetes.io/component=hub", "knack.dev/role=sandbox")


def ended(cluster):
    """Jobs in which a run has ended well, by the record that the hub writes, also one that ends, before the next may own them. A warm
    pod that was claimed and evicted before it began has a Job that succeeded, and a record that says so."""
    found = get("jobs", "-n", cluster.SANDBOXES, "-l", SELECTORS[1] + ",knack.dev/execution")["items"]
    records = {job["metadata"]["name"]: job["metadata"].get("annotations", {}).get("knack.dev/result", "{}") for job in found}
    return {name for name, record in records.items() if json.loads(record).get("status") == "success"}


def started(cluster):
    """Pods that have begun a run, by their journals: the Job of a warm pod has the labels of its run only at its end."""
    lines = kubectl("logs", "-n", cluster.SANDBOXES, "-l", SELECTORS[1], "--tail=-1", "--prefix", expect=None)[1].splitlines()
    return {line.split()[0] for line in lines if '"type":"started"' in line}


def says(url, words):
    """The text of an answer, or why there is none."""
    try:
        return asked(url, words)
    except (OSError, http.client.HTTPException) as error:
        return repr(error)


def loses_no_run(cluster):
    service = get("service", "-n", cluster.NAMESPACE, "knack-gateway")["spec"]
    url = "http://%s:%d/v1/chat/completions" % (service["clusterIP"], service["ports"][0]["port"])
    answers, before, begun, drains = [], ended(cluster), started(cluster), []

    clients = [threading.Thread(target=lambda: answers.append(says(url, WORDS)), daemon=True) for _ in range(RUNS)]
    node = get("pods", "-n", cluster.NAMESPACE, "-l", SELECTORS[0])["items"][0]["spec"]["nodeName"]
    try:
        for client in clients:
            client.start()
        wait_until("%d runs have begun" % RUNS, 30, lambda: len(started(cluster) - begun) >= RUNS, lambda: repr(answers))
        drains = [drain(node, selector) for selector in SELECTORS]
        for process in drains:
            told = process.communicate(timeout=DRAIN_SECONDS + 60)[0]
            assert_equal(process.returncode, 0, told)
            if "evicting pod" not in told:
                raise AssertionError("nothing was evicted: " + told)
        phases = lambda: [pod["status"]["phase"] for pod in get("pods", "-n", cluster.NAMESPACE, "-l", SELECTORS[0])["items"]]
        wait_until("the next hub waits for a node", 20, lambda: phases() == ["Pending"], lambda: repr(phases()))
        for client in clients:
            client.join(timeout=120)
    finally:
        kubectl("uncordon", node)
        for process in drains:
            process.kill()
            process.wait()
    # Each run prints a value of its own.
    assert_equal(len({answer for answer in answers if answer.startswith("slept ")}), RUNS, "answers: %s" % answers)
    wait_until("each run has ended in a Job of its own", 15, lambda: len(ended(cluster) - before) == RUNS, lambda: repr(ended(cluster) - before))
    kubectl("rollout", "status", "-n", cluster.NAMESPACE, "deployment/knack-hub", "--timeout=800s")
    cluster.gateway_has_the_skill(60)
    wait_until("the next hub runs code", 60, lambda: says(url, "please add 19 and 23") == "The sum is 42.")


def tests(report, cluster):
    report.check("a drain of the node of the hub and its sandboxes loses no run", lambda: loses_no_run(cluster))
