"""Everything of the release is rolled out anew while clients ask through its Service: no answer is cut, and none is refused."""

import calendar
import http.client
import json
import threading
import time
import urllib.request

from bed import get, wait_until
from drained import ANSWER
from harness import assert_equal, kubectl

PARTS = ("controller", "hub", "gateway")
# What clients ask, one request after the other: a stream of some 9 s, and a run of the skill's code.
QUESTIONS = {"take your time": ANSWER, "please add 19 and 23": "The sum is 42."}
# Clients of each question. Streams begin some seconds apart, so that the end of a pod meets each part of one.
CLIENTS = 3
# Seconds after which a new owner refuses nothing for a pod that is gone: clocks of gateways may differ by a minute.
SETTLED = 65
# Answers of each client after the rollout.
MORE = 2


def asked(url, words):
    """The text of a streamed answer."""
    body = json.dumps({"model": "knack-test", "stream": True, "messages": [{"role": "user", "content": words}]}).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json", "authorization": "Bearer test"})
    text, opener = "", urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=300) as answer:
        for line in answer:
            if line.strip() == b"data: [DONE]":
                return text
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if "choices" not in event:
                    return "%s (then %s)" % (text, event)
                text += "".join(choice["delta"].get("content") or "" for choice in event["choices"])
    return text + " (cut)"


class Client(threading.Thread):
    def __init__(self, url, words, begins):
        super().__init__(daemon=True)
        self.url, self.words, self.begins = url, words, begins
        self.right, self.wrong, self.stopped = 0, [], False

    def run(self):
        time.sleep(self.begins)
        while not self.stopped:
            begun = time.strftime("%T")
            try:
                text = asked(self.url, self.words)
            except (OSError, http.client.HTTPException) as error:
                text = repr(error)
            if text == QUESTIONS[self.words]:
                self.right += 1
            else:
                self.wrong.append("%s to %s, %s: %s" % (begun, time.strftime("%T"), self.words, text))


def pods_of(cluster):
    pods = get("pods", "-n", cluster.NAMESPACE, "-l", "app.kubernetes.io/name=knack")["items"]
    return {pod["metadata"]["name"] for pod in pods}


def newest_end_without_run(cluster):
    """When the last Job ended whose pod went before anybody could read what it ran, as Unix time; 0 without one."""
    jobs = get("jobs", "-n", cluster.SANDBOXES, "-l", "knack.dev/role=sandbox,!knack.dev/execution")["items"]
    ends = [condition["lastTransitionTime"] for job in jobs for condition in job["status"].get("conditions", []) if condition["type"] in ("Complete", "Failed")]
    return max([calendar.timegm(time.strptime(end, "%Y-%m-%dT%H:%M:%SZ")) for end in ends], default=0)


def cuts_nothing(cluster):
    # The drain before took pods with it. For a minute after that a new owner of the runtime refuses ids that it does not know, since it
    # cannot tell whether they ran there (docs/design/decisions.md#identity-and-at-most-once).
    wait_until("what drained pods ran is a minute ago", 120, lambda: time.time() > newest_end_without_run(cluster) + SETTLED, lambda: str(newest_end_without_run(cluster)))
    service = get("service", "-n", cluster.NAMESPACE, "knack-gateway")["spec"]
    url = "http://%s:%d/v1/chat/completions" % (service["clusterIP"], service["ports"][0]["port"])
    clients = [Client(url, words, 3 * number) for words in QUESTIONS for number in range(CLIENTS)]
    state = lambda: "\n".join("%s: %d right, wrong: %s" % (one.words, one.right, one.wrong) for one in clients)
    before = pods_of(cluster)
    for one in clients:
        one.start()
    try:
        wait_until("each client has an answer", 180, lambda: all(one.right for one in clients), state)
        deployments = ["deployment/knack-" + part for part in PARTS]
        kubectl("rollout", "restart", "-n", cluster.NAMESPACE, *deployments)
        for deployment in deployments:
            kubectl("rollout", "status", "-n", cluster.NAMESPACE, deployment, "--timeout=600s")
        wait_until("the pods of before are gone", 300, lambda: not before & pods_of(cluster), state)
        enough = {one: one.right + MORE for one in clients}
        wait_until("each client has more answers", 240, lambda: all(one.right >= least for one, least in enough.items()), state)
    finally:
        for one in clients:
            one.stopped = True
        for one in clients:
            one.join()
    assert_equal([wrong for one in clients for wrong in one.wrong], [], "answers that were cut or refused")
    return "%d answers, %d pods replaced" % (sum(one.right for one in clients), len(before))


def tests(report, cluster):
    report.check("a rollout of controller, hub and gateway cuts no answer and refuses none", lambda: cuts_nothing(cluster))
