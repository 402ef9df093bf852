"""The sidecar on a real cluster, shown: an application with the official SDKs gets skills because its namespace has a label.

    tests/sidecar_demo/run.sh            from nothing: brings a cluster up, and down again at the end

Runs inside a shell whose kubectl and helm reach the cluster; nothing of Knack may be on it. Exit code 0 means that every check held.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tests", part) for part in ("chart", "cluster_demo")]

from bed import apply, get, process_of, wait_until
from harness import assert_equal, helm, kubectl
from server import Server
from steps import diagnosis, step

# The application's containers: one for each API, of three official SDKs.
SDKS = ("openai", "responses", "anthropic", "google")
# How long a step may take on an idle machine; `wait_until` has patience with loaded ones.
SECONDS = 120
CHANGES = int(os.environ.get("CHANGES", "100"))
# From kubectl's request to the first answer with the change, on an idle machine.
LIMIT_MS = float(os.environ.get("LIMIT_MS", "500"))
SKILL = {"apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": "adder", "namespace": "team-a"}}
SKILL_PATH = "/apis/knack.dev/v1alpha1/namespaces/team-a/skills/adder"


def spec(edition, **more):
    text = "---\nname: adder\ndescription: Adds two numbers.\n---\nThis is edition-%d. Run scripts/add.py A B.\n" % edition
    files = {"SKILL.md": text, "scripts/add.py": "import sys\nprint(int(sys.argv[1]) + int(sys.argv[2]))\n"}
    return {**SKILL, "spec": {"activation": {"mode": "Always"}, "source": {"inline": {"files": files}}, **more}}


class Said:
    """What a container of the application prints, from now on."""

    def __init__(self, pod, container):
        self.lines = []
        self.child = subprocess.Popen(["kubectl", "logs", "-f", "-n", "team-a", pod, "-c", container], stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.child.stdout:
            self.lines.append(json.loads(line))

    def errors(self):
        return [line for line in list(self.lines) if "error" in line]

    def first(self, text, since):
        """The time of the first answer of this text after a time."""
        return next((line["at"] for line in list(self.lines) if line.get("text") == text and line["at"] > since), None)

    def wait(self, text, since):
        return wait_until("an answer %r" % text, SECONDS, lambda: self.first(text, since))

    def close(self):
        self.child.terminate()
        self.child.wait()


def pod_of(name):
    """The pod of the application that is there to stay."""
    def running():
        pods = [pod for pod in get("pods", "-n", "team-a", "-l", "app=" + name)["items"] if not pod["metadata"].get("deletionTimestamp")]
        return pods[0] if len(pods) == 1 and all(status["ready"] for status in pods[0]["status"].get("containerStatuses", [{"ready": False}])) else None
    return wait_until("one pod of " + name, SECONDS, running)


def install():
    step("helm install; a provider; an application with three official SDKs")
    helm("install", "knack", os.path.join(ROOT, "charts", "knack"), "--namespace", "knack-system", "--create-namespace",
         "--values", os.path.join(ROOT, "tests", "cluster_demo", "values.yaml"), "--wait", "--timeout", "900s")


def application(options):
    with open(os.path.join(HERE, "objects.yaml"), encoding="utf-8") as file:
        objects = file.read().replace("OPENAI_SDK", options.openai).replace("ANTHROPIC_SDK", options.anthropic).replace("GOOGLE_SDK", options.google)
    with open(os.path.join(HERE, "app.py"), encoding="utf-8") as file:
        app = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app", "namespace": "team-a"}, "data": {"app.py": file.read()}}
    apply(objects + "\n---\n" + json.dumps(app))
    kubectl("rollout", "status", "-n", "provider", "deployment/scripted-model", "--timeout=600s")
    pod = pod_of("assistant")
    assert_equal(pod["spec"].get("initContainers"), None, "a pod of a namespace without the label")
    for sdk in SDKS:
        said = Said(pod["metadata"]["name"], sdk)
        said.wait("no skill", 0)
        said.close()


def label():
    step("kubectl label namespace team-a knack.dev/inject=enabled; kubectl rollout restart")
    before = pod_of("assistant")["metadata"]["name"]
    kubectl("label", "namespace", "team-a", "knack.dev/inject=enabled")
    kubectl("rollout", "restart", "-n", "team-a", "deployment/assistant")
    pod = wait_until("a new pod", SECONDS, lambda: next((one for one in [pod_of("assistant")] if one["metadata"]["name"] != before), None))
    assert_equal([c["name"] for c in pod["spec"]["initContainers"]], ["knack-gateway"], "init containers")
    assert_equal(pod["metadata"]["annotations"]["knack.dev/injection"], "injected", "the annotation")
    env = {e["name"]: e.get("value") for e in pod["spec"]["containers"][0]["env"]}
    assert_equal(env["OPENAI_BASE_URL"], "http://127.0.0.1:4141/v1", "OPENAI_BASE_URL")
    states = pod["status"]["initContainerStatuses"][0]
    print("   injected; the sidecar is %s, restarts: %d" % ("started" if states["started"] else "not started", states["restartCount"]))
    return pod["metadata"]["name"]


def changes(server, said):
    """Times from the request of a change to the first answer with it, of each API, ms."""
    times = []
    for edition in range(2, CHANGES + 2):
        begun = time.time()
        server.apply(spec(edition), SKILL_PATH)
        times += [(one.wait("edition %d" % edition, begun) - begun) * 1000 for one in said]
    times.sort()
    return times


def life(server, pod):
    said = [Said(pod, sdk) for sdk in SDKS]
    try:
        for one in said:
            one.wait("no skill", 0)
        step("kubectl apply of a Skill: the next request of the same processes has it, and its code runs in a Job")
        begun = time.time()
        server.apply(spec(1), SKILL_PATH)
        for one in said:
            one.wait("edition 1", begun)
            one.wait("The sum is 42.", begun)
        print("   all APIs after %.1f s, with the runs" % (time.time() - begun))
        jobs = wait_until("Jobs of the skill", SECONDS, lambda: get("jobs", "-n", "knack-sandboxes", "-l", "knack.dev/skill=adder")["items"])
        print("   Jobs: " + ", ".join(job["metadata"]["name"] for job in jobs))
        step("%d changes of the Skill" % CHANGES)
        times = changes(server, said)
        p50, p99 = times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]
        print("   p50 %.0f ms, p99 %.0f ms, longest %.0f ms (limit %.0f ms)" % (p50, p99, times[-1], LIMIT_MS))
        step("suspend, resume, delete")
        for what, change in (("suspended", lambda: server.apply(spec(CHANGES + 1, suspend=True), SKILL_PATH)),
                             ("resumed", lambda: server.apply(spec(CHANGES + 1, suspend=False), SKILL_PATH)),
                             ("deleted", lambda: server.ask("DELETE", SKILL_PATH))):
            begun = time.time()
            change()
            expected = "edition %d" % (CHANGES + 1) if what == "resumed" else "no skill"
            print("   %s after %s ms" % (what, ", ".join("%.0f" % ((one.wait(expected, begun) - begun) * 1000) for one in said)))
        assert_equal([line for one in said for line in one.errors()], [], "errors of the SDKs")
        if p99 > LIMIT_MS:
            raise AssertionError("p99 of a change is %.0f ms, over %.0f ms" % (p99, LIMIT_MS))
    finally:
        for one in said:
            one.close()


def end_sidecar(pod):
    """Ends the sidecar's process, as an out-of-memory kill would."""
    containers = get("pod", "-n", "team-a", pod)["status"]["initContainerStatuses"]
    os.kill(process_of(next(one for one in containers if one["name"] == "knack-gateway")), signal.SIGKILL)


def without_hub(server, pod):
    step("the hub goes, and the sidecar is killed: it starts again with the catalog that its emptyDir has")
    server.apply(spec(CHANGES + 2), SKILL_PATH)
    text = "edition %d" % (CHANGES + 2)
    said = [Said(pod, sdk) for sdk in SDKS]
    try:
        for one in said:
            one.wait(text, 0)
        # What changed in the last two seconds before a crash may be missing (docs/sidecar.md).
        time.sleep(3)
        kubectl("scale", "-n", "knack-system", "deployment/knack-hub", "--replicas=0")
        wait_until("no hub", SECONDS, lambda: not get("pods", "-n", "knack-system", "-l", "app.kubernetes.io/component=hub")["items"])
        end_sidecar(pod)
        sidecar = lambda: get("pod", "-n", "team-a", pod)["status"]["initContainerStatuses"][0]
        wait_until("the sidecar is back", SECONDS, lambda: sidecar()["restartCount"] == 1 and sidecar()["started"])
        since = time.time()
        for one in said:
            one.wait(text, since)
        print("   all APIs have the skill; restarts of the sidecar: %d, hubs: 0" % sidecar()["restartCount"])
        kubectl("scale", "-n", "knack-system", "deployment/knack-hub", "--replicas=1")
        kubectl("rollout", "status", "-n", "knack-system", "deployment/knack-hub", "--timeout=600s")
        since = time.time()
        server.ask("DELETE", SKILL_PATH)
        for one in said:
            one.wait("no skill", since)
        print("   the hub is back, and the skill that was deleted is gone from all APIs")
    finally:
        for one in said:
            one.close()


def job():
    step("a Job with the sidecar completes when its application ends")
    kubectl("patch", "job", "-n", "team-a", "report", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    done = wait_until("the Job completes", SECONDS, lambda: next((one for one in [get("job", "-n", "team-a", "report")] if one["status"].get("succeeded")), None))
    pod = get("pods", "-n", "team-a", "-l", "batch.kubernetes.io/job-name=report")["items"][0]
    assert_equal(pod["spec"]["initContainers"][0]["name"], "knack-gateway", "the Job's sidecar")
    ended = [status["state"]["terminated"] for status in pod["status"]["containerStatuses"] + pod["status"]["initContainerStatuses"]]
    print("   %s; application ended %s, sidecar %s with exit code %d" % (done["status"]["completionTime"], ended[0]["finishedAt"], ended[1]["finishedAt"], ended[1]["exitCode"]))
    assert_equal(ended[1]["exitCode"], 0, "exit code of the sidecar")


def trust():
    step("knack-ca deleted: it comes back as it was")
    trusted = get("configmap", "-n", "team-a", "knack-ca")["data"]
    kubectl("delete", "configmap", "-n", "team-a", "knack-ca")
    wait_until("knack-ca is back", SECONDS, lambda: "knack-ca" in kubectl("get", "configmaps", "-n", "team-a", "-o", "name"))
    assert_equal(get("configmap", "-n", "team-a", "knack-ca")["data"], trusted, "what is trusted")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--openai", required=True, help="folder with the OpenAI SDK")
    parser.add_argument("--anthropic", required=True, help="folder with the Anthropic SDK")
    parser.add_argument("--google", required=True, help="folder with the Google SDK")
    options = parser.parse_args()
    begun = time.monotonic()
    try:
        install()
        application(options)
        with Server() as server:
            pod = label()
            life(server, pod)
            without_hub(server, pod)
        job()
        trust()
    except Exception as error:  # Whatever went wrong, the cluster's state is shown before the exit code says so.
        print("\nDEMO FAILED: %s: %s" % (type(error).__name__, error))
        diagnosis(*(["-n", "team-a", "-l", "app=assistant", "-c", container, "--tail=30"] for container in ("knack-gateway", "openai")),
                  *(["-n", "knack-system", "deployment/knack-" + part, "--tail=30"] for part in ("controller", "hub")))
        sys.exit(1)
    print("\nsidecar demo ok: %.0f s" % (time.monotonic() - begun))


if __name__ == "__main__":
    main()
