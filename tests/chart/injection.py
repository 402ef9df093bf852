"""The injection of the sidecar on an API server: what the policy, or the webhook, makes of the pods of crates/injection, and that
it is what `knack inject` makes of them.

Needs nothing but the API server. Every pod is a dry run: first as the server takes it without us, then with us; `knack inject`
gets the first and must give the second.
"""

import copy
import json
import os
import re
import secrets
import subprocess
import time

import yaml

from bed import PATIENCE, wait_until
from harness import BED, ROOT, assert_equal, run
from injection_rendered import CRATE, parameters_of
from mesh import LABEL as MESHED
from mesh import Mesh
from render import documents, render
from server import Server, message

LABEL, ANNOTATION = "knack.dev/inject", "knack.dev/injection"
KINDS = {"MutatingWebhookConfiguration": "mutatingwebhookconfigurations", "MutatingAdmissionPolicy": "mutatingadmissionpolicies", "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
         "ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings"}
OURS = ("injection", "injection-pods", "injection-namespaces", "injection-unmet", "injection-unmet-pods", "injection-unmet-namespaces",
        "injection-label")
SECONDS_UNTIL_ACTIVE = 60
# How often the API server is restarted, and how long pods are created after it has answered first. Policies with a parameter
# object went unheard for up to 30 s after three of seven restarts (kubernetes#124237).
RESTARTS = 2
SECONDS_AFTER_RESTART = 5
# The API server's count of what the policy came to, by error_type.
COUNTED = "apiserver_mutating_admission_policy_check_duration_seconds_count"
# What an API server adds to each pod by itself, another one each time.
OF_THE_SERVER = ("uid", "creationTimestamp", "managedFields", "namespace", "generation", "resourceVersion")


def rows():
    """(title, pod) of the table."""
    with open(os.path.join(CRATE, "tests", "pods.yaml"), encoding="utf-8") as file:
        for number, row in enumerate(yaml.safe_load(file)):
            metadata = {"labels": {LABEL: "enabled"}, **row.get("metadata", {}), "name": "row-%d" % number}
            spec = copy.deepcopy(row["spec"])
            if "copies" in row:
                spec["containers"] = [dict(spec["containers"][0], name="app-%d" % copy_) for copy_ in range(row["copies"])]
            yield row["title"], {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def program():
    """The knack of this build."""
    found = [os.environ.get("KNACK_PROGRAM"), *(os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"), kind, "knack") for kind in ("release", "debug"))]
    for path in found:
        if path and os.path.exists(path):
            return path
    raise AssertionError("no program knack; run make build, or set KNACK_PROGRAM")


def injected(pods, made):
    """What `knack inject` makes of pods: one process for all of them."""
    text = json.dumps({"kind": "List", "items": pods})
    path = os.path.join(os.environ.get("TMPDIR", "/tmp"), "knack-parameters-%s.yaml" % secrets.token_hex(4))
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(made)
        return yaml.safe_load(run([program(), "inject", "-f", "-", "--parameters", path], stdin=text))["items"]
    finally:
        os.remove(path)


def path_of(document):
    return "/apis/admissionregistration.k8s.io/v1/%s/%s" % (KINDS[document["kind"]], document["metadata"]["name"])


def comparable(pod):
    """A pod without what differs from one dry run to the next."""
    pod = json.loads(re.sub(r"kube-api-access-[a-z0-9]{5}", "kube-api-access", json.dumps(pod)))
    for name in OF_THE_SERVER:
        pod["metadata"].pop(name, None)
    pod.pop("status", None)
    return pod


def same(got, expected, what, path=""):
    """Fails with the first difference: whole pods say too much."""
    if type(got) is not type(expected):
        raise AssertionError("%s: %s: got %.300r, expected %.300r" % (what, path, got, expected))
    if isinstance(got, dict):
        for key in [*got, *expected]:
            same(got.get(key), expected.get(key), what, path + "/" + key)
    elif isinstance(got, list):
        for index, (one, other) in enumerate(zip(got, expected)):
            same(one, other, what, "%s/%d" % (path, index))
        same(len(got), len(expected), what, path + " (length)")
    else:
        assert_equal(got, expected, what + ": " + path)


def labelled(pod, value):
    """The pod with another word about the injection; None takes it away."""
    pod = copy.deepcopy(pod)
    labels = pod["metadata"].setdefault("labels", {})
    labels.pop(LABEL, None)
    if value:
        labels[LABEL] = value
    if not labels:
        del pod["metadata"]["labels"]
    return pod


class Table:
    """The table on one API server, by one delivery."""

    DELIVERY = "Policy"
    # Without these nothing is injected.
    CALLS = "MutatingAdmissionPolicyBinding"

    def __init__(self, server):
        self.server = server
        self.release = "knack-inj-" + secrets.token_hex(3)
        self.plain, self.asking, self.strict, self.own, self.labelled = (self.release + end for end in ("", "-asking", "-strict", "-system", "-was-labelled"))
        rendered = self.render("Warn")
        self.made = self.ours(rendered)
        self.parameters = parameters_of(rendered)
        self.before = {}

    def render(self, without_sidecar, more=None, **others):
        values = {"crds": {"enabled": False}, **others, "injection": {"delivery": self.DELIVERY, "withoutSidecar": without_sidecar, **(more or {})}}
        return documents(render(values, self.release, self.own))

    def ours(self, rendered):
        return [d for d in rendered if d["kind"] in KINDS and d["metadata"]["name"].removeprefix(self.release + "-") in OURS]

    def put(self, document):
        self.server.apply(document, path_of(document))

    def create(self, pod, namespace):
        """Status and text of a dry run."""
        return self.server.ask("POST", "/api/v1/namespaces/%s/pods" % namespace, pod, dryRun="All")

    def taken(self, pod, namespace):
        status, text = self.create(pod, namespace)
        if status != 201:
            raise AssertionError("%d %s" % (status, message(text)))
        return comparable(json.loads(text))

    def quality(self, pod):
        """The class of its quality of service, as the server has worked it out."""
        status, text = self.create(pod, self.plain)
        assert_equal(status, 201, message(text))
        return json.loads(text)["status"]["qosClass"]

    def prepare(self):
        for kind in ("mutatingadmissionpolicies", "mutatingwebhookconfigurations"):
            others = self.server.get("/apis/admissionregistration.k8s.io/v1/" + kind, labelSelector="app.kubernetes.io/name=knack")
            if others and others["items"]:
                raise AssertionError("an installation on this cluster injects already: %s" % others["items"][0]["metadata"]["name"])
        restricted = {"pod-security.kubernetes.io/enforce": "restricted", LABEL: "enabled"}
        for name, labels in ((self.plain, {}), (self.asking, {LABEL: "enabled"}), (self.strict, restricted), (self.own, {})):
            self.server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"knack-test": "chart", **labels}}},
                              "/api/v1/namespaces/" + name)
            self.server.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}},
                              "/api/v1/namespaces/%s/serviceaccounts/default" % name)
        for title, pod in rows():
            self.before[title] = self.taken(labelled(pod, None), self.plain)
        for document in self.made:
            self.put(document)
        pod = next(rows())[1]
        for namespace, value in ((self.plain, "enabled"), (self.asking, None)):
            wait_until("the injection in " + namespace, SECONDS_UNTIL_ACTIVE, lambda namespace=namespace, value=value: ANNOTATION in
                       self.taken(labelled(pod, value), namespace)["metadata"].get("annotations", {}))
        # What the server has made of each pod before us, as the policy sees it; with the words of the row.
        asked = [dict(self.before[title], metadata={**self.before[title]["metadata"], **({"labels": pod["metadata"]["labels"]})}) for title, pod in rows()]
        self.expected = {title: pod for (title, _), pod in zip(rows(), injected(asked, self.parameters))}

    def row(self, title, pod):
        """The pod by its own label and by its namespace's: as `knack inject` makes it."""
        # Once more through the server, which writes what it was given in its own way; there is nothing left to inject.
        expected = self.taken(self.expected[title], self.plain)
        same(self.taken(pod, self.plain), expected, "by its own label")
        same(self.taken(labelled(pod, None), self.asking), labelled(expected, None), "by its namespace's label")
        before, after = self.quality(labelled(pod, None)), self.quality(pod)
        # A sidecar asks for resources, so the last class is the only one that a pod leaves.
        if (before, after) != ("BestEffort", "Burstable"):
            assert_equal(after, before, "the class of the pod with the sidecar")
        return expected["metadata"].get("annotations", {}).get(ANNOTATION, "unchanged")[:60]

    def untouched(self):
        """Pods that did not ask, and sandboxes of ours, are what they were."""
        for title, pod in rows():
            same(self.taken(labelled(pod, None), self.plain), self.before[title], title)
            same(labelled(self.taken(labelled(pod, "disabled"), self.asking), None), labelled(self.before[title], None), title + ", disabled")
        pod = labelled(next(rows())[1], "enabled")
        pod["metadata"]["labels"]["knack.dev/role"] = "sandbox"
        for namespace in (self.plain, self.asking):
            assert_equal(self.taken(pod, namespace)["spec"].get("initContainers"), None, "a sandbox in " + namespace)
        # Not the sandbox, which is injected nowhere: what is left alone here is injected elsewhere.
        pod = labelled(next(rows())[1], "enabled")
        for namespace in (self.plain, self.asking):
            assert_equal(self.taken(pod, namespace)["spec"]["initContainers"][0]["name"], "knack-gateway", "the same pod in " + namespace)
        for namespace in ("kube-system", "kube-public", "kube-node-lease", self.own):
            made = self.taken(pod, namespace)
            assert_equal((made["spec"].get("initContainers"), ANNOTATION in made["metadata"].get("annotations", {})), (None, False), "a pod of " + namespace)

    def restricted(self):
        """A pod that fits the restricted standard fits it with the sidecar."""
        pod = next(pod for title, pod in rows() if title == "a pod that fits the restricted standard")
        assert_equal(self.taken(labelled(pod, None), self.strict)["spec"]["initContainers"][0]["name"], "knack-gateway", "the sidecar")
        # The server's judgement is at work: another pod is refused here.
        assert_equal(self.create(next(rows())[1], self.strict)[0], 403, "a pod that does not fit")

    def bounded(self):
        """A namespace with a LimitRange takes the pods that it took."""
        path = "/api/v1/namespaces/%s/" % self.asking
        limits = {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "max": {"cpu": "2", "memory": "2Gi"}}
        self.server.apply({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "bounds"}, "spec": {"limits": [limits]}}, path + "limitranges/bounds")
        pod = labelled(next(rows())[1], None)
        got = wait_until("the LimitRange", SECONDS_UNTIL_ACTIVE, lambda: next((one for one in [self.taken(pod, self.asking)] if one["spec"]["containers"][0].get("resources")), None))
        resources = got["spec"]["initContainers"][0]["resources"]
        # The application's containers are Guaranteed by it, and so is the sidecar.
        assert_equal(resources, {"limits": {"cpu": "200m", "memory": "128Mi"}, "requests": {"cpu": "200m", "memory": "128Mi"}}, "resources")
        return path, pod

    def counted(self):
        """And where a ResourceQuota counts everything, or limits of CPU alone."""
        path, pod = self.bounded()
        bare = labelled(next(rows())[1], None)
        limited = copy.deepcopy(bare)
        limited["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}}
        everything = {"requests.cpu": "10", "limits.cpu": "10", "requests.memory": "10Gi", "limits.memory": "10Gi"}
        for hard, taken, refused in ((everything, pod, None), ({"limits.cpu": "10"}, limited, bare)):
            self.server.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "bounds"}, "spec": {"hard": hard}}, path + "resourcequotas/bounds")
            if refused:
                # The quota is at work without the LimitRange, which gave each container limits.
                assert_equal(self.server.ask("DELETE", path + "limitranges/bounds")[0], 200, "the LimitRange")
                wait_until("the quota on %s" % hard, SECONDS_UNTIL_ACTIVE, lambda refused=refused: "must specify limits.cpu for: app" in self.create(refused, self.asking)[1])

            def is_taken(taken=taken):
                status, text = self.create(taken, self.asking)
                return status == 201 or ("status unknown" not in text and text)
            assert_equal(wait_until("the quota", SECONDS_UNTIL_ACTIVE, is_taken), True, "a pod under the quota on %s" % hard)
        assert_equal(self.server.ask("DELETE", path + "resourcequotas/bounds")[0], 200, "the quota")
        wait_until("pods without the quota", SECONDS_UNTIL_ACTIVE, lambda: self.create(bare, self.asking)[0] == 201)

    def errors(self):
        """What the API server counts of the policy, but without an error."""
        status, text = self.server.ask("GET", "/metrics")
        assert_equal(status, 200, "metrics of the API server")
        lines = [line for line in text.splitlines() if line.startswith(COUNTED + "{")]
        lines = [line for line in lines if 'policy="%s-injection"' % self.release in line]
        if not lines:
            raise AssertionError("the API server counts nothing of %s" % self.release)
        return [line for line in lines if 'error_type="no_error"' not in line]

    def no_error(self):
        """An error in CEL leaves a pod without its sidecar and says so nowhere but here."""
        assert_equal(self.errors(), [], "errors of the policy")

    def failing(self):
        """An expression that fails: the pod is created as it is, and the API server counts what the alert asks for."""
        title, pod = next(rows())
        [policy] = [document for document in self.made if document["kind"] == "MutatingAdmissionPolicy"]
        broken = copy.deepcopy(policy)
        [text] = [variable for variable in broken["spec"]["variables"] if variable["name"] == "text"]
        text["expression"] = "string(object.spec.nothing_is_there)"
        self.put(broken)
        wait_until("a pod without its sidecar", SECONDS_UNTIL_ACTIVE, lambda: ANNOTATION not in self.taken(pod, self.plain)["metadata"].get("annotations", {}))
        same(labelled(self.taken(pod, self.plain), None), labelled(self.before[title], None), "a pod whose policy fails")
        found = self.errors()
        rules = [d for d in self.render("Warn", monitoring={"prometheusRule": {"enabled": True}}) if d["kind"] == "PrometheusRule"]
        asked = set(re.findall(r"%s\{([^}]*)\}" % COUNTED, " ".join(rule["expr"] for d in rules for group in d["spec"]["groups"] for rule in group["rules"])))
        assert_equal((asked, len(found) > 0), ({'policy="%s-injection", error_type!="no_error"' % self.release}, True), "what the alert asks for, and errors that are counted")
        self.put(policy)
        wait_until("the sidecar with the policy again", SECONDS_UNTIL_ACTIVE, lambda: ANNOTATION in self.taken(pod, self.plain)["metadata"].get("annotations", {}))
        return found[0][:200]

    def restarted(self):
        """The API server is killed and starts again while pods are created: none that it takes is without its sidecar."""
        pod = next(rows())[1]
        taken = 0
        for _ in range(RESTARTS):
            subprocess.run([BED, "kill", "apiserver"], check=True, capture_output=True)
            with subprocess.Popen([BED, "start", "apiserver"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as starting:
                first, begun = None, time.monotonic()
                while first is None or time.monotonic() - first < SECONDS_AFTER_RESTART:
                    if time.monotonic() - begun > SECONDS_UNTIL_ACTIVE * PATIENCE:
                        raise AssertionError("the API server does not answer")
                    try:
                        status, text = self.create(pod, self.plain)
                    except OSError:
                        status, text = 0, ""
                    if status != 201:
                        time.sleep(0.05)
                    else:
                        first, taken = first or time.monotonic(), taken + 1
                        if "knack-gateway" not in text:
                            raise AssertionError("a pod without its sidecar, %.1f s after the first answer" % (time.monotonic() - first))
                assert_equal(starting.wait(), 0, "bed start apiserver")
        return "%d pods" % taken

    def types_fit(self):
        """The server's own type check doubts no expression; it checks validating policies only."""
        document = next(document for document in self.made if document["kind"] == "ValidatingAdmissionPolicy")

        def checked():
            found = self.server.get(path_of(document))
            status = found.get("status", {})
            return status if status.get("observedGeneration") == found["metadata"]["generation"] else None

        assert_equal(wait_until("the type check", SECONDS_UNTIL_ACTIVE, checked).get("typeChecking", {}).get("expressionWarnings", []), [], "warnings")

    def later(self):
        """`kubectl debug` and another label change nothing of a pod that is there."""
        pod = labelled(next(rows())[1], None)
        pod["metadata"]["name"] = "later"
        # It need not start.
        pod["spec"]["schedulerName"] = "nobody"
        path = "/api/v1/namespaces/%s/pods" % self.asking
        status, text = self.server.ask("POST", path, pod)
        assert_equal(status, 201, message(text))
        try:
            before = json.loads(text)["spec"]
            assert_equal(before["initContainers"][0]["name"], "knack-gateway", "the sidecar")
            debugger = {"spec": {"ephemeralContainers": [{"name": "debugger", "image": "busybox", "targetContainerName": "app"}]}}
            for what, place, change in (("kubectl debug", "/later/ephemeralcontainers", debugger), ("a label", "/later", {"metadata": {"labels": {LABEL: "disabled"}}})):
                status, text = self.server.ask("PATCH", path + place, change, content="application/strategic-merge-patch+json")
                assert_equal(status, 200, "%s: %s" % (what, message(text)))
                after = json.loads(text)["spec"]
                [debugged] = after.pop("ephemeralContainers")
                assert_equal((debugged["name"], debugged.get("env")), ("debugger", None), "the container of kubectl debug")
                same(after, before, what)
        finally:
            self.server.ask("DELETE", path + "/later", gracePeriodSeconds=0)

    def beside_a_mesh(self):
        """A webhook that puts its containers before all others, called before ours and after it: the pod has both, each once."""
        pod = next(rows())[1]
        pod["metadata"]["labels"][MESHED] = "true"
        for name in ("a-mesh-", "zz-mesh-"):
            with Mesh(self.server, name + self.release):
                wait_until("the mesh", SECONDS_UNTIL_ACTIVE, lambda: "mesh-init" in self.create(labelled(pod, None), self.plain)[1])
                made = self.taken(pod, self.plain)
                names = [one["name"] for one in made["spec"]["initContainers"]]
                assert_equal(sorted(names), ["knack-gateway", "mesh-init", "mesh-proxy"], name)
                assert_equal(made["metadata"]["annotations"][ANNOTATION], "injected", name)
                given = {one["name"]: one["value"] for one in made["spec"]["containers"][0]["env"]}
                assert_equal(given["OPENAI_BASE_URL"], "http://127.0.0.1:4141/v1", name)

    def warned(self):
        """Who creates a pod that asks and gets no sidecar, or not for every API, is told; nobody else is."""
        found = dict(rows())
        before = next(rows())[1]
        wait_until("the warning", SECONDS_UNTIL_ACTIVE, lambda: self.taken(found["the host's network"], self.plain) and self.server.warning)
        for title, word in (("the host's network", "not injected: the pod uses the host's network"), ("containers that disagree", "not redirected: openai (base URLs differ)"),
                            ("a runtime that is nonsense", "is ignored"), ("a client for Azure", "not redirected: openai (a client for Azure)"),
                            ("an annotation that is misspelt", "unknown annotation knack.dev/runtim is ignored"), ("one container", None)):
            self.taken(found[title], self.plain)
            if word is None:
                assert_equal(self.server.warning, "", title)
            elif word not in self.server.warning:
                raise AssertionError("%s: %r is not in the warning %r" % (title, word, self.server.warning))
        self.taken(labelled(before, None), self.plain)
        assert_equal(self.server.warning, "", "a pod that does not ask")
        self.mislabelled(before)

    def mislabelled(self, pod):
        """Who writes another value of the label than the two, on a pod or a namespace, is told that it does nothing."""
        says = "the label knack.dev/inject=true has no effect"
        wait_until("the warning", SECONDS_UNTIL_ACTIVE, lambda: self.taken(labelled(pod, "true"), self.plain) and says in self.server.warning)
        for value, warned in (("enabled", False), ("disabled", False), ("", True), ("true", True)):
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.release + "-labelled", "labels": {LABEL: value}}}
            status, text = self.server.ask("POST", "/api/v1/namespaces", namespace, dryRun="All")
            assert_equal(status, 201, message(text))
            assert_equal("has no effect" in self.server.warning, warned, "a namespace with %r" % value)
        # Of a namespace that is there: who corrects the label, or removes it, is not warned.
        path = "/api/v1/namespaces/" + self.labelled
        self.server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.labelled, "labels": {"knack-test": "chart", LABEL: "true"}}}, path)
        for value, warned in (("enabled", False), (None, False), ("disabled", False), ("yes", True)):
            change = {"metadata": {"labels": {LABEL: value}}}
            status, text = self.server.ask("PATCH", path, change, content="application/merge-patch+json", dryRun="All")
            assert_equal(status, 200, message(text))
            assert_equal("has no effect" in self.server.warning, warned, "a namespace that was labelled true, with %r" % value)

    def gone_and_back(self):
        """Without the policy a pod that asks starts without its sidecar, and its creator is told; with it again the next one has it."""
        title, pod = next(rows())
        injects = lambda: ANNOTATION in self.taken(pod, self.plain)["metadata"].get("annotations", {})
        ours = [document for document in self.made if document["kind"].startswith("MutatingAdmissionPolicy")]
        for document in ours:
            assert_equal(self.server.ask("DELETE", path_of(document))[0], 200, "the deletion of " + document["kind"])
        wait_until("a pod without its sidecar", SECONDS_UNTIL_ACTIVE, lambda: not injects())
        wait_until("the warning", SECONDS_UNTIL_ACTIVE, lambda: not injects() and "nothing has added it" in self.server.warning)
        same(labelled(self.taken(pod, self.plain), None), labelled(self.before[title], None), "a pod without the policy")
        for document in ours:
            self.put(document)
        wait_until("the sidecar with the policy again", SECONDS_UNTIL_ACTIVE, injects)

    def undecodable(self):
        """A policy whose pods do not decode: who creates a pod that asks reads which field it is, and nobody else meets it."""
        title, pod = next(rows())
        [policy] = [document for document in self.made if document["kind"] == "MutatingAdmissionPolicy"]
        # Whoever does not ask, in this namespace and in others, and whoever asks where nothing is injected.
        others = [(self.plain, None), (self.plain, "disabled"), (self.asking, "disabled"), ("default", None), ("kube-system", "enabled")]
        before = [self.taken(labelled(pod, value), namespace) for namespace, value in others]
        broken = copy.deepcopy(policy)
        [sidecar] = [variable for variable in broken["spec"]["variables"] if variable["name"] == "sidecar"]
        sidecar["expression"] = sidecar["expression"].replace('dyn("127.0.0.1:4141")', "dyn(4141)")
        self.put(broken)
        text = wait_until("the error", SECONDS_UNTIL_ACTIVE, lambda: (lambda status, text: status == 500 and message(text))(*self.create(pod, self.plain)))
        if "spec.initContainers.env.value" not in text:
            raise AssertionError("the field is not named: " + text)
        assert_equal(self.create(labelled(pod, None), self.asking)[0], 500, "a pod whose namespace asks")
        same(before[0], self.before[title], "a pod that does not ask")
        for (namespace, value), expected in zip(others, before):
            same(self.taken(labelled(pod, value), namespace), expected, "%s in %s" % (value, namespace))
        self.put(policy)
        wait_until("the sidecar with the policy again", SECONDS_UNTIL_ACTIVE, lambda: self.create(pod, self.plain)[0] == 201)
        same(self.taken(pod, self.plain), self.taken(self.expected[title], self.plain), "a pod with the policy again")
        return text[:150]

    def extreme(self):
        """Values at their bounds, quantities as numbers, and values that are taken away make pods that the server takes, as `knack inject` does."""
        title, pod = next((title, pod) for title, pod in rows() if title == "a limit of storage")
        bounds = {"requests": {"cpu": 0.01, "memory": 20971520, "ephemeral-storage": 0}, "limits": {"cpu": 1, "memory": 268435456, "ephemeral-storage": "1Gi"}}
        least = {"requests": {"cpu": 0, "memory": 0, "ephemeral-storage": None}, "limits": {"cpu": 0, "memory": "6Mi", "ephemeral-storage": 1048576}}
        most = {"requests": {"cpu": 1e-7, "memory": "0.5", "ephemeral-storage": "1Gi"}, "limits": {"cpu": 40 * "9", "memory": 1e25, "ephemeral-storage": None}}
        for values, others, requests in (
                ({"runAsUser": (1 << 31) - 1, "resources": bounds, "runtime": 63 * "n" + "/" + 63 * "r"}, {}, {"cpu": "10m", "memory": "20971520", "ephemeral-storage": "0"}),
                ({"runAsUser": None, "imagePullSecrets": None, "logLevel": None, "resources": least}, {}, {"cpu": "0", "memory": "0", "ephemeral-storage": "1048576"}),
                ({"runAsUser": 1, "imagePullSecrets": [63 * "s"], "resources": most}, {"image": {"registry": 238 * "a"}}, None)):
            rendered = self.render("Warn", values, **others)
            for document in self.ours(rendered):
                self.put(document)
            own = self.taken(injected([self.before[title]], parameters_of(rendered))[0], self.plain)["spec"]
            wait_until("pods as knack inject makes them", SECONDS_UNTIL_ACTIVE, lambda own=own: self.taken(pod, self.plain)["spec"] == own,
                       lambda own=own: "%s\nand by knack inject\n%s" % (self.taken(pod, self.plain)["spec"], own))
            if requests:
                assert_equal(own["initContainers"][0]["resources"]["requests"], requests, "requests")
        for document in self.made:
            self.put(document)
        wait_until("the defaults", SECONDS_UNTIL_ACTIVE, lambda: self.taken(pod, self.plain)["spec"] == self.taken(self.expected[title], self.plain)["spec"])

    def refused(self):
        """withoutSidecar: Deny. A pod that asks starts with its sidecar or not at all, also while nothing injects."""
        found = dict(rows())
        for document in self.ours(self.render("Deny")):
            self.put(document)
        host, plain = found["the host's network"], found["one container"]
        wait_until("the refusal", SECONDS_UNTIL_ACTIVE, lambda: self.create(host, self.plain)[0] == 422)
        for namespace, pod in ((self.plain, plain), (self.asking, labelled(plain, None)), (self.plain, found["containers that disagree"]),
                               (self.plain, labelled(host, None)), (self.asking, labelled(host, "disabled"))):
            self.taken(pod, namespace)
        for document in self.made:
            if document["kind"] == self.CALLS:
                self.server.ask("DELETE", path_of(document))
        for namespace, pod in ((self.plain, plain), (self.asking, labelled(plain, None))):
            text = wait_until("the refusal without an injection", SECONDS_UNTIL_ACTIVE, lambda pod=pod, namespace=namespace: (lambda status, text: status == 422 and text)(*self.create(pod, namespace)))
            if "nothing has added it" not in text:
                raise AssertionError(message(text))

    def remove(self):
        for document in reversed(self.made):
            self.server.ask("DELETE", path_of(document))
        for name in (self.plain, self.asking, self.strict, self.own, self.labelled):
            self.server.ask("DELETE", "/api/v1/namespaces/" + name)


def tests(report):
    with Server() as server:
        table = Table(server)
        try:
            if not report.check("injection: the policy is taken and active", table.prepare):
                return
            for title, pod in rows():
                report.check("injection: " + title, lambda title=title, pod=pod: table.row(title, pod))
            report.check("injection: pods that did not ask are what they were", table.untouched)
            report.check("injection: the restricted standard", table.restricted)
            report.check("injection: a LimitRange and a ResourceQuota", table.counted)
            report.check("injection: a pod that is there stays as it is", table.later)
            report.check("injection: beside the webhook of a mesh", table.beside_a_mesh)
            report.check("injection: no expression failed", table.no_error)
            report.check("injection: the expressions fit the types", table.types_fit)
            report.check("injection: a pod without its sidecar is told of", table.warned)
            if subprocess.run([BED, "status"], capture_output=True).returncode == 0:
                report.check("injection: an API server that restarts", table.restarted)
            else:
                report.skip("injection: an API server that restarts", "this cluster is not the test bed")
            report.check("injection: a policy that is gone and comes back", table.gone_and_back)
            report.check("injection: a policy whose expression fails", table.failing)
            report.check("injection: values at their bounds", table.extreme)
            report.check("injection: a policy whose pods do not decode", table.undecodable)
            report.check("injection: a pod without its sidecar is refused", table.refused)
        finally:
            table.remove()
