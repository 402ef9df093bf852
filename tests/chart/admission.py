"""The admission policies of the chart on an API server: what hub and controller may write, and that nobody else is concerned.

Needs nothing but the API server, so the same rows are asked of the newest Kubernetes and of the oldest that is promised.
"""

import json
import os
import secrets

import yaml

import bundle_writes
import jobs
import registry_writes
import writes
from bed import wait_until
from harness import ROOT, assert_equal
from oldest import on_the_oldest
from render import documents, render
from server import Server, message

# What of a rendering the rows need: rights and rules.
KINDS = {
    "ClusterRole": "apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "apis/rbac.authorization.k8s.io/v1/namespaces/%s/roles",
    "RoleBinding": "apis/rbac.authorization.k8s.io/v1/namespaces/%s/rolebindings",
    "PriorityClass": "apis/scheduling.k8s.io/v1/priorityclasses",
    "ValidatingAdmissionPolicy": "apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}
# What the controller writes down of the SkillRuntimes `default` and `everything`; its own test keeps it.
REGISTER = os.path.join(ROOT, "src", "controller", "runtime", "golden", "register.snap")
SECONDS_UNTIL_ACTIVE = 60
SERVED_SECONDS = 120
CONDITION = {"status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def register():
    """The annotations by runtime, as a golden of the controller's."""
    return jobs.snapshot(REGISTER)


def chart_values(sandboxes, empty):
    return {
        "crds": {"enabled": False},
        "injection": {"delivery": "Webhook", "rollStale": True, "authorities": "ClusterTrustBundle"},
        "runtimeNamespaces": [empty],
        "registry": {"enabled": True},
        "defaultRuntime": {"namespace": sandboxes, "createNamespace": False},
        "sandbox": {"images": {"python": "registry.example/knack/sandbox-python@" + jobs.PYTHON_DIGEST},
                    "runnerImage": "registry.example/knack/runner@" + jobs.RUNNER_DIGEST},
    }


def path_of(document):
    path = KINDS[document["kind"]]
    if "%s" in path:
        path = path % document["metadata"]["namespace"]
    return "/%s/%s" % (path, document["metadata"]["name"])


class Rows:
    """The rows on one API server."""

    def __init__(self, server):
        self.server = server
        # Names of its own: what a broken-off run left is in nobody's way.
        self.release = "knack-adm-" + secrets.token_hex(3)
        self.namespace, self.sandboxes, self.empty = (self.release + end for end in ("", "-sandboxes", "-empty"))
        self.priority_class = self.release + "-sandboxes"
        # The empty one is none: objects of the cluster.
        self.places = {"SANDBOXES": self.sandboxes, "RELEASE": self.namespace, "EMPTY": self.empty, "": ""}
        rendered = documents(render(chart_values(self.sandboxes, self.empty), self.release, self.namespace))
        self.made = [document for document in rendered if document["kind"] in KINDS]
        # What stands for a uid in the rows, and the uid that the server gave: an object of an invented owner is collected.
        self.uids = {"NAMESPACE": self.sandboxes, bundle_writes.OWN: self.release + "-hub-ca"}

    def account(self, name):
        return "system:serviceaccount:%s:%s" % (self.namespace, name)

    def prepare(self):
        for name in self.all_namespaces():
            rolls = {"knack.dev/roll": "enabled"} if name == self.sandboxes else {}
            self.server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"knack-test": "chart", **rolls}}},
                              "/api/v1/namespaces/" + name)
            # Kubernetes' own controllers make it, where there are any.
            self.server.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}},
                              "/api/v1/namespaces/%s/serviceaccounts/default" % name)
        for document in self.made + self.wide_rights():
            self.server.apply(document, path_of(document))
        for name, uid in (("default", writes.RUNTIME_UID), ("everything", writes.EVERYTHING_UID)):
            runtime = {"apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "metadata": {"name": name}, "spec": {}}
            self.uids[uid] = self.put("apis/knack.dev/v1alpha1", "skillruntimes", self.sandboxes, runtime)
        self.uids[writes.SKILL_UID] = self.put("apis/knack.dev/v1alpha1", "skills", self.sandboxes, writes.SKILL)
        quota = writes.quota()
        quota["metadata"]["annotations"] = register()
        self.put("api/v1", "resourcequotas", self.sandboxes, quota)
        for job in writes.standing_jobs(self.priority_class, self.sandboxes):
            uid = self.put("apis/batch/v1", "jobs", self.sandboxes, job)
            self.uids.setdefault(writes.JOB_UID, uid)
        for group, resource, place, name, obj in writes.STANDING + registry_writes.STANDING:
            obj["metadata"]["name"] = name
            self.put(group, resource, self.places[place], obj)
        self.until_active()

    def wide_rights(self):
        """Every right in these namespaces, for the processes of a release: what is refused then, a policy refuses, not RBAC."""
        made = []
        for namespace in self.all_namespaces():
            meta = {"name": "chart-test-everything", "namespace": namespace}
            made.append({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta,
                         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                         "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self.namespace}
                                      for name in (writes.HUB, writes.CONTROLLER, registry_writes.REGISTRY)]})
        return made

    def all_namespaces(self):
        return self.namespace, self.sandboxes, self.empty

    def put(self, group, resource, namespace, obj):
        """Makes an object; its uid."""
        path = "/%s/namespaces/%s/%s" % (group, namespace, resource)
        obj = self.located(obj)

        status, text = self.server.ask("POST", path, obj)
        if status != 201:
            raise AssertionError("%s %s: %d %s" % (resource, obj["metadata"]["name"], status, message(text)))
        return json.loads(text)["metadata"]["uid"]

    def until_active(self):
        """A policy is asked a moment after it is made, and its parameters are known a moment after that."""
        hostile = self.job("job_defaults", lambda job: jobs.owner(job).update(uid=jobs.NO_UID))
        fine = self.job("job_defaults", lambda job: None)
        wait_until("the policies refuse", SECONDS_UNTIL_ACTIVE, lambda: "judged by the controller" in self.create_job(hostile)[1])
        wait_until("the policies know the register", SECONDS_UNTIL_ACTIVE, lambda: self.create_job(fine)[0] == 201)
        part = self.located(writes.settings("other"))
        wait_until("the policies of the controller refuse", SECONDS_UNTIL_ACTIVE, lambda: self.ask(
            writes.CONTROLLER, "create", "api/v1", "configmaps", self.sandboxes, "", part)[0] == 422)
        wait_until("the policies of the registry refuse", SECONDS_UNTIL_ACTIVE, lambda: self.ask(
            registry_writes.REGISTRY, "delete", "api/v1", "configmaps", self.sandboxes, "of-a-person", None)[0] == 422)

    def located(self, obj):
        """An object of a row with the uids and names of this server."""
        text = json.dumps(obj)
        for stands, uid in self.uids.items():
            text = text.replace(stands, uid)
        return json.loads(text)

    def job(self, golden, change):
        job = jobs.placed(jobs.golden(golden), self.sandboxes, self.priority_class)
        if golden == "job_everything":
            jobs.rename(job, "everything")
            jobs.owner(job).update(uid=writes.EVERYTHING_UID)
        return self.located(jobs.changed(job, change))

    def create_job(self, job, user="knack-hub"):
        namespace = job["metadata"]["namespace"]
        user = self.account(user) if user == writes.HUB else user
        status, text = self.server.ask("POST", "/apis/batch/v1/namespaces/%s/%ss" % (namespace, job["kind"].lower()), job, user=user, dryRun="All")
        return status, message(text)

    def job_row(self, golden, change, word, newer=None):
        """`newer`: a word of a field that an older server drops before any policy sees it; then there is nothing to refuse."""
        status, text = self.create_job(self.job(golden, change))
        if newer and status == 201 and newer not in text:
            return
        expect((status, text), word)

    def ask(self, who, verb, group, resource, namespace, name, body):
        path = "/%s/namespaces/%s/%s" % (group, namespace, resource) if namespace else "/%s/%s" % (group, resource)
        user = self.account(who)
        if verb == "create":
            answer = self.server.ask("POST", path, body, user=user, dryRun="All")
        elif verb == "delete":
            answer = self.server.ask("DELETE", "%s/%s" % (path, name), user=user, dryRun="All")
        elif verb == "replace":
            found = self.server.get("%s/%s" % (path, name))
            for part, change in body.items():
                found[part].update(change)
            answer = self.server.ask("PUT", "%s/%s" % (path, name), found, user=user, dryRun="All")
        elif verb == "attach":
            answer = self.server.ask("POST", "%s/%s/attach" % (path, name), user=user, container="sandbox", stdin="true")
        else:
            part = "/status" if verb == "status" else ""
            # As the programs write it: a merge patch, which is an update to admission.
            answer = self.server.ask("PATCH", "%s/%s%s" % (path, name, part), body, user=user, content="application/merge-patch+json", dryRun="All")
        return answer[0], message(answer[1])

    def write_row(self, who, verb, group, resource, place, name, body, word):
        body, name = self.located(body), self.located(name)
        if verb == "status" and "conditions" in body["status"]:
            kind = {"ISOLATED": "Isolated", "READY": "Ready"}[body["status"]["conditions"]]
            body["status"]["conditions"] = [dict(CONDITION, type=kind)]
        status, text = self.ask(who, verb, group, resource, self.places[place], name, body)
        if verb == "attach" and word is None:
            # Nothing listens in this pod: what counts is that no rule stands in the way.
            assert_equal("denied request" in text or status == 403, False, "%d %s" % (status, text))
            return
        expect((status, text), word)

    def serve_bundles(self):
        """Every right to ClusterTrustBundles, and certificates for them."""
        meta = {"name": self.release + "-bundles"}
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta,
                "rules": [{"apiGroups": ["certificates.k8s.io"], "resources": ["clustertrustbundles", "signers"], "verbs": ["*"]}]}
        binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": meta,
                   "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": meta["name"]},
                   "subjects": [{"kind": "ServiceAccount", "name": writes.CONTROLLER, "namespace": self.namespace}]}
        for document in (role, binding):
            self.made.append(document)
            self.server.apply(document, path_of(document))
        certificates = self.server.get("/api/v1/namespaces/default/configmaps/kube-root-ca.crt")["data"]["ca.crt"]
        self.uids[bundle_writes.PEM] = json.dumps(certificates)[1:-1]
        # The authorizer learns of a binding a moment after it is made.
        wait_until("the rights to ClusterTrustBundles", SECONDS_UNTIL_ACTIVE, lambda: "cannot create resource" not in self.ask(
            writes.CONTROLLER, "create", bundle_writes.GROUP, bundle_writes.RESOURCE, "", "", self.located(bundle_writes.bundle("other")))[1])

    def bundle(self, managed):
        """The controller's bundle, as its owner made it."""
        made = self.located(bundle_writes.bundle(bundle_writes.OWN, managed))
        self.server.ask("DELETE", "/%s/%s/%s" % (bundle_writes.GROUP, bundle_writes.RESOURCE, made["metadata"]["name"]))
        status, text = self.server.ask("POST", "/%s/%s" % (bundle_writes.GROUP, bundle_writes.RESOURCE), made)
        assert_equal(status, 201, message(text))

    def others_pass(self, namespace, labels, kind):
        job = writes.job_of_somebody(namespace, labels, kind)
        # Kubernetes' own controller makes the Jobs of CronJobs.
        makers = (None, "system:serviceaccount:kube-system:cronjob-controller") if kind == "Job" else (None,)
        for user in makers:
            status, text = self.create_job(job, user)
            assert_equal((status, text if status != 201 else ""), (201, ""), "%s as %s" % (kind, user or "an administrator"))

    def types_fit(self):
        """No expression of a policy is doubted by the server's own type check."""
        for document in self.made:
            if document["kind"] != "ValidatingAdmissionPolicy":
                continue
            name = document["metadata"]["name"]

            def checked(path=path_of(document)):
                found = self.server.get(path)
                status = found.get("status", {})
                return status if status.get("observedGeneration") == found["metadata"]["generation"] else None

            warnings = wait_until("the type check of " + name, 30, checked).get("typeChecking", {}).get("expressionWarnings", [])
            assert_equal(warnings, [], name)

    def remove(self):
        for document in self.made:
            self.server.ask("DELETE", path_of(document))
        self.server.ask("DELETE", "/%s/%s/%s" % (bundle_writes.GROUP, bundle_writes.RESOURCE, self.uids[bundle_writes.OWN]))
        for name in self.all_namespaces():
            self.server.ask("DELETE", "/api/v1/namespaces/" + name)


def expect(answer, word):
    """The answer to a write: taken (None), or refused by a rule that says the word."""
    status, text = answer
    if word is None:
        assert_equal((status, text if status >= 300 else ""), (status if status < 300 else 201, ""), "an answer that is no refusal")
    elif status < 300 or not any(one in text for one in (word if isinstance(word, tuple) else (word,))):
        raise AssertionError("expected a refusal with %r, got %d %s" % (word, status, text[:800]))


def bundle_rows(report, asked, where):
    """The rows of ClusterTrustBundles: with none there, with the controller's own, with somebody else's of its name."""
    if not report.check("%s: ClusterTrustBundles are served" % where, asked.serve_bundles):
        return
    for managed, part in ((None, bundle_writes.NEW), ("knack", bundle_writes.STANDING), ("Helm", bundle_writes.FOREIGN)):
        if managed:
            asked.bundle(managed)
        for who, name, *rest in part:
            report.check("%s: %s and %s (%s)" % (where, who, name, rest[0]), lambda who=who, rest=rest: asked.write_row(who, *rest))


def rows(report, server, where, newest):
    """Every row on one API server. The oldest serves no ClusterTrustBundle, and nobody checks types there: the controller-manager does."""
    asked = Rows(server)
    try:
        if not report.check("%s: the policies are taken and active" % where, asked.prepare):
            return
        if newest:
            report.check("%s: the policies' expressions fit the types" % where, asked.types_fit)
            bundle_rows(report, asked, where)
        for name in jobs.goldens():
            report.check("%s: the hub and the Job %s" % (where, name), lambda name=name: asked.job_row(name, lambda job: None, None))
        for name, golden, change, word in jobs.CASES:
            report.check("%s: the hub and %s" % (where, name), lambda name=name, golden=golden, change=change, word=word: asked.job_row(golden, change, word, jobs.NEWER_FIELDS.get(name)))
        for who, name, *rest in writes.CASES + registry_writes.CASES:
            report.check("%s: %s and %s (%s)" % (where, who, name, rest[0]), lambda who=who, rest=rest: asked.write_row(who, *rest))
        for namespace in (*asked.all_namespaces(), "default"):
            for kind in ("Job", "CronJob"):
                report.check("%s: a %s of somebody else in %s" % (where, kind, namespace.removeprefix(asked.release)),
                             lambda namespace=namespace, kind=kind: asked.others_pass(namespace, {"app": "backup"}, kind))
        report.check("%s: a Job of somebody else with a label of ours" % where, lambda: asked.others_pass(asked.empty, {"knack.dev/runtime": "default"}, "Job"))
        # The one exception, which docs/kubernetes.md names: the parameter is looked for before the maker is.
        both = {"knack.dev/role": "sandbox", "knack.dev/runtime": "default"}
        report.check("%s: a Job of somebody else with both labels of a sandbox" % where, lambda: asked.others_pass(asked.sandboxes, both, "Job"))
        report.check("%s: a Job of somebody else with both labels, where nothing runs" % where,
                     lambda: expect(asked.create_job(writes.job_of_somebody(asked.empty, both), None), "parameterNotFoundAction"))
    finally:
        asked.remove()


def define(server):
    """The definitions, until they are served: a row must not depend on what ran before it."""
    for name in ("skills", "skillruntimes"):
        with open(os.path.join(ROOT, "crds", name + ".yaml"), encoding="utf-8") as file:
            definition = yaml.safe_load(file)
        server.apply(definition, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/%s.knack.dev" % name)
        wait_until(name, SERVED_SECONDS, lambda name=name: server.get("/apis/knack.dev/v1alpha1/" + name))


def tests(report):
    with Server() as server:
        define(server)
        rows(report, server, "1.36", newest=True)
    on_the_oldest(report, "the policies", lambda server, _: on_another(report, server))


def on_another(report, server):
    """The rows at an API server that knows nothing of us yet."""
    version = server.get("/version")["gitVersion"]
    define(server)
    rows(report, server, version, newest=False)
