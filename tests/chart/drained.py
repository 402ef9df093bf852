"""A pod with the sidecar on a node that is drained: the application ends its request through the sidecar, then both end."""

import json
import subprocess

from bed import apply, get, wait_until
from harness import ENVIRONMENT, assert_equal, binary, kubectl
from sidecars import asks_for_sidecars, pod

NAME = "drained"
GRACE_SECONDS = 60
# Far more than pods have to end.
DRAIN_SECONDS = 300
# Keeps the object of the pod until the test has read how its containers ended.
KEPT = "chart-test.knack.dev/kept"
ANSWER = "Word by word this answer comes through the sidecar of a pod that ends."

# Streams one answer after the other. Told to end, it reads the one under way to its end, asks once more, and says what it got.
APP = """
import json, os, signal, time, urllib.error, urllib.request
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(time.monotonic()))

def ask():
    body = json.dumps({"model": "knack-test", "stream": True, "messages": [{"role": "user", "content": "take your time"}]}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body,
                                     {"content-type": "application/json", "authorization": "Bearer key"})
    words = ""
    with urllib.request.urlopen(request, timeout=50) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                piece = "".join(choice["delta"].get("content") or "" for choice in json.loads(line[6:])["choices"])
                if piece and not words:
                    print("an answer has begun", flush=True)
                words += piece
    return words

while True:
    begun = time.monotonic()
    try:
        words = ask()
    except urllib.error.HTTPError as error:
        # Without a catalog yet: the model misses the skill.
        print(error.read().decode(), flush=True)
        time.sleep(0.2)
        continue
    if told and begun < told[0]:
        break
with open("/dev/termination-log", "w") as log:
    json.dump([words, ask()], log)
"""


def drained_pod(cluster):
    one = pod(cluster)
    one["metadata"].update(name=NAME, labels={"app": NAME}, finalizers=[KEPT])
    one["spec"]["terminationGracePeriodSeconds"] = GRACE_SECONDS
    one["spec"]["containers"][0]["command"][-1] = APP
    return one


def ended(namespace):
    """The pod, once both containers have ended."""
    one = get("pod", "-n", namespace, NAME)
    statuses = one["status"]["initContainerStatuses"] + one["status"]["containerStatuses"]
    return one if all("terminated" in status["state"] for status in statuses) else None


def drain(node, selector):
    """`kubectl drain` of a node, begun: of these pods alone, since a test's cluster has one node. Every sidecar has an emptyDir."""
    return subprocess.Popen([binary("KUBECTL", "kubectl"), "drain", node, "--pod-selector=" + selector, "--force", "--delete-emptydir-data", "--timeout=%ds" % DRAIN_SECONDS],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)


def ends_its_request(cluster):
    asks_for_sidecars(cluster)
    node, draining = None, None
    try:
        apply(json.dumps(drained_pod(cluster)))
        wait_until("an answer has begun", 60, lambda: "an answer has begun" in kubectl("logs", "-n", cluster.SKILLS, NAME, "-c", "app", expect=None)[1])
        node = get("pod", "-n", cluster.SKILLS, NAME)["spec"]["nodeName"]
        draining = drain(node, "app=" + NAME)
        one = wait_until("both containers have ended", GRACE_SECONDS, lambda: ended(cluster.SKILLS))
        sidecar, app = (one["status"][kind][0]["state"]["terminated"] for kind in ("initContainerStatuses", "containerStatuses"))
        # One that is killed at the end of the grace period ends with 137.
        assert_equal((app["exitCode"], sidecar["exitCode"]), (0, 0), "how application and sidecar ended")
        assert_equal(json.loads(app["message"]), [ANSWER, ANSWER], "the answer under way, and one that was asked for afterwards")
        # Times without fractions of a second, all of one form.
        order = [app["finishedAt"], sidecar["finishedAt"], one["metadata"]["deletionTimestamp"]]
        assert_equal(order, sorted(order), "the application ends, then the sidecar, then the grace period")
        keep_no_longer(cluster.SKILLS)
        told = draining.communicate(timeout=120)[0]
        assert_equal(draining.returncode, 0, told)
        return " < ".join(time[11:19] for time in order)
    finally:
        keep_no_longer(cluster.SKILLS)
        kubectl("delete", "pod", "-n", cluster.SKILLS, NAME, "--ignore-not-found", "--wait=true", "--timeout=120s", expect=None)
        if draining:
            draining.kill()
            draining.wait()
        if node:
            kubectl("uncordon", node)
        kubectl("label", "namespace", cluster.SKILLS, "knack.dev/inject-")


def keep_no_longer(namespace):
    kubectl("patch", "pod", "-n", namespace, NAME, "--type=merge", "-p", '{"metadata": {"finalizers": null}}', expect=None)


def tests(report, cluster):
    report.check("a pod on a node that is drained ends its request through the sidecar, then both end", lambda: ends_its_request(cluster))
