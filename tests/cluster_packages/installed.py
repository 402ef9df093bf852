"""The release with packages that the tests of a cluster install, and what it says of skills."""

import contextlib
import json
import os
import subprocess
import tempfile

from bed import apply, exists, get, wait_until
from harness import CHART, helm, kubectl
from parts import Index, push, registry
from skill_run import run_skill

# Where the bed's containerd expects a registry that speaks plain HTTP (tests/cluster/lib/settings.sh).
NODE = "10.99.0.1"
ADDRESS = NODE + ":5000"
REPOSITORY = ADDRESS + "/team/environments"
RELEASE, NAMESPACE, SANDBOXES, SKILLS, BUILDS = "knack", "knack-system", "knack-sandboxes", "packages-skills", "knack-builds"
READY_SECONDS = 600
STATE = {}


def install():
    take = ["--take-ownership"] if exists("crd", "skills.knack.dev") else []
    helm_release("install", {}, *take)


def helm_release(verb, other, *words):
    """Installs or upgrades the release; `other` are values in the place of the usual ones."""
    values = {
        "image.repository": "knack.local/knack", "image.tag": "dev", "gatewayImage.repository": "knack.local/knack-gateway",
        "sandbox.images.python": STATE["base"], "packages.repository": REPOSITORY, "packages.registryPlainHttp": "true",
        "packages.index": STATE["index"].url, "packages.npmIndex": STATE["index"].npm, "packages.builderImage": "knack.local/packages-builder:dev",
        "packages.egress[0].cidr": NODE + "/32", "packages.egress[0].ports[0]": "5000", "packages.egress[0].ports[1]": str(STATE["index"].port),
    }
    if STATE["model"]:
        values["gateway.upstreams.openai"] = STATE["model"]
    values.update(other)
    sets = [word for name, value in values.items() for word in ("--set", "%s=%s" % (name, value))]
    helm(verb, RELEASE, CHART, "--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout", "%ds" % READY_SECONDS, *sets, *words)


def runtime(packages):
    """Sets `spec.packages` of the default runtime, over what is there; None takes it away. Then the controller has seen it: a skill that
    comes next is judged by it."""
    kubectl("patch", "skillruntime", "default", "-n", SANDBOXES, "--type=merge", "-p", json.dumps({"spec": {"packages": packages}}))

    def seen():
        found = get("skillruntime", "default", "-n", SANDBOXES)
        return found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
    wait_until("the controller sees the runtime's packages", 60, seen)


def environments():
    """How many are known, by their keys."""
    return sum(len(key) == 32 for key in get("configmap", "knack-packages", "-n", NAMESPACE).get("data", {}))


def verdict(name):
    runtimes = get("skill", name, "-n", SKILLS).get("status", {}).get("runtimes", [])
    return next((each for each in runtimes if each["namespace"] == SANDBOXES and each["name"] == "default"), None)


def until(name, state, seconds=120, part=""):
    """The verdict about a skill at the default runtime, once its packages are in a state, with a part of their message."""
    def now():
        found = verdict(name)
        told.append(found)
        packages = (found or {}).get("packages", {})
        return found if packages.get("state") == state and part in packages.get("message", "") else None
    told = []
    try:
        return wait_until("%s is %s" % (name, state), seconds, now)
    except AssertionError as error:
        raise AssertionError("%s: %s" % (error, told[-1])) from error


def run_words(name, words):
    """Standard output of a run of a skill's command at the default runtime, by lines."""
    return run_whole(name, words)["stdout"].splitlines()


def run_whole(name, words, *options, ends=0):
    """All that a run of a skill's command at the default runtime gives, with more options of `knack skill run`, which ends so (None: in any way)."""
    return run_skill("%s/%s" % (SKILLS, name), SANDBOXES + "/default", NAMESPACE, words, options=options, ends=ends)


@contextlib.contextmanager
def scripted_model(script):
    """The URL of a provider whose answers this script says (docs/mock-provider.md); None without a script."""
    if script is None:
        yield None
        return
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(script)
        file.flush()
        command = [os.environ["KNACK_PROGRAM"], "mock", "--listen", NODE + ":0", "--script", file.name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                # Its first line, or none if it ended.
                said = server.stdout.readline().split()
                if not said:
                    raise AssertionError("the scripted model did not start")
                yield said[-1]
            finally:
                server.terminate()


def on_a_release(report, steps, wheels, images, node=(), script=None):
    """Runs the steps of which the first installs the release: with an index of these wheels and packages of Node, a registry
    that holds images by the keys of STATE, and a model that answers by a script."""
    if os.environ.get("KNACK_NO_CLUSTER") == "1":
        for name, _ in steps:
            report.skip(name, "KNACK_NO_CLUSTER=1")
        return
    removed()
    apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n" % SKILLS)
    with registry(ADDRESS) as server, scripted_model(script) as STATE["model"]:
        STATE["content"] = server.content
        STATE.update({key: push(ADDRESS, image, image) for key, image in images.items()})
        STATE["index"] = Index(NODE, wheels, node=node)
        report.steps(steps, diagnosis)
        STATE["index"].close()
    report.check("uninstalled", removed)


def removed():
    if exists("crd", "skills.knack.dev"):
        kubectl("delete", "skills", "--all", "-n", SKILLS, "--ignore-not-found", "--timeout=800s", expect=None)
    helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout", "800s", "--ignore-not-found")
    kubectl("delete", "namespace", NAMESPACE, SKILLS, SANDBOXES, BUILDS, "--ignore-not-found", "--wait=true", "--timeout=800s")


def diagnosis():
    for arguments in (["get", "skills,skillruntimes,jobs,pods", "-A", "-o", "wide"], ["get", "configmap", "knack-packages", "-n", NAMESPACE, "-o", "yaml"], ["get", "events", "-A", "--sort-by=.lastTimestamp"],
                      ["logs", "-n", BUILDS, "-l", "knack.dev/role=builder", "--tail=30"], *(["logs", "-n", NAMESPACE, "deployment/knack-" + part, "--tail=20"] for part in ("controller", "hub", "packages"))):
        print("".join(kubectl(*arguments, expect=None)[1:])[-6000:])
