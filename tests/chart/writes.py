"""What hub and controller could try to write besides Jobs, and what the admission policies say of each."""

import copy

import jobs

HUB, CONTROLLER = "knack-hub", "knack-controller"
# They stand for the uids that the server gives; the first two are those of the goldens.
RUNTIME_UID = "9d1f3c1e-0000-4000-8000-000000000001"
EVERYTHING_UID = "9d1f3c1e-0000-4000-8000-000000000002"
SKILL_UID = "9d1f3c1e-0000-4000-8000-00000000000a"
JOB_UID = "9d1f3c1e-0000-4000-8000-00000000000b"
SKILL = {"apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": "weather"}, "spec": {"source": {"inline": {"files": {"SKILL.md": "x"}}}}}


def owned_by(kind, name, uid, **more):
    return {"apiVersion": "knack.dev/v1alpha1", "kind": kind, "name": name, "uid": uid, **more}


def artifact(**metadata):
    """A ConfigMap with a Skill's content, as the controller makes it."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "immutable": True, "data": {"index.json": "{}"}, "metadata": {
        "name": "weather-0123456789",
        "labels": {"knack.dev/skill": "weather", "knack.dev/skill-namespace": "NAMESPACE", "knack.dev/revision": "0123456789"},
        "ownerReferences": [owned_by("Skill", "weather", SKILL_UID, controller=True)], **metadata}}


def settings(name="settings", **more):
    """Somebody's ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}, **more}


def shared():
    """What sidecars trust, as the controller makes it."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "knack-ca", "labels": {"app.kubernetes.io/managed-by": "knack"}},
            "data": {"ca.crt": "a certificate"}}


def fence(**spec):
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {
        "name": "knack-sandbox-default", "labels": {"knack.dev/runtime": "default"},
        "ownerReferences": [owned_by("SkillRuntime", "default", RUNTIME_UID, controller=True)]},
        "spec": {"podSelector": {"matchLabels": {"knack.dev/role": "sandbox"}}, "policyTypes": ["Ingress", "Egress"], **spec}}


def policy_of_somebody():
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "of-somebody"},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}}


def quota(name="knack-sandboxes", labels=True, owners=True):
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {
        "name": name, "labels": {"app.kubernetes.io/managed-by": "knack"} if labels else {},
        "ownerReferences": [owned_by("SkillRuntime", "default", RUNTIME_UID)] if owners else []},
        "spec": {"hard": {"pods": "5"}}}


def lease(name):
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {"holderIdentity": "a"}}


def secret(name, **more):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque", **more}


def pod(labels, owner):
    """A pod as the cluster may hold it; of a Job unless it is somebody's own."""
    reference = {"apiVersion": "batch/v1", "kind": "Job", "controller": True, "uid": JOB_UID, "name": "knack-default-standing"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": labels, "ownerReferences": [reference] if owner else []},
            "spec": {"containers": [{"name": "sandbox", "image": "registry.example/none"}]}}


def workload(kind="Deployment", **metadata):
    """An application."""
    labels = {"app": "web"}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web", **metadata}, "spec": {
        "replicas": 0, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels, "annotations": {"example.org/keep": "a"}}, "spec": {"containers": [{"name": "app", "image": "registry.example/none"}]}}}}


def template(**part):
    """A change of a pod template."""
    return {"spec": {"template": part}}


ROLLED = {"metadata": {"annotations": {"knack.dev/rolled-for": "registry.example/knack-gateway:2"}}}


def with_change(obj, change):
    obj = copy.deepcopy(obj)
    change(obj)
    return obj


def meta(**fields):
    return lambda obj: obj["metadata"].update(copy.deepcopy(fields))


def labelled(**labels):
    return lambda obj: obj["metadata"]["labels"].update({key.replace("_", "-"): value for key, value in labels.items()})


# Objects that are in the namespaces before the rows are asked: kind's path, namespace (SANDBOXES or RELEASE), name, object.
STANDING = [
    ("api/v1", "configmaps", "SANDBOXES", "weather-0123456789", artifact()),
    ("api/v1", "configmaps", "SANDBOXES", "weather-2123456789", {**artifact(name="weather-2123456789"), "immutable": False}),
    ("api/v1", "configmaps", "SANDBOXES", "settings", settings()),
    ("api/v1", "configmaps", "SANDBOXES", "frozen", settings("frozen", immutable=True)),
    ("api/v1", "configmaps", "RELEASE", "knack-hub-ca", settings("knack-hub-ca")),
    ("api/v1", "configmaps", "SANDBOXES", "knack-ca", shared()),
    ("api/v1", "configmaps", "RELEASE", "knack-ca", settings("knack-ca")),
    ("apis/networking.k8s.io/v1", "networkpolicies", "SANDBOXES", "knack-sandbox-default", fence()),
    ("apis/networking.k8s.io/v1", "networkpolicies", "SANDBOXES", "of-somebody", policy_of_somebody()),
    ("api/v1", "resourcequotas", "SANDBOXES", "of-somebody", quota("of-somebody", labels=False, owners=False)),
    ("apis/coordination.k8s.io/v1", "leases", "SANDBOXES", "of-somebody", lease("of-somebody")),
    ("apis/coordination.k8s.io/v1", "leases", "SANDBOXES", "knack-runtime-default", lease("knack-runtime-default")),
    ("api/v1", "secrets", "RELEASE", "knack-hub-tls", secret("knack-hub-tls")),
    ("apis/apps/v1", "deployments", "SANDBOXES", "web", workload()),
    ("apis/apps/v1", "statefulsets", "SANDBOXES", "web", workload("StatefulSet")),
    ("apis/apps/v1", "deployments", "RELEASE", "web", workload()),
    ("api/v1", "pods", "SANDBOXES", "of-a-sandbox", pod({"knack.dev/role": "sandbox", "knack.dev/runtime": "default"}, owner=True)),
    ("api/v1", "pods", "SANDBOXES", "of-somebody", pod({"app": "database"}, owner=False)),
    ("api/v1", "pods", "SANDBOXES", "with-our-label", pod({"knack.dev/role": "sandbox"}, owner=False)),
]

# Who, name, verb, path, resource, namespace, name of the object ("" for a create), body (a value, a change of what is there, or None),
# and a word of the refusal (None: it is taken).
CASES = [
    # ConfigMaps of the controller.
    (CONTROLLER, "content of a Skill", "create", "api/v1", "configmaps", "SANDBOXES", "", artifact(name="weather-1123456789"), None),
    (CONTROLLER, "a second part of it", "create", "api/v1", "configmaps", "SANDBOXES", "", artifact(name="weather-0123456789-1"), None),
    (CONTROLLER, "a ConfigMap of its own", "create", "api/v1", "configmaps", "SANDBOXES", "", settings("other"), "immutable ConfigMaps that a Skill owns"),
    (CONTROLLER, "content that can be changed", "create", "api/v1", "configmaps", "SANDBOXES", "",
     {**artifact(name="weather-2"), "immutable": False}, "immutable ConfigMaps that a Skill owns"),
    (CONTROLLER, "content of nobody", "create", "api/v1", "configmaps", "SANDBOXES", "", artifact(name="weather-2", ownerReferences=[]), "immutable ConfigMaps that a Skill owns"),
    (CONTROLLER, "content of a SkillRuntime", "create", "api/v1", "configmaps", "SANDBOXES", "",
     artifact(name="weather-2", ownerReferences=[owned_by("SkillRuntime", "weather", SKILL_UID, controller=True)]), "immutable ConfigMaps that a Skill owns"),
    (CONTROLLER, "content of a version that there is not", "create", "api/v1", "configmaps", "SANDBOXES", "",
     artifact(name="weather-2", ownerReferences=[dict(owned_by("Skill", "weather", SKILL_UID, controller=True), apiVersion="knack.dev/v9")]), "immutable ConfigMaps that a Skill owns"),
    (CONTROLLER, "content under a name that is not the Skill's", "create", "api/v1", "configmaps", "SANDBOXES", "",
     artifact(name="kube-root-ca.crt-2"), "immutable ConfigMaps that a Skill owns"),
    (CONTROLLER, "content with another Skill's label", "create", "api/v1", "configmaps", "SANDBOXES", "",
     with_change(artifact(name="weather-2"), lambda obj: obj["metadata"]["labels"].update({"knack.dev/skill": "other"})), "labels of its Skill"),
    (CONTROLLER, "content with another namespace's label", "create", "api/v1", "configmaps", "SANDBOXES", "",
     with_change(artifact(name="weather-2"), lambda obj: obj["metadata"]["labels"].update({"knack.dev/skill-namespace": "other"})), "labels of its Skill"),
    (CONTROLLER, "content that nothing can delete", "create", "api/v1", "configmaps", "SANDBOXES", "", artifact(name="weather-2", finalizers=["example.org/stay"]), "no finalizers"),
    (CONTROLLER, "the hub's authorities", "create", "api/v1", "configmaps", "RELEASE", "", settings("knack-hub-ca"), ""),
    (CONTROLLER, "the hub's authorities, renewed", "update", "api/v1", "configmaps", "RELEASE", "knack-hub-ca", {"data": {"ca.crt": "new"}}, None),
    (CONTROLLER, "the hub's authorities elsewhere", "create", "api/v1", "configmaps", "SANDBOXES", "", settings("knack-hub-ca"), "immutable ConfigMaps that a Skill owns"),
    (CONTROLLER, "what sidecars trust, elsewhere", "create", "api/v1", "configmaps", "EMPTY", "", shared(), None),
    (CONTROLLER, "what sidecars trust, with more in it", "create", "api/v1", "configmaps", "EMPTY", "", dict(shared(), data={"ca.crt": "x", "y": "z"}), "knack-ca with certificates"),
    (CONTROLLER, "what sidecars trust, without its label", "create", "api/v1", "configmaps", "EMPTY", "", settings("knack-ca", data={"ca.crt": "x"}), "knack-ca with certificates"),
    (CONTROLLER, "what sidecars trust, renewed", "update", "api/v1", "configmaps", "SANDBOXES", "knack-ca", {"data": {"ca.crt": "new"}}, None),
    (CONTROLLER, "what sidecars trust, made somebody else's settings", "update", "api/v1", "configmaps", "SANDBOXES", "knack-ca", {"data": {"evil": "new"}}, "changes no ConfigMap but"),
    (CONTROLLER, "somebody's ConfigMap of that name", "update", "api/v1", "configmaps", "RELEASE", "knack-ca", {"metadata": {"labels": {"app.kubernetes.io/managed-by": "knack"}}, "data": {"a": None, "ca.crt": "evil"}}, "changes no ConfigMap but"),
    (CONTROLLER, "somebody's ConfigMap, changed", "update", "api/v1", "configmaps", "SANDBOXES", "settings", {"data": {"a": "evil"}}, "changes no ConfigMap but knack-hub-ca"),
    (CONTROLLER, "somebody's ConfigMap, taken over", "update", "api/v1", "configmaps", "SANDBOXES", "settings",
     {"metadata": {"ownerReferences": [owned_by("Skill", "weather", SKILL_UID, controller=True)]}}, "changes no ConfigMap but knack-hub-ca"),
    (CONTROLLER, "a Skill's content, relabelled", "update", "api/v1", "configmaps", "SANDBOXES", "weather-0123456789",
     {"metadata": {"labels": {"knack.dev/skill": "other"}}}, "changes no ConfigMap but knack-hub-ca"),
    (CONTROLLER, "superseded content", "delete", "api/v1", "configmaps", "SANDBOXES", "weather-0123456789", None, None),
    (CONTROLLER, "what somebody put in the place of content", "delete", "api/v1", "configmaps", "SANDBOXES", "weather-2123456789", None, None),
    (CONTROLLER, "somebody's ConfigMap", "delete", "api/v1", "configmaps", "SANDBOXES", "settings", None, "deletes ConfigMaps that a Skill owns"),
    (CONTROLLER, "somebody's immutable ConfigMap", "delete", "api/v1", "configmaps", "SANDBOXES", "frozen", None, "deletes ConfigMaps that a Skill owns"),
    # What stands around sandboxes.
    (CONTROLLER, "the fence", "create", "apis/networking.k8s.io/v1", "networkpolicies", "SANDBOXES", "", with_change(fence(), meta(name="knack-sandbox-second")), None),
    (CONTROLLER, "the fence, put back", "replace", "apis/networking.k8s.io/v1", "networkpolicies", "SANDBOXES", "knack-sandbox-default", {"metadata": {"annotations": {"a": "b"}}}, None),
    (CONTROLLER, "a fence with a gate", "create", "apis/networking.k8s.io/v1", "networkpolicies", "SANDBOXES", "",
     with_change(fence(egress=[{}]), meta(name="knack-sandbox-second")), "denies sandboxes everything"),
    (CONTROLLER, "a fence for one direction", "create", "apis/networking.k8s.io/v1", "networkpolicies", "SANDBOXES", "",
     with_change(fence(policyTypes=["Ingress"]), meta(name="knack-sandbox-second")), "denies sandboxes everything"),
    (CONTROLLER, "a fence around everybody's pods", "create", "apis/networking.k8s.io/v1", "networkpolicies", "SANDBOXES", "",
     with_change(fence(podSelector={}), meta(name="knack-sandbox-second")), "denies sandboxes everything"),
    (CONTROLLER, "a NetworkPolicy of another name", "create", "apis/networking.k8s.io/v1", "networkpolicies", "SANDBOXES", "", with_change(fence(), meta(name="allow-all")),
     "NetworkPolicies of SkillRuntimes only"),
    (CONTROLLER, "a fence of nobody", "create", "apis/networking.k8s.io/v1", "networkpolicies", "SANDBOXES", "",
     with_change(fence(), meta(name="knack-sandbox-second", ownerReferences=[])), "NetworkPolicies of SkillRuntimes only"),
    (CONTROLLER, "somebody's NetworkPolicy, opened", "replace", "apis/networking.k8s.io/v1", "networkpolicies", "SANDBOXES", "of-somebody",
     {"spec": {"ingress": [{}]}}, "NetworkPolicies of SkillRuntimes only"),
    (CONTROLLER, "the quota, changed", "replace", "api/v1", "resourcequotas", "SANDBOXES", "knack-sandboxes", {"spec": {"hard": {"pods": "7"}}}, None),
    (CONTROLLER, "another quota", "create", "api/v1", "resourcequotas", "SANDBOXES", "", quota("mine"), "ResourceQuota knack-sandboxes only"),
    (CONTROLLER, "a quota of nobody", "replace", "api/v1", "resourcequotas", "SANDBOXES", "knack-sandboxes", {"metadata": {"ownerReferences": []}}, "goes with the last of them"),
    (CONTROLLER, "somebody's quota, changed", "replace", "api/v1", "resourcequotas", "SANDBOXES", "of-somebody", {"spec": {"hard": {"pods": "0"}}}, "ResourceQuota knack-sandboxes only"),
    (CONTROLLER, "somebody's quota", "delete", "api/v1", "resourcequotas", "SANDBOXES", "of-somebody", None, "ResourceQuota knack-sandboxes only"),
    # Secrets.
    (CONTROLLER, "the hub's certificate, renewed", "update", "api/v1", "secrets", "RELEASE", "knack-hub-tls", {"stringData": {"tls.crt": "a"}}, None),
    (CONTROLLER, "a token of a ServiceAccount", "create", "api/v1", "secrets", "RELEASE", "", secret(
        "knack-hub-journal", type="kubernetes.io/service-account-token",
        metadata={"name": "knack-hub-journal", "annotations": {"kubernetes.io/service-account.name": "knack-hub"}}), "holds certificates and keys"),
    (CONTROLLER, "another Secret", "create", "api/v1", "secrets", "RELEASE", "", secret("provider-keys"), "knack-root, knack-hub-tls, knack-registry-tls, knack-hub-journal and knack-webhook-tls"),
    # Restarts for the sake of older sidecars.
    (CONTROLLER, "a restart", "update", "apis/apps/v1", "deployments", "SANDBOXES", "web", template(**ROLLED), None),
    (CONTROLLER, "a restart of a StatefulSet", "update", "apis/apps/v1", "statefulsets", "SANDBOXES", "web", template(**ROLLED), None),
    (CONTROLLER, "a restart where nobody asks", "update", "apis/apps/v1", "deployments", "RELEASE", "web", template(**ROLLED), "knack.dev/roll: enabled only"),
    (CONTROLLER, "another image of an application", "update", "apis/apps/v1", "deployments", "SANDBOXES", "web",
     template(spec={"containers": [{"name": "app", "image": "registry.example/evil"}]}), "and nothing else of a workload"),
    (CONTROLLER, "another account of an application", "update", "apis/apps/v1", "deployments", "SANDBOXES", "web", template(spec={"serviceAccountName": "admin"}), "and nothing else of a workload"),
    (CONTROLLER, "another annotation", "update", "apis/apps/v1", "deployments", "SANDBOXES", "web", template(metadata={"annotations": {"example.org/inject": "true"}}), "and nothing else of a workload"),
    (CONTROLLER, "an annotation, taken away", "update", "apis/apps/v1", "deployments", "SANDBOXES", "web", template(metadata={"annotations": {"example.org/keep": None}}), "and nothing else of a workload"),
    (CONTROLLER, "another label of pods", "update", "apis/apps/v1", "deployments", "SANDBOXES", "web", template(metadata={"labels": {"a": "b"}}), "and nothing else of a workload"),
    (CONTROLLER, "more replicas", "update", "apis/apps/v1", "deployments", "SANDBOXES", "web", {"spec": {"replicas": 7}}, "and nothing else of a workload"),
    (CONTROLLER, "a pause", "update", "apis/apps/v1", "deployments", "SANDBOXES", "web", {"spec": {"paused": True}}, "and nothing else of a workload"),
    (CONTROLLER, "another label of a workload", "update", "apis/apps/v1", "deployments", "SANDBOXES", "web", {"metadata": {"labels": {"a": "b"}}}, "and nothing else of a workload"),
    (CONTROLLER, "another workload", "create", "apis/apps/v1", "deployments", "SANDBOXES", "", workload(name="other"), "makes and deletes no workloads"),
    (CONTROLLER, "somebody's workload", "delete", "apis/apps/v1", "deployments", "SANDBOXES", "web", None, "makes and deletes no workloads"),
    # The hub's own.
    (HUB, "the Lease of a SkillRuntime", "create", "apis/coordination.k8s.io/v1", "leases", "SANDBOXES", "", lease("knack-runtime-second"), None),
    (HUB, "the Lease of a SkillRuntime, renewed", "update", "apis/coordination.k8s.io/v1", "leases", "SANDBOXES", "knack-runtime-default", {"spec": {"holderIdentity": "b"}}, None),
    (HUB, "a Lease of somebody", "create", "apis/coordination.k8s.io/v1", "leases", "SANDBOXES", "", lease("operator"), "Leases of SkillRuntimes only"),
    (HUB, "somebody's Lease, taken", "update", "apis/coordination.k8s.io/v1", "leases", "SANDBOXES", "of-somebody", {"spec": {"holderIdentity": "hub"}}, "Leases of SkillRuntimes only"),
    (HUB, "a sandbox", "delete", "api/v1", "pods", "SANDBOXES", "of-a-sandbox", None, None),
    (HUB, "somebody's pod", "delete", "api/v1", "pods", "SANDBOXES", "of-somebody", None, "deletes pods of sandbox Jobs only"),
    (HUB, "a pod with a label of ours that no Job made", "delete", "api/v1", "pods", "SANDBOXES", "with-our-label", None, "deletes pods of sandbox Jobs only"),
    (HUB, "a sandbox's stdin", "attach", "api/v1", "pods", "SANDBOXES", "of-a-sandbox", None, None),
    (HUB, "somebody's pod's stdin", "attach", "api/v1", "pods", "SANDBOXES", "of-somebody", None, "the hub attaches to sandboxes only"),
    (HUB, "a record on a Job", "update", "apis/batch/v1", "jobs", "SANDBOXES", "knack-default-standing",
     {"metadata": {"labels": {"knack.dev/skill": "weather"}, "annotations": {"knack.dev/result": "{}"}}}, None),
    (HUB, "a Job that runs on", "update", "apis/batch/v1", "jobs", "SANDBOXES", "knack-default-standing", {"spec": {"activeDeadlineSeconds": 90000}}, "labels and annotations of a Job only"),
    (HUB, "a Job that nothing collects", "update", "apis/batch/v1", "jobs", "SANDBOXES", "knack-default-standing",
     {"metadata": {"finalizers": ["example.org/stay"]}}, "labels and annotations of a Job only"),
    (HUB, "a Job without owner", "update", "apis/batch/v1", "jobs", "SANDBOXES", "knack-default-standing", {"metadata": {"ownerReferences": None}}, "labels and annotations of a Job only"),
    (HUB, "a Job of another runtime", "update", "apis/batch/v1", "jobs", "SANDBOXES", "knack-default-standing",
     {"metadata": {"labels": {"knack.dev/runtime": "everything"}}}, "labels and annotations of a Job only"),
    (HUB, "somebody's Job, relabelled", "update", "apis/batch/v1", "jobs", "SANDBOXES", "of-somebody", {"metadata": {"labels": {"knack.dev/runtime": "default"}}}, "Jobs of SkillRuntimes only"),
    (HUB, "a sandbox's Job", "delete", "apis/batch/v1", "jobs", "SANDBOXES", "knack-default-standing", None, None),
    (HUB, "somebody's Job", "delete", "apis/batch/v1", "jobs", "SANDBOXES", "of-somebody", None, "Jobs of SkillRuntimes only"),
    (HUB, "counts and isolation in a status", "status", "apis/knack.dev/v1alpha1", "skillruntimes", "SANDBOXES", "default",
     {"status": {"warmPool": {"ready": 1, "desired": 2}, "owner": "hub", "conditions": "ISOLATED"}}, None),
    (HUB, "a SkillRuntime that is Ready by the hub's word", "status", "apis/knack.dev/v1alpha1", "skillruntimes", "SANDBOXES", "default",
     {"status": {"conditions": "READY"}}, "its own part of a SkillRuntime's status"),
    (HUB, "a generation by the hub's word", "status", "apis/knack.dev/v1alpha1", "skillruntimes", "SANDBOXES", "default",
     {"status": {"observedGeneration": 99}}, "its own part of a SkillRuntime's status"),
]


def job_of_somebody(namespace, labels=None, kind="Job"):
    """A Job or CronJob that has nothing to do with Knack, and that no policy of Knack may refuse."""
    template = {"spec": {"restartPolicy": "OnFailure", "hostNetwork": True,
                         "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
                         "containers": [{"name": "c", "image": "busybox", "securityContext": {"privileged": True}}]}}
    spec = {"template": template}
    if kind == "CronJob":
        spec = {"schedule": "0 0 * * *", "jobTemplate": {"spec": spec}}
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "of-somebody-else", "namespace": namespace, "labels": labels or {}}, "spec": spec}


def standing_jobs(priority_class, namespace):
    """A sandbox Job and somebody's, in this order: what the hub finds when it comes."""
    ours = jobs.placed(jobs.golden("job_defaults"), namespace, priority_class)
    ours["metadata"]["name"] = "knack-default-standing"
    # Run by nobody, so that it stays as it is.
    ours["spec"]["managedBy"] = "example.org/nobody"
    other = job_of_somebody(namespace)
    other["metadata"]["name"] = "of-somebody"
    other["spec"]["suspend"] = True
    return [ours, other]
