"""Two releases in one cluster, each with its own watchNamespaces: each serves its own, and neither touches what is the other's."""

import json

from bed import exists, get, make_namespaces, remove_namespaces, wait_until
from harness import CHART, assert_equal, helm, kubectl

BODY = {"model": "knack-test", "messages": [{"role": "user", "content": "please add 19 and 23"}]}
# What a controller writes. The status of a SkillRuntime and of a quota changes with the release's own pods.
WRITTEN = "skills.knack.dev,configmaps,networkpolicies.networking.k8s.io"


def version(item):
    """What differs after a write. A Skill's own controller writes when it was used, up to a minute after the use."""
    if item["kind"] != "Skill":
        return item["metadata"]["resourceVersion"]
    metadata = {key: value for key, value in item["metadata"].items() if key not in ("resourceVersion", "managedFields")}
    return metadata, item["spec"], {key: value for key, value in item.get("status", {}).items() if key != "lastUsedTime"}


class Side:
    """One release and its namespaces."""

    def __init__(self, cluster, release, ending):
        self.cluster, self.release = cluster, release
        self.namespace, self.sandboxes, self.skills = (name + ending for name in (cluster.NAMESPACE, cluster.SANDBOXES, cluster.SKILLS))

    def flags(self):
        """Flags of helm: the tests' own values, and namespaces of this release alone."""
        values = self.cluster.values()
        values["defaultRuntime"]["namespace"] = self.sandboxes
        values["watchNamespaces"] = [self.skills]
        values["crds"] = {"enabled": self.release == self.cluster.RELEASE}
        pairs = (("--set-json", "%s=%s" % (key, json.dumps(value))) for key, value in values.items())
        return ["--namespace", self.namespace, "--wait", "--timeout", "%ds" % self.cluster.READY_SECONDS, *(word for pair in pairs for word in pair)]

    def answer(self):
        """A request through this release's gateway, which runs the skill's code."""
        return self.cluster.chat(BODY, place=self.namespace)["choices"][0]["message"]["content"]

    def jobs(self):
        return {job["metadata"]["name"] for job in get("jobs", "-n", self.sandboxes, "-l", "knack.dev/skill=adder")["items"]}

    def judged_by(self):
        """The runtimes that stand in the status of its Skill."""
        status = get("skill", "-n", self.skills, "adder").get("status", {})
        return [(one["namespace"], one["name"], one["accepted"]) for one in status.get("runtimes", [])]

    def written(self):
        """Every object that a controller writes for it, as it stands."""
        found = [item for namespace in (self.skills, self.sandboxes) for item in get(WRITTEN, "-n", namespace)["items"]]
        return {tuple(item["metadata"][key] for key in ("namespace", "name", "uid")): version(item) for item in found if item["metadata"]["name"] != "kube-root-ca.crt"}

    def owner(self):
        return get("skillruntime", "-n", self.sandboxes, "default").get("status", {}).get("owner") or ""

    def hubs(self):
        pods = get("pods", "-n", self.namespace, "-l", "app.kubernetes.io/component=hub")["items"]
        return [pod["metadata"]["name"] for pod in pods]


class Releases:
    """The release of the other tests, and a second one beside it."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.first, self.second = Side(cluster, cluster.RELEASE, ""), Side(cluster, "second", "-second")

    def install(self):
        make_namespaces(self.second.skills)
        kubectl("apply", "-n", self.second.skills, "-f", "-", stdin=self.cluster.SKILL)
        # The first release still watches every namespace. When it no longer does, the newer Skill must leave its gateway.
        wait_until("the first gateway has both Skills", 30, lambda: "skills=2" in self.cluster.gateway_readiness(self.first.namespace))
        helm("upgrade", self.first.release, CHART, *self.first.flags())
        helm("install", self.second.release, CHART, "--create-namespace", *self.second.flags())

    def each_serves_its_own(self):
        """A Skill of the same name in both: each gateway runs its own release's, in its own release's namespace."""
        for side, other in ((self.first, self.second), (self.second, self.first)):
            expected = [(side.sandboxes, "default", True)]
            wait_until("the Skill in %s is judged by its own runtime alone" % side.skills, 60, lambda: side.judged_by() == expected)
            self.cluster.gateway_has_the_skill(30, side.namespace)
            before, of_other = side.jobs(), other.jobs()
            wait_until("the gateway reaches the mock", 30,
                       lambda: self.cluster.ask_gateway("/v1/models", expect=(200, 502, 504), place=side.namespace)[0] == 200)
            assert_equal(side.answer(), "The sum is 42.", "the answer")
            wait_until("the Job that ran the skill", 30, lambda: len(side.jobs() - before) == 1)
            # Those of before go five minutes after their end.
            assert_equal(other.jobs() - of_other, set(), "new Jobs of the other release")
        for side in (self.first, self.second):
            wait_until("its own hub owns the runtime", 60, lambda: any(name in side.owner() for name in side.hubs()))

    def neither_touches_the_others_objects(self):
        """One release works hard and is restarted; nothing that the other has written is written again."""
        for side, other in ((self.first, self.second), (self.second, self.first)):
            before = other.written()
            generation = get("skill", "-n", side.skills, "adder")["metadata"]["generation"]
            kubectl("patch", "skill", "-n", side.skills, "adder", "--type=merge", "-p", json.dumps({"spec": {"activation": {"tags": ["seen-by-" + side.release]}}}))
            wait_until("the edit is judged", 60, lambda: get("skill", "-n", side.skills, "adder")["status"]["observedGeneration"] > generation)
            kubectl("rollout", "restart", "-n", side.namespace, "deployment/knack-controller", "deployment/knack-hub")
            for part in ("controller", "hub"):
                kubectl("rollout", "status", "-n", side.namespace, "deployment/knack-" + part, "--timeout=800s")
            kubectl("delete", "-n", side.sandboxes, "networkpolicy/knack-sandbox-default")
            wait_until("the new controller mends its own fence", 120, lambda: exists("networkpolicy", "-n", side.sandboxes, "knack-sandbox-default"))
            wait_until("its own hub owns the runtime again", 120, lambda: any(name in side.owner() for name in side.hubs()))
            assert_equal(other.written(), before, "what is %s's" % other.release)
            assert_equal(other.judged_by(), [(other.sandboxes, "default", True)], "runtimes in the other's Skill")

    def one_goes_and_the_other_stays(self):
        before = self.first.written()
        helm("uninstall", self.second.release, "--namespace", self.second.namespace, "--wait", "--timeout", "800s")
        wait_until("the second one's sandboxes are gone", 120, lambda: not exists("namespace", self.second.sandboxes))
        assert_equal(self.first.written(), before, "what is the first one's")
        assert_equal(self.first.answer(), "The sum is 42.", "the answer")

    def remove(self):
        helm("uninstall", self.second.release, "--namespace", self.second.namespace, "--ignore-not-found", expect=None)
        remove_namespaces(self.second.namespace, self.second.skills, self.second.sandboxes)
        self.cluster.default_values()


def tests(report, cluster):
    releases = Releases(cluster)
    try:
        if report.check("a second release beside the first, each with namespaces of its own", releases.install):
            for name, test in (
                    ("each serves its own", releases.each_serves_its_own),
                    ("neither touches the other's objects", releases.neither_touches_the_others_objects),
                    ("one goes and the other stays", releases.one_goes_and_the_other_stays)):
                report.check("two releases: " + name, test)
    finally:
        releases.remove()
