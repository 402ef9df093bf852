"""A release with packages on the test bed: skills get their packages in sandboxes, or say why not."""

import json
import os
import re

import allowed
import authority
import builder
import shipped
from bed import apply, get, wait_until
from harness import assert_equal, helm, kubectl
from installed import ADDRESS, BUILDS, NAMESPACE, RELEASE, REPOSITORY, SANDBOXES, SKILLS, STATE, install, on_a_release, run_words, until, verdict
from parts import node_lock, push, wheel
from render import render

SKILL = """
apiVersion: knack.dev/v1alpha1
kind: Skill
metadata: {name: %(name)s, namespace: %(namespace)s}
spec:
  source:
    inline:
      files:
        SKILL.md: |
          ---
          name: %(name)s
          description: Greets.
          ---
          Run scripts/say.py.
        requirements.txt: %(requirements)s
        scripts/say.py: |
          import os, sys, subprocess
          import greeter, helper
          print(greeter.hello(), helper.NAME)
          print(subprocess.run(["greet"], capture_output=True, text=True).stderr.strip() or "greet ran")
          try:
              open(os.path.join(os.path.dirname(greeter.__file__), "x"), "w")
          except OSError as error:
              print("not writable:", type(error).__name__)
"""

NODE_SKILL = """
apiVersion: knack.dev/v1alpha1
kind: Skill
metadata: {name: %(name)s, namespace: %(namespace)s}
spec:
  sandbox: {imageName: node}
  source:
    inline:
      files:
        SKILL.md: |
          ---
          name: %(name)s
          description: Greets.
          ---
          Run scripts/say.cjs.
        package.json: '{"dependencies": {"greeter": "1.0.0", "@s/helper": "2.1.0"}}'
        package-lock.json: %(lock)s
        scripts/say.cjs: |
          const fs = require('fs');
          console.log(require('greeter').hello(), require.resolve('greeter') === fs.realpathSync('/node_modules/greeter/index.cjs'));
          import('@s/helper').then((helper) => console.log('imported', helper.default.name));
          for (const change of [() => fs.writeFileSync('/node_modules/x', 'x'), () => fs.unlinkSync('/node_modules'), () => fs.writeFileSync(require.resolve('greeter'), '')]) {
            try { change(); console.log('changed'); } catch (error) { console.log('not writable'); }
          }
"""


def skill(name, requirements):
    apply(SKILL % {"name": name, "namespace": SKILLS, "requirements": json.dumps(requirements)})


def run_once(name):
    """One run of the skill's script; the lines of its answer."""
    return run_words(name, ["python3", "skills/%s/scripts/say.py" % name])


def served():
    skill("greets", "greeter>=1\n")
    found = until("greets", "Ready")
    assert_equal((found["accepted"], found["reason"]), (True, "Accepted"), "the verdict")
    assert_equal(run_once("greets")[:1], ["hello of 1.0 helper"], "the answer")
    assert_equal(run_once("greets")[2], "not writable: OSError", "a write to the environment")
    # The labels of a run are written to its Job after the answer.
    jobs = wait_until("the Jobs of both runs", 30, lambda: next((jobs for jobs in [get("jobs", "-n", SANDBOXES, "-l", "knack.dev/skill=greets")["items"]] if len(jobs) > 1), None))
    images = {job["spec"]["template"]["spec"]["containers"][0]["image"].partition("@")[0] for job in jobs}
    assert_equal(images, {REPOSITORY}, "images of the runs")


def built_once():
    """A second skill that declares the same asks the index for nothing."""
    before = len(STATE["index"].asked)
    skill("greets-too", "# the same\ngreeter >= 1\n")
    until("greets-too", "Ready")
    assert_equal(len(STATE["index"].asked), before, "requests to the index")
    assert_equal(run_once("greets-too")[:1], ["hello of 1.0 helper"], "the answer")


def of_node():
    """A package of Node, in a pod of the image that the runtime names for it."""
    images = [{"name": "node", "image": STATE["node"]}]
    kubectl("patch", "skillruntime", "default", "-n", SANDBOXES, "--type=merge", "-p", json.dumps({"spec": {"sandbox": {"images": images}}}))
    apply(NODE_SKILL % {"name": "greets-js", "namespace": SKILLS, "lock": json.dumps(node_lock(builder.NODE_PACKAGES))})
    found = until("greets-js", "Ready")
    assert_equal((found["accepted"], found["reason"]), (True, "Accepted"), "the verdict")
    if "Node: @s/helper 2.1.0, greeter 1.0.0" not in found["packages"]["message"]:
        raise AssertionError(found)
    declared = get("skill", "greets-js", "-n", SKILLS)["status"]["packages"]
    assert_equal((declared["node"], declared["locked"], declared["source"]), (["@s/helper@2.1.0", "greeter@1.0.0"], True, "package.json"), "what is declared")
    said = run_words("greets-js", ["node", "skills/greets-js/scripts/say.cjs"])
    assert_equal(sorted(said), ["hello of helper true", "imported helper", "not writable", "not writable", "not writable"], "the answer")
    # The runtime's own image has no Node, which is told.
    apply((NODE_SKILL % {"name": "lacks-js", "namespace": SKILLS, "lock": json.dumps(node_lock(builder.NODE_PACKAGES))}).replace("  sandbox: {imageName: node}\n", ""))
    found = until("lacks-js", "PackagesOff")
    assert_equal((found["accepted"], found["reason"]), (True, "PackagesMissing"), "the verdict")
    if "dev.knack.node" not in found["packages"]["message"]:
        raise AssertionError(found)


def listed_of_node():
    """`spec.packages.node`: a name that is not in the lock is refused by it; with names that are, it is the environment of the lock."""
    def listed(names):
        manifest = NODE_SKILL % {"name": "lists-js", "namespace": SKILLS, "lock": json.dumps(node_lock(builder.NODE_PACKAGES))}
        apply(manifest.replace("  sandbox:", "  packages: {node: %s}\n  sandbox:" % json.dumps(names)))
    listed(["greeter@1.0.0", "nosuch@^2"])
    found = until("lists-js", "Refused", part="nosuch is declared but not in the lock")
    assert_equal(found["reason"], "PackagesMissing", "the verdict")
    listed(["greeter@1.0.0"])
    found = until("lists-js", "Ready")
    assert_equal(found["packages"]["environment"], verdict("greets-js")["packages"]["environment"], "the environment")
    assert_equal(get("skill", "lists-js", "-n", SKILLS)["status"]["packages"]["source"], "spec.packages.node", "what is declared")


def refused():
    skill("wants", "nosuch\n")
    found = until("wants", "PackageNotFound")
    assert_equal((found["accepted"], found["reason"]), (False, "PackagesFailed"), "the verdict")
    if "nosuch" not in found["packages"]["message"]:
        raise AssertionError(found)


def counted():
    """What alerts and dashboard ask of packages is told by the running process, with the build that has failed."""
    rendered = render({"monitoring": {"prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}}})
    asked = set(re.findall(r"\bknack_packages_\w+(?=\{)", rendered.replace('\\"', '"')))
    assert asked, "neither alerts nor dashboard ask for packages"
    pods = get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=packages")["items"]
    told = "".join(kubectl("get", "--raw", "/api/v1/namespaces/%s/pods/%s:9090/proxy/metrics" % (NAMESPACE, pod["metadata"]["name"])) for pod in pods)
    types = set(re.findall(r"^# TYPE (\w+) ", told, re.MULTILINE))
    assert_equal({name for name in asked if not {name, name.removesuffix("_total")} & types}, set(), "metrics that are missing")
    assert re.search(r'^knack_packages_builds_total\{result="PackageNotFound"\} [1-9]', told, re.MULTILINE), told


def newest_is_not_there():
    """An edit that cannot be built leaves the revision before it in service, with its own packages."""
    before = get("skill", "greets", "-n", SKILLS)["status"]
    image = verdict("greets")["packages"]["environment"]
    skill("greets", "greeter>=1\nnosuch\n")
    found = until("greets", "PackageNotFound")
    assert_equal((found["accepted"], found["reason"], found.get("serves")), (True, "EarlierRevision", before["artifact"]["revision"]), "the verdict")
    assert_equal(found["packages"]["environment"], image, "the environment in service")
    assert_equal(run_once("greets")[:1], ["hello of 1.0 helper"], "the answer")
    status = get("skill", "greets", "-n", SKILLS)["status"]
    assert_equal([each["revision"] for each in status["earlier"]], [before["artifact"]["revision"]], "earlier revisions")

    def told():
        events = get("events.events.k8s.io", "-n", SKILLS)["items"]
        return any(event["reason"] == "PackagesFailed" and event["regarding"]["name"] == "greets" and "nosuch" in event["note"] for event in events)
    wait_until("an Event of the failure", 60, told)
    # The hub that starts now knows the earlier revision from the status alone.
    kubectl("rollout", "restart", "deployment/knack-hub", "-n", NAMESPACE)
    kubectl("rollout", "status", "deployment/knack-hub", "-n", NAMESPACE, "--timeout=800s")
    assert_equal(run_once("greets")[:1], ["hello of 1.0 helper"], "the answer after a restart of the hub")
    skill("greets", "greeter>=1\nunused\n")
    found = until("greets", "Ready")
    assert_equal((found["accepted"], found["reason"], found.get("serves")), (True, "Accepted", None), "the verdict")
    assert_equal(run_once("greets")[:1], ["hello of 1.0 helper"], "the answer")
    wait_until("no earlier revision", 60, lambda: "earlier" not in get("skill", "greets", "-n", SKILLS)["status"])


def another_base():
    """Another sandbox image: environments are made anew for it."""
    before = verdict("greets")["packages"]["environment"]
    base = push(ADDRESS, "sandbox-python", "sandbox-python", "another base")
    kubectl("patch", "skillruntime", "default", "-n", SANDBOXES, "--type=merge", "-p", json.dumps({"spec": {"sandbox": {"image": base}}}))

    def anew():
        found = verdict("greets")
        return found and found["packages"]["state"] == "Ready" and found["packages"].get("environment") not in (None, before)
    wait_until("an environment on another base", 120, anew)
    assert_equal(run_once("greets")[:1], ["hello of 1.0 helper"], "the answer")


def foreign_digest():
    """The hub's account cannot run another digest of the repository."""
    # A Job of earlier steps is gone five minutes after its end.
    run_once("greets")
    job = wait_until("a Job of the skill", 30, lambda: get("jobs", "-n", SANDBOXES, "-l", "knack.dev/skill=greets")["items"])[0]
    template = job["spec"]["template"]
    for labels in (job["metadata"]["labels"], template["metadata"]["labels"]):
        for name in list(labels):
            if "controller-uid" in name or "job-name" in name:
                del labels[name]
    metadata = {"name": "foreign", "namespace": SANDBOXES, "labels": job["metadata"]["labels"], "ownerReferences": job["metadata"]["ownerReferences"]}
    job["spec"].pop("selector", None)
    own = template["spec"]["containers"][0]["image"]
    hub = "system:serviceaccount:%s:knack-hub" % NAMESPACE
    for image, allowed in ((own, True), (own[:-64] + "0" * 64, False), (REPOSITORY + ":latest", False)):
        template["spec"]["containers"][0]["image"] = image
        text = json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {key: value for key, value in job["spec"].items() if key != "status"}})
        code, _, errors = kubectl("create", "--dry-run=server", "--as", hub, "-f", "-", stdin=text, expect=None)
        if (code == 0) != allowed:
            raise AssertionError("%s: %s" % (image, errors))


def rights_of_the_hub():
    """The hub's rights name the images that it may run; what others did to them is mended at the next look."""
    image = verdict("greets")["packages"]["environment"]
    account = "system:serviceaccount:%s:knack-hub" % NAMESPACE

    def may(digest):
        # `kubectl auth can-i` asks about resources that the API server serves, and of these there are no objects.
        resource = {"group": "knack.dev", "resource": "environments", "namespace": NAMESPACE, "name": "%s_default_%s" % (SANDBOXES, digest), "verb": "use"}
        asked = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": account, "resourceAttributes": resource}}
        return kubectl("create", "-f", "-", "-o", "jsonpath={.status.allowed}", stdin=json.dumps(asked)).strip() == "true"
    assert_equal((may(image[-64:]), may("0" * 64)), (True, False), "rights of the hub")
    kubectl("delete", "role", "knack-environments", "-n", NAMESPACE)
    skill("greets-three", "greeter>=1\n")
    until("greets-three", "Ready")
    wait_until("the Role is back", 60, lambda: may(image[-64:]))
    assert_equal(run_once("greets-three")[:1], ["hello of 1.0 helper"], "the answer")


def installed_again():
    """On an API server that ran all the time: what it forgot of a release that went does not hold back the next one."""
    helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout", "800s")
    kubectl("delete", "namespace", NAMESPACE, SANDBOXES, BUILDS, "--ignore-not-found", "--wait=true", "--timeout=800s")
    install()
    skill("greets-again", "greeter>=1\n")
    until("greets-again", "Ready")
    assert_equal(run_once("greets-again")[:1], ["hello of 1.0 helper"], "the answer")


def rights():
    """Neither controller nor hub nor builders' maker reads a Secret of the builds; the builders have no token."""
    for account in ("knack-controller", "knack-hub", "knack-packages"):
        code, said, _ = kubectl("auth", "can-i", "get", "secrets", "-n", BUILDS, "--as", "system:serviceaccount:%s:%s" % (NAMESPACE, account), expect=None)
        assert_equal((code, said.strip()), (1, "no"), account)
    for verb, what, namespace, expected in (("create", "jobs", BUILDS, "yes"), ("create", "jobs", SANDBOXES, "no"), ("create", "jobs", NAMESPACE, "no"), ("create", "pods", BUILDS, "no")):
        said = kubectl("auth", "can-i", verb, what, "-n", namespace, "--as", "system:serviceaccount:%s:knack-packages" % NAMESPACE, expect=None)[1]
        assert_equal(said.strip(), expected, "%s %s in %s" % (verb, what, namespace))


STEPS = [
    ("a release with packages installs", install),
    ("rights end at the builds", rights),
    ("a skill runs with its packages", served),
    ("the same packages are built once", built_once),
    *allowed.STEPS,
    *shipped.STEPS,
    ("a skill runs with its packages of Node", of_node),
    ("a list of a manifest is checked against the lock", listed_of_node),
    ("what cannot be built is told and not served", refused),
    ("what alerts ask of packages is told by the process", counted),
    *shipped.LAST_STEPS,
    ("no other digest runs", foreign_digest),
    ("the hub's rights name the images that it may run", rights_of_the_hub),
    ("an edit that cannot be built leaves the last good revision in service", newest_is_not_there),
    ("another sandbox image has environments of its own", another_base),
    *authority.STEPS,
    ("a release that is installed again runs what it ran", installed_again),
]


def tests(report):
    wheels = builder.WHEELS + [wheel("unused", "1.0", {"unused.py": ""})]
    wheels += [] if os.environ.get("KNACK_NO_CLUSTER") == "1" else shipped.wheels()
    on_a_release(report, STEPS, wheels, {"base": "sandbox-python", "node": "sandbox-node"}, builder.NODE_PACKAGES, allowed.SCRIPT)
