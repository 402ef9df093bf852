"""A pod with the sidecar, really run: its namespace has a label, it knows nothing of Knack, and its requests carry skills."""

import json
import os
import re
import signal
import subprocess
import threading

from bed import apply, exists, get, process_of, wait_until
from harness import BED, CHART, assert_equal, helm, kubectl, run
from injection import program

# Pods that have to be created before, while and after the API server is away: enough for some in its first second.
PODS_AROUND_A_RESTART = 20

# Asks until an answer holds a skill: the first catalog may come after the first request.
APP = """
import json, os, time, urllib.request
body = json.dumps({"model": "knack-test", "messages": [{"role": "user", "content": "which skills"}]}).encode()
while True:
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body,
                                     {"content-type": "application/json", "authorization": "Bearer key"})
    try:
        text = urllib.request.urlopen(request, timeout=30).read().decode()
    except urllib.error.HTTPError as error:
        text = error.read().decode()
    print(text, flush=True)
    if '<skill name=' in text:
        break
    time.sleep(0.2)
"""

# The status of a request to the place of the MCP server; 404 is the provider's, to whom everything else goes.
ASK_MCP = """
import urllib.error, urllib.request
try:
    print(urllib.request.urlopen("http://127.0.0.1:4141/mcp", timeout=30).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


def pod(cluster):
    """As strict as a namespace may ask for, and without a token of the API server."""
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "unchanged", "namespace": cluster.SKILLS},
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "app", "image": cluster.values()["sandbox"]["images"]["python"], "command": ["/usr/bin/python3", "-c", APP],
                "env": [{"name": "OPENAI_BASE_URL", "value": "http://mock.%s.svc:8080/v1" % cluster.SKILLS}],
                "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    }


# The webhook has two seconds for a call. A busy machine may take longer, and then the pod starts without its sidecar, as it should: how
# often a pod is made, and why the API server says that it did so. It may also answer before it knows the cluster's Services.
CREATIONS = 3
LATE = re.compile(r"failing open \S*injection\.knack\.dev: .*(deadline exceeded|imeout exceeded|service \S+ not found)")


def is_injected(made):
    return made["metadata"].get("annotations", {}).get("knack.dev/injection") == "injected"


def asks_for_sidecars(cluster):
    """Labels the namespace; what decides about a pod knows of it a moment later."""
    kubectl("label", "namespace", cluster.SKILLS, "knack.dev/inject=enabled", "--overwrite")
    text = json.dumps(pod(cluster))
    wait_until("the label of the namespace has an effect", 60, lambda: is_injected(json.loads(kubectl("create", "--dry-run=server", "-f", "-", "-o", "json", stdin=text))))


def injected(cluster, one, creations):
    """Creates the pod, and makes it again if it has no sidecar, so often in all."""
    for _ in range(creations):
        if is_injected(json.loads(kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(one)))):
            return
        kubectl("delete", "pod", "-n", cluster.SKILLS, one["metadata"]["name"], "--wait=true")
    raise AssertionError("a pod without its sidecar, %d times" % creations)


def late_calls():
    """How many calls of the webhook came too late since the API server's log began."""
    with open(os.path.join(os.path.dirname(os.environ["KUBECONFIG"]), "log", "apiserver.log"), encoding="utf-8", errors="replace") as log:
        return sum(bool(LATE.search(line)) for line in log)


def completed(cluster, one, creations=1):
    """What became of a pod whose application ends at the first answer with a skill; the pod completes with it."""
    try:
        injected(cluster, one, creations)
        done = wait_until("the pod completes", 120, lambda: next(
            (one for one in [get("pod", "-n", cluster.SKILLS, "unchanged")] if one["status"]["phase"] == "Succeeded"), None))
    finally:
        kubectl("delete", "pod", "-n", cluster.SKILLS, "unchanged", "--ignore-not-found", "--wait=true")
    assert_equal(done["metadata"]["annotations"]["knack.dev/injection"], "injected", "the annotation")
    sidecar = done["status"]["initContainerStatuses"][0]
    assert_equal((sidecar["name"], sidecar["restartCount"], sidecar["state"]["terminated"]["exitCode"]), ("knack-gateway", 0, 0), "the sidecar")
    return done


def carries_skills(cluster):
    """From the namespace's label to the answer."""
    asks_for_sidecars(cluster)
    try:
        wait_until("knack-ca", 60, lambda: exists("configmap", "-n", cluster.SKILLS, "knack-ca"))
        completed(cluster, pod(cluster))
    finally:
        kubectl("label", "namespace", cluster.SKILLS, "knack.dev/inject-")


def completes_as_a_job(cluster):
    """A Job of a CronJob ends with its application, and each of its pods had the sidecar."""
    asks_for_sidecars(cluster)
    template = {"spec": pod(cluster)["spec"]}
    nightly = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly", "namespace": cluster.SKILLS},
               "spec": {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": {"template": template}}}}
    try:
        apply(json.dumps(nightly))
        kubectl("create", "job", "-n", cluster.SKILLS, "tonight", "--from=cronjob/nightly")
        kubectl("wait", "-n", cluster.SKILLS, "job/tonight", "--for=condition=Complete", "--timeout=180s")
        made = json.loads(kubectl("get", "pods", "-n", cluster.SKILLS, "-l", "batch.kubernetes.io/job-name=tonight", "-o", "json"))["items"]
        assert_equal([(is_injected(one), one["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"]) for one in made], [(True, 0)], "its pods")
    finally:
        kubectl("delete", "cronjob/nightly", "job/tonight", "-n", cluster.SKILLS, "--ignore-not-found", "--wait=true")
        kubectl("label", "namespace", cluster.SKILLS, "knack.dev/inject-")


def traced(cluster):
    """`knack trace -n NAMESPACE` finds the sidecar of a running pod by a forwarded port, and shows its requests."""
    asks_for_sidecars(cluster)
    one = pod(cluster)
    one["metadata"]["name"] = "traced"
    # It stays when its answer has a skill.
    one["spec"]["terminationGracePeriodSeconds"] = 1
    one["spec"]["containers"][0]["command"][-1] = APP + "time.sleep(3600)\n"
    try:
        apply(json.dumps(one))
        wait_until("a request with a skill", 120, lambda: "<skill name=" in kubectl("logs", "-n", cluster.SKILLS, "traced", "-c", "app", expect=None)[1])
        # The report is there when the answer is over, a moment after the client has it.
        # A port that a busy API server does not forward is asked for again.
        def shown(*words):
            code, out, _ = run([program(), "trace", *words, "-n", cluster.SKILLS], expect=None)
            return out if code == 0 else ""

        listed = wait_until("a request in the list", 60, lambda: [line for line in shown().splitlines() if "skills: none |" not in line])
        request, begun = listed[-1].split()[:2]
        page = wait_until("the page of the request", 60, lambda: shown(request))
        for word in (request, begun, "200 chat knack-test", "round 1: provider 200"):
            if word not in page:
                raise AssertionError("%r is not in\n%s" % (word, page))
        # Of another namespace it learns nothing, and says so.
        code, _, stderr = run([program(), "trace", request, "-n", "default"], expect=None)
        assert_equal((code == 0, "no pod of namespace default runs a gateway" in stderr), (False, True), stderr)
    finally:
        kubectl("delete", "pod", "-n", cluster.SKILLS, "traced", "--ignore-not-found", "--wait=true")
        kubectl("label", "namespace", cluster.SKILLS, "knack.dev/inject-")


def keeps_and_takes_settings(cluster):
    """`knack-sidecar` is deleted and made again while a pod runs: its sidecar stays as it is, and starts with what is there then."""
    if subprocess.run([BED, "status"], capture_output=True).returncode:
        return "not run: this cluster is not the test bed"
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "knack-sidecar", "namespace": cluster.SKILLS}, "data": {"KNACK_MCP": "true"}}
    one = pod(cluster)
    one["metadata"]["name"] = "settled"
    one["spec"]["terminationGracePeriodSeconds"] = 1
    one["spec"]["containers"][0]["command"][-1] = APP + "time.sleep(3600)\n"

    def inside(code):
        return kubectl("exec", "-n", cluster.SKILLS, "settled", "-c", "app", "--", "/usr/bin/python3", "-c", code, expect=None)

    def answers(serves_mcp):
        """Requests carry skills, and /mcp is served or not."""
        wait_until("a request with a skill", 60, lambda: inside("import signal; signal.alarm(30)\n" + APP)[0] == 0)
        status = wait_until("a status of /mcp", 60, lambda: inside(ASK_MCP)[1].strip())
        assert_equal(status != "404", serves_mcp, "whether /mcp is served, which answered " + status)

    def restarted():
        """Kills the sidecar, and waits for the next one; the application goes on."""
        before = get("pod", "-n", cluster.SKILLS, "settled")["status"]
        count = before["initContainerStatuses"][0]["restartCount"]
        os.kill(process_of(before["initContainerStatuses"][0]), signal.SIGKILL)
        after = wait_until("the next sidecar", 60, lambda: next((status for status in [get("pod", "-n", cluster.SKILLS, "settled")["status"]] if
                           status["initContainerStatuses"][0]["restartCount"] > count and status["initContainerStatuses"][0].get("started")), None))
        assert_equal(after["containerStatuses"][0]["restartCount"], 0, "restarts of the application")

    asks_for_sidecars(cluster)
    try:
        apply(json.dumps(settings))
        apply(json.dumps(one))
        wait_until("the pod", 120, lambda: get("pod", "-n", cluster.SKILLS, "settled")["status"]["phase"] == "Running")
        answers(True)
        kubectl("delete", "configmap", "-n", cluster.SKILLS, "knack-sidecar")
        answers(True)
        restarted()
        answers(False)
        apply(json.dumps(settings))
        answers(False)
        restarted()
        answers(True)
        # What it trusts comes back as it was, and the next sidecar starts with it.
        trusted = get("configmap", "-n", cluster.SKILLS, "knack-ca")["data"]
        kubectl("delete", "configmap", "-n", cluster.SKILLS, "knack-ca")
        answers(True)
        wait_until("knack-ca again", 120, lambda: exists("configmap", "-n", cluster.SKILLS, "knack-ca"))
        assert_equal(get("configmap", "-n", cluster.SKILLS, "knack-ca")["data"], trusted, "what is trusted")
        restarted()
        answers(True)
    finally:
        kubectl("delete", "pod", "-n", cluster.SKILLS, "settled", "--ignore-not-found", "--wait=true")
        kubectl("delete", "configmap", "-n", cluster.SKILLS, "knack-sidecar", "--ignore-not-found")
        kubectl("label", "namespace", cluster.SKILLS, "knack.dev/inject-")


def delivered_by(cluster, delivery, kind, other, authorities="ConfigMap"):
    """Upgrades to a delivery, until the other one is gone: the old one stays until the new one is known to be called."""
    def upgraded():
        helm("upgrade", cluster.RELEASE, CHART, "--namespace", cluster.NAMESPACE, "--wait", "--timeout", "%ds" % cluster.READY_SECONDS,
             *cluster.value_flags("--set", "injection.delivery=" + delivery, "--set", "injection.authorities=" + authorities))
        name = cluster.CLUSTER_PREFIX + "-injection"
        return exists(kind, name) and not exists(other, name)
    wait_until("the delivery " + delivery, 120, upgraded)


def by_the_webhook(cluster):
    """By the chart's own Service: the API server calls the controller in its pod, with the authority that the controller wrote.
    Sidecars trust the hub by a ClusterTrustBundle meanwhile, and their namespace gets no copy."""
    delivered_by(cluster, "Webhook", "mutatingwebhookconfiguration", "mutatingadmissionpolicy", "ClusterTrustBundle")
    kubectl("delete", "configmap", "-n", cluster.SKILLS, "knack-ca", "--ignore-not-found")
    wait_until("the ClusterTrustBundle", 60, lambda: exists("clustertrustbundle", cluster.CLUSTER_PREFIX + "-hub-ca"))
    asks_for_sidecars(cluster)
    try:
        done = completed(cluster, pod(cluster), CREATIONS)
    finally:
        kubectl("label", "namespace", cluster.SKILLS, "knack.dev/inject-")
    assert_equal([volume["projected"]["sources"][0]["clusterTrustBundle"]["name"] for volume in done["spec"]["volumes"] if volume["name"] == "knack-ca"],
                 [cluster.CLUSTER_PREFIX + "-hub-ca"], "the volume")
    assert_equal(exists("configmap", "-n", cluster.SKILLS, "knack-ca"), False, "a copy in the namespace")


def by_the_policy_again(cluster):
    """With ConfigMaps, as before. The ClusterTrustBundle stays for pods that mount it, until somebody deletes it."""
    delivered_by(cluster, "Policy", "mutatingadmissionpolicy", "mutatingwebhookconfiguration")
    kubectl("delete", "clustertrustbundle", cluster.CLUSTER_PREFIX + "-hub-ca", "--ignore-not-found")


def survives_a_restart(cluster):
    """The API server is killed and started while pods are created: each that it took has its sidecar."""
    if subprocess.run([BED, "status"], capture_output=True).returncode:
        return "not run: this cluster is not the test bed"
    asks_for_sidecars(cluster)
    taken, over, late = [], threading.Event(), late_calls()

    def create():
        number = 0
        while not over.is_set():
            number += 1
            one = pod(cluster)
            one["metadata"]["name"] = "around-%d" % number
            # It need not start: what is asked is what the API server made of it.
            one["spec"]["schedulerName"] = "nobody"
            code, out, _ = kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(one), expect=None)
            if code == 0:
                taken.append(json.loads(out))

    creating = threading.Thread(target=create)
    creating.start()
    try:
        wait_until("pods before", 60, lambda: len(taken) >= PODS_AROUND_A_RESTART // 2)
        subprocess.run([BED, "kill", "apiserver"], check=True, capture_output=True)
        before = len(taken)
        subprocess.run([BED, "start", "apiserver"], check=True, capture_output=True)
        wait_until("pods after", 120, lambda: len(taken) >= before + PODS_AROUND_A_RESTART)
    finally:
        over.set()
        creating.join()
        kubectl("delete", "pods", "-n", cluster.SKILLS, "--field-selector=spec.schedulerName=nobody", "--grace-period=0", "--force", "--wait=false", expect=None)
        kubectl("label", "namespace", cluster.SKILLS, "knack.dev/inject-")
    without = [one["metadata"]["name"] for one in taken if [c["name"] for c in one["spec"].get("initContainers", [])] != ["knack-gateway"]]
    # At most a quarter, so that some are sure to be judged; by the policy none is late.
    if len(without) > min(late_calls() - late, len(taken) // 4):
        assert_equal(without, [], "pods without their sidecar, of %d, %d before the restart" % (len(taken), before))
    return "%d pods, %d of them after" % (len(taken), len(taken) - before)


def tests(report, cluster):
    report.check("a pod of a labelled namespace carries skills", lambda: carries_skills(cluster))
    report.check("a Job of a CronJob completes with its application", lambda: completes_as_a_job(cluster))
    report.check("knack trace shows the requests of a sidecar", lambda: traced(cluster))
    report.check("the settings of a namespace are deleted and come back while a pod runs", lambda: keeps_and_takes_settings(cluster))
    report.check("an API server that restarts makes no labelled pod without its sidecar, by the policy", lambda: survives_a_restart(cluster))
    if report.check("by the webhook, through its Service", lambda: by_the_webhook(cluster)):
        report.check("an API server that restarts makes no labelled pod without its sidecar, by the webhook", lambda: survives_a_restart(cluster))
    report.check("by the policy again", lambda: by_the_policy_again(cluster))
