"""The main job on a real cluster, shown: helm install, kubectl apply, a chat, and the Job that ran the skill's code.

    tests/cluster_demo/run.sh            from nothing: brings a cluster up, and down again at the end
    KEEP=1 tests/cluster_demo/run.sh     leaves it up, to look around

Runs inside a shell whose kubectl and helm reach the cluster; nothing of Knack may be on it. Exit code 0 means that every check held.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tests", part) for part in ("demo", "examples", "chart")]

from bed import get, wait_until
from client import Client
from demo import BOLD, DIM, GREEN, INTERNAL, PLAIN, RED, show, title
from forward import Forward
from images import colours, decode_gif
from steps import diagnosis

NAMESPACE, SANDBOXES, SKILLS = "knack-system", "knack-sandboxes", "default"
# How long a step may take. On an idle machine each takes seconds; a loaded one gets there too.
READY_SECONDS = 600
# How long a condition may take on an idle machine; `wait_until` has patience with loaded ones.
SECONDS = 120


class Demo:
    """What is done, shown and checked; times are those of a person who waits for each command."""

    def __init__(self, folder):
        self.folder = folder
        self.checks = 0
        self.timings = []

    def check(self, condition, message):
        if not condition:
            raise AssertionError(message)
        self.checks += 1

    def timed(self, what, action):
        begun = time.monotonic()
        result = action()
        seconds = time.monotonic() - begun
        self.timings.append((what, seconds))
        show("        %s%s: %.2f s%s" % (DIM, what, seconds, PLAIN))
        return result

    def cluster(self):
        title("A cluster")
        command("kubectl", "version")
        command("kubectl", "get", "nodes")
        self.check(not exists("crd", "skills.knack.dev"), "Knack is on this cluster already; the demonstration begins from nothing")

    def install(self):
        title("helm install")
        self.timed("installed and ready", lambda: command(
            "helm", "install", "knack", "charts/knack", "--namespace", NAMESPACE, "--create-namespace",
            "--values", "tests/cluster_demo/values.yaml", "--wait", "--timeout", "%ds" % READY_SECONDS, quiet=True))
        command("kubectl", "get", "deployments,pods", "-n", NAMESPACE)
        ready = [item for item in get("deployments", "-n", NAMESPACE)["items"] if item["status"].get("readyReplicas")]
        self.check(len(ready) == 3, "not every Deployment is ready")

    def apply(self):
        title("kubectl apply")
        manifests = ["examples/cluster/bouncing-ball.yaml", "examples/manifests/answer-style.yaml", "examples/manifests/unit-convert.yaml"]
        arguments = [part for path in manifests for part in ("-f", path)]
        self.timed("three Skills Ready", lambda: (
            command("kubectl", "apply", "--server-side", "-n", SKILLS, *arguments),
            command("kubectl", "wait", "-n", SKILLS, "skills", "--all", "--for=condition=Ready", "--timeout=%ds" % READY_SECONDS, quiet=True)))
        self.timed("runtime Ready", lambda: command(
            "kubectl", "wait", "-n", SANDBOXES, "skillruntime/default", "--for=condition=Ready", "--timeout=%ds" % READY_SECONDS, quiet=True))
        self.timed("the gateway has them", self.wait_for_catalog)
        command("kubectl", "get", "skills", "-n", SKILLS)
        configmaps = get("configmaps", "-n", SKILLS, "-l", "knack.dev/skill=bouncing-ball")["items"]
        self.check(configmaps and all(item.get("immutable") for item in configmaps), "the skill's files are in no immutable ConfigMap")

    def wait_for_catalog(self):
        """A gateway that started before its runtime existed asks again every two seconds."""
        pod = get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=gateway")["items"][0]["metadata"]["name"]
        path = "/api/v1/namespaces/%s/pods/%s:9090/proxy/readyz" % (NAMESPACE, pod)
        wait_until("the gateway has a catalog of three skills", SECONDS, lambda: "skills=3" in run("kubectl", "get", "--raw", path))

    def model(self):
        """A provider inside the cluster: it checks what it is sent, and answers 400 if a text is missing."""
        script = run("kubectl", "create", "configmap", "scripted-model", "-n", SKILLS, "--dry-run=client", "-o", "yaml",
                     "--from-file=script.yaml=examples/demo/script.yaml")
        run("kubectl", "apply", "--server-side", "-n", SKILLS, "-f", "-", "-f", "tests/cluster_demo/model.yaml", stdin=script)
        command("kubectl", "rollout", "status", "-n", SKILLS, "deployment/scripted-model", "--timeout=%ds" % READY_SECONDS, quiet=True)

    def wait_for_model(self, client):
        """A Service that is seconds old has a name and a route on the node a little after its pods are ready; until then the gateway's answer is a 502."""
        wait_until("the gateway reaches the model's Service", SECONDS, lambda: client.get("/v1/models")[0] == 200)

    def chat(self, port):
        title("An unchanged client asks the gateway")
        client = Client(port, "chat", "demo-key", "knack-demo")
        self.timed("the model's Service routes", lambda: self.wait_for_model(client))
        messages = []
        first, content = self.turn(client, messages, "Make an animated GIF of a bouncing ball, please.", False, "Here is ball.gif", "ball.gif")
        second, _ = self.turn(client, messages, "Nice. Now make it three times slower.", True, "three times as slow", "ball-slow.gif")
        self.check(len(first.frames) > 3 and len(set(first.frames)) > 3, "the ball does not move")
        self.check(min(len(colours(frame)) for frame in first.frames) > 3, "a frame is empty")
        self.check(second.frames == first.frames, "the second GIF shows other pictures than the first")
        self.check(sum(second.delays) > sum(first.delays), "the second GIF is not slower")
        self.tool(client)

    def turn(self, client, messages, words, stream, expected, name):
        """One turn of the conversation; its GIF is fetched, saved and decoded."""
        messages.append({"role": "user", "content": words})
        answer = self.ask(client, messages, words, stream, expected)
        messages += answer.messages
        status, content = client.get("/knack/v1/responses/%s/files/%s" % (answer.id, name))
        self.check(status == 200, "%s answered %d" % (name, status))
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(content)
        gif = decode_gif(content)
        show("        %s%s, decoded: %d x %d, %d frames of %d ms%s" % (
            GREEN, path, gif.width, gif.height, len(gif.frames), gif.delays[0], PLAIN))
        return gif, content

    def tool(self, client):
        words = "Convert a marathon of 26.2 miles to kilometres."
        self.ask(client, [{"role": "user", "content": words}], words, True, "42.16 kilometres")

    def ask(self, client, messages, words, stream, expected):
        show("%syou%s     %s  %s(%s, %s)%s" % (BOLD, PLAIN, words, DIM, client.path, "stream" if stream else "whole", PLAIN))
        answer = client.ask(messages, stream)
        show("%smodel%s   %s" % (BOLD, PLAIN, answer.text.replace("\n", "\n        ")))
        show("        %s%.0f ms, first byte after %.0f ms%s" % (DIM, answer.seconds * 1000, answer.first_byte * 1000, PLAIN))
        self.timings.append((words[:40], answer.seconds))
        self.check(expected in answer.text, "%r is not in the answer %r" % (expected, answer.text))
        self.check(not answer.calls, "a tool call reached the client: %r" % answer.calls)
        for word in INTERNAL:
            self.check(word not in answer.raw, "%r leaked to the client: %r" % (word, answer.raw))
        return answer

    def records(self):
        title("What Kubernetes knows of it")
        made = self.finished_jobs()
        command("kubectl", "get", "skills,skillruntimes", "-A")
        command("kubectl", "get", "jobs", "-n", SANDBOXES, "-L", "knack.dev/skill,knack.dev/revision")
        self.check(len(made) >= 2, "expected a Job for each run of the skill bouncing-ball, found %d" % len(made))
        for job in made:
            pod = job["spec"]["template"]["spec"]
            self.check(len(pod["containers"]) == 1 and pod["automountServiceAccountToken"] is False, "a Job is no sandbox")
        self.check(exists("networkpolicy", "-n", SANDBOXES, "-o", "name"), "no NetworkPolicy")

    def finished_jobs(self):
        """The Jobs of the GIF skill; their record is written after the answer."""
        def made():
            jobs = get("jobs", "-n", SANDBOXES, "-l", "knack.dev/skill=bouncing-ball,knack.dev/skill-namespace=" + SKILLS)["items"]
            return len(jobs) >= 2 and jobs
        return wait_until("two Jobs have their record", SECONDS, made)


def run(*arguments, stdin=None):
    done = subprocess.run(arguments, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=READY_SECONDS + 60)
    if done.returncode:
        raise AssertionError("%s: exit %d: %s" % (" ".join(arguments[:6]), done.returncode, (done.stderr or done.stdout)[-3000:]))
    return done.stdout


def command(*arguments, quiet=False):
    """Runs a command as a person would type it, and shows it with what it says."""
    show("%s$ %s%s" % (BOLD, " ".join(arguments), PLAIN))
    said = run(*arguments)
    if not quiet:
        show("".join("  %s\n" % line for line in said.rstrip().split("\n")).rstrip())
    return said


def exists(*arguments):
    done = subprocess.run(["kubectl", "get", *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode == 0 and bool(done.stdout.strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", help="folder for the GIFs; default: a new one in the temporary folder")
    options = parser.parse_args()
    folder = options.files or tempfile.mkdtemp(prefix="knack-cluster-demo-")
    os.makedirs(folder, exist_ok=True)
    begun = time.monotonic()
    demo = Demo(folder)
    try:
        demo.cluster()
        demo.install()
        demo.apply()
        demo.model()
        with Forward(NAMESPACE, "service/knack-gateway", 80) as port:
            demo.chat(port)
        demo.records()
    except Exception as error:  # Whatever went wrong, the cluster's state is shown before the exit code says so.
        show("\n%sDEMO FAILED%s: %s: %s" % (RED, PLAIN, type(error).__name__, error))
        diagnosis(*(["-n", NAMESPACE, "deployment/knack-" + part, "--tail=40"] for part in ("controller", "hub", "gateway")),
                  ["-n", SKILLS, "deployment/scripted-model", "--tail=20"])
        sys.exit(1)
    title("Timings")
    for what, seconds in demo.timings:
        show("  %-44s %7.2f s" % (what, seconds))
    show("\n%scluster demo ok%s: %d checks, %.1f s" % (GREEN, PLAIN, demo.checks, time.monotonic() - begun))


if __name__ == "__main__":
    main()
