"""A release installed with stock values, from a registry of the test bed: nothing is set but where the images are."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import files
from bed import apply, exists, get, wait_until
from harness import ROOT, assert_equal, helm, kubectl
from skill_run import run_skill

# Where the bed's containerd expects a registry that speaks plain HTTP (tests/cluster/lib/settings.sh).
REGISTRY = "10.99.0.1:5000"
MIRROR = REGISTRY + "/mirror"
RELEASE, NAMESPACE, SANDBOXES, SKILLS = "knack", "knack-system", "knack-sandboxes", "dist-skills"
DEFINITIONS = ("skills.knack.dev", "skillruntimes.knack.dev")
READY_SECONDS = 600
SKILL = """
apiVersion: knack.dev/v1alpha1
kind: Skill
metadata: {name: %(name)s}
spec:
  %(sandbox)s
  source:
    inline:
      files:
        SKILL.md: |
          ---
          name: %(name)s
          description: Adds two numbers.
          ---
          Run the script.
        scripts/add.%(ending)s: %(code)s
"""
PYTHON = {"name": "adder", "ending": "py", "sandbox": "activation: {mode: Listed}", "code": "import sys; print(sum(map(int, sys.argv[1:])))"}
NODE = {"name": "node-adder", "ending": "js", "code": "console.log(process.argv.slice(2).map(Number).reduce((a, b) => a + b))"}
RUNTIME = """
apiVersion: knack.dev/v1alpha1
kind: SkillRuntime
metadata: {name: tagged, namespace: %s}
spec: {sandbox: {image: %s}}
"""


@contextlib.contextmanager
def registry():
    """An empty registry on the bed's network, gone with its content at the end."""
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "config.yml")
        with open(config, "w", encoding="utf-8") as file:
            file.write("version: 0.1\nlog: {level: warn, accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: %s/content}}\nhttp: {addr: '%s'}\n" % (folder, REGISTRY))
        with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
            server = subprocess.Popen([os.environ["KNACK_REGISTRY"], "serve", config], stdout=log, stderr=log)
            try:
                wait_until("the registry answers", 60, lambda: answers(server, log))
                yield
            finally:
                server.kill()
                server.wait()


def answers(server, log):
    if server.poll() is not None:
        log.seek(0)
        raise AssertionError("the registry ended: " + log.read()[-2000:])
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open("http://%s/v2/" % REGISTRY, timeout=5) as response:
            return response.status == 200
    except OSError:
        return False


def push():
    environment = {**os.environ, "KNACK_PUSH_PLAIN": "1"}
    done = subprocess.run([sys.executable, "-B", os.path.join(ROOT, "tools", "dist", "push.py"), files.DIST, MIRROR], capture_output=True, text=True, env=environment, timeout=READY_SECONDS)
    assert_equal(done.returncode, 0, "push: " + done.stderr)
    expected = sorted("%s/%s@%s" % (MIRROR, image, digest) for image, digest in files.digests().items())
    assert_equal(sorted(done.stdout.split()), expected, "pushed, by the digests of images.txt")


def install():
    take = ["--take-ownership"] if any(exists("crd", name) for name in DEFINITIONS) else []
    helm("install", RELEASE, files.chart(), "--namespace", NAMESPACE, "--create-namespace", "--set", "image.registry=" + MIRROR,
         "--wait", "--timeout", "%ds" % READY_SECONDS, *take)
    values = json.loads(helm("get", "values", RELEASE, "--namespace", NAMESPACE, "-o", "json"))
    assert_equal(values, {"image": {"registry": MIRROR}}, "values that were set")


def runtime_is_ready():
    kubectl("wait", "-n", SANDBOXES, "skillruntime/default", "--for=condition=Ready", "--timeout=%ds" % READY_SECONDS)
    image = get("skillruntime", "default", "-n", SANDBOXES)["spec"]["sandbox"]["image"]
    assert_equal(image, "%s/sandbox-python@%s" % (MIRROR, files.digests()["sandbox-python"]), "the sandbox image")


def pods_run_the_images_of_the_release():
    """Of every component: what was asked for, and what the node says that it runs."""
    images = {"controller": "knack", "hub": "knack", "gateway": "knack-gateway"}
    pods = get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=knack")["items"]
    assert_equal(sorted(pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods), sorted(images), "pods")
    for pod in pods:
        image = images[pod["metadata"]["labels"]["app.kubernetes.io/component"]]
        wanted = "%s/%s@%s" % (MIRROR, image, files.digests()[image])
        assert_equal(pod["spec"]["containers"][0]["image"], wanted, "image asked for")
        assert_equal(pod["status"]["containerStatuses"][0]["imageID"], wanted, "image that runs")


def run_once(skill, image, interpreter):
    """One run, in a Job of the image by digest; its answer."""
    apply(SKILL % {**skill, "code": json.dumps(skill["code"])}, "-n", SKILLS)
    kubectl("wait", "-n", SKILLS, "skill/" + skill["name"], "--for=condition=Ready", "--timeout=%ds" % READY_SECONDS)
    script = "skills/%s/scripts/add.%s" % (skill["name"], skill["ending"])
    said = run_skill("%s/%s" % (SKILLS, skill["name"]), SANDBOXES + "/default", NAMESPACE, [interpreter, script, "19", "23"])["stdout"]
    assert_equal(said.strip(), "42", "the answer")
    jobs = wait_until("the record of the run", 20, lambda: get("jobs", "-n", SANDBOXES, "-l", "knack.dev/skill=" + skill["name"])["items"])
    images = {job["spec"]["template"]["spec"]["containers"][0]["image"] for job in jobs}
    assert_equal(images, {"%s/%s@%s" % (MIRROR, image, files.digests()[image])}, "the Job's image")


def python_runs():
    run_once(PYTHON, "sandbox-python", "python3")


def node_runs():
    image = "%s/sandbox-node@%s" % (MIRROR, files.digests()["sandbox-node"])
    run_once({**NODE, "sandbox": "sandbox: {image: '%s'}" % image}, "sandbox-node", "node")


def tags_are_refused():
    """An image by the tag that the registry has: the runtime says what is wrong, and the words name the image."""
    image = MIRROR + "/sandbox-python:" + os.path.basename(files.chart()).removeprefix("knack-").removesuffix(".tgz")
    apply(RUNTIME % (SANDBOXES, image))

    def stalled():
        conditions = get("skillruntime", "tagged", "-n", SANDBOXES).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == "Ready" and each["status"] == "False" and each["reason"] == "ImageNotPinned"), None)
    condition = wait_until("the runtime says ImageNotPinned", 60, stalled)
    if image not in condition["message"]:
        raise AssertionError("the message does not name %s: %s" % (image, condition["message"]))
    kubectl("delete", "skillruntime", "tagged", "-n", SANDBOXES, "--wait=true", "--timeout=800s")


def removed():
    """The namespaces go; the definitions stay as the chart has it, and other tests take them over."""
    if exists("crd", DEFINITIONS[0]):
        kubectl("delete", "skills", "--all", "-n", SKILLS, "--ignore-not-found", "--timeout=800s", expect=None)
    helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout", "800s", "--ignore-not-found")
    kubectl("delete", "namespace", NAMESPACE, SKILLS, SANDBOXES, "--ignore-not-found", "--wait=true", "--timeout=800s")


def diagnosis():
    """What one wants to see where it failed."""
    for arguments in (["get", "skills,skillruntimes,jobs,pods", "-A", "-o", "wide"], ["get", "events", "-A", "--sort-by=.lastTimestamp"],
                      *(["logs", "-n", NAMESPACE, "deployment/knack-" + part, "--tail=30"] for part in ("controller", "hub"))):
        print("".join(kubectl(*arguments, expect=None)[1:])[-6000:])


STEPS = [
    ("images are pushed by digest", push),
    ("stock values install", install),
    ("the default runtime is ready", runtime_is_ready),
    ("pods run the images of the release", pods_run_the_images_of_the_release),
    ("a Python skill runs", python_runs),
    ("a node skill runs", node_runs),
    ("an image by tag is refused", tags_are_refused),
]


def tests(report):
    if os.environ.get("KNACK_NO_CLUSTER") == "1":
        for name, _ in STEPS:
            report.skip(name, "KNACK_NO_CLUSTER=1")
        return
    removed()
    apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n" % SKILLS)
    with registry():
        report.steps(STEPS, diagnosis)
    report.check("uninstalled", removed)
