"""Jobs that a hub could try to make, and what the admission policy says of each."""

import copy

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"generateName": "policy-"},
    "spec": {
        "backoffLimit": 0,
        "template": {
            "metadata": {"labels": {"knack.dev/role": "sandbox"}},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "securityContext": {"runAsNonRoot": True, "runAsUser": 200000, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [{
                    "name": "sandbox",
                    "image": "",
                    "command": ["/knack/knack-runner"],
                    "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "runAsNonRoot": True,
                                        "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [{"name": "work", "mountPath": "/work"}],
                }],
                "volumes": [{"name": "work", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}],
            },
        },
    },
}


def sandbox_job(runtime, image, priority_class):
    """The Job of a run, as the hub makes it for a SkillRuntime (an object as read from the server)."""
    job = copy.deepcopy(JOB)
    pod(job)["priorityClassName"] = priority_class
    metadata = runtime["metadata"]
    job["metadata"].update(namespace=metadata["namespace"], labels={"knack.dev/runtime": metadata["name"], "knack.dev/role": "sandbox"},
                           ownerReferences=[{"apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "controller": True,
                                             "name": metadata["name"], "uid": metadata["uid"]}])
    job["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return job


def pod(job):
    return job["spec"]["template"]["spec"]


def container(job):
    return pod(job)["containers"][0]


def env(name, secret, key):
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


# Name, what is done to a good Job, and a word of the refusal (None: taken).
CASES = [
    ("the Job of a run", lambda job: None, None),
    ("an image that is not the runner's as files", lambda job: pod(job)["volumes"].append({"name": "data", "image": {"reference": "evil.example/data:1"}}),
     "emptyDir and the runner's image only"),
    ("a granted Secret's key", lambda job: container(job).update(env=[env("WEATHER_KEY", "weather", "key")]), None),
    ("another key of a granted Secret", lambda job: container(job).update(env=[env("WEATHER_KEY", "weather", "admin")]), "does not grant"),
    ("a Secret that is not granted", lambda job: container(job).update(env=[env("DATABASE", "database", "url")]), "does not grant"),
    ("a granted Secret under another name", lambda job: container(job).update(env=[env("PATH", "weather", "key")]), "does not grant"),
    ("all of a Secret", lambda job: container(job).update(envFrom=[{"secretRef": {"name": "weather"}}]), "single keys of Secrets"),
    ("a ConfigMap's key", lambda job: container(job).update(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]),
     "single keys of Secrets"),
    ("a token", lambda job: pod(job).update(automountServiceAccountToken=True), "token"),
    ("a token by default", lambda job: pod(job).pop("automountServiceAccountToken"), "token"),
    ("another ServiceAccount", lambda job: pod(job).update(serviceAccountName="builder"), "token"),
    ("a projected token", lambda job: pod(job)["volumes"].append(
        {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}), "emptyDir and the runner's image only"),
    ("a hostPath", lambda job: pod(job)["volumes"].append({"name": "h", "hostPath": {"path": "/"}}), "emptyDir and the runner's image only"),
    ("a Secret as files", lambda job: pod(job)["volumes"].append({"name": "s", "secret": {"secretName": "database"}}), "emptyDir and the runner's image only"),
    ("a volume claim", lambda job: pod(job)["volumes"].append({"name": "v", "persistentVolumeClaim": {"claimName": "data"}}), "emptyDir and the runner's image only"),
    ("two containers", lambda job: pod(job)["containers"].append(dict(copy.deepcopy(container(job)), name="second")), "exactly one container"),
    ("an init container", lambda job: pod(job).update(initContainers=[dict(copy.deepcopy(container(job)), name="first")]), "exactly one container"),
    ("the host's network", lambda job: pod(job).update(hostNetwork=True), "shares nothing with the host"),
    ("the host's processes", lambda job: pod(job).update(hostPID=True), "shares nothing with the host"),
    ("a privileged container", lambda job: container(job)["securityContext"].update(privileged=True, allowPrivilegeEscalation=True), "without capabilities"),
    ("a capability", lambda job: container(job)["securityContext"]["capabilities"].update(add=["NET_ADMIN"]), "without capabilities"),
    ("a writable root", lambda job: container(job)["securityContext"].pop("readOnlyRootFilesystem"), "read-only root"),
    ("root", lambda job: (container(job)["securityContext"].update(runAsNonRoot=False)), "runs as a user"),
    ("no PriorityClass", lambda job: pod(job).pop("priorityClassName"), "the quota of sandboxes counts"),
    ("a PriorityClass that evicts others", lambda job: pod(job).update(priorityClassName="system-node-critical"), "the quota of sandboxes counts"),
    ("a retry", lambda job: job["spec"].update(backoffLimit=3), "runs once"),
    ("a restart", lambda job: pod(job).update(restartPolicy="OnFailure"), "runs once"),
    ("an image that the runtime does not allow", lambda job: container(job).update(image="evil/img@sha256:" + "0" * 64), "does not allow the image evil/img"),
    ("an image whose name begins like an allowed one", lambda job: container(job).update(image=container(job)["image"].split(":")[0] + "-evil:1"), "does not allow the image"),
    ("no image", lambda job: container(job).pop("image"), "image"),
    ("no runtime", lambda job: job["metadata"].pop("labels"), "is owned by the SkillRuntime"),
    ("no owner", lambda job: job["metadata"].pop("ownerReferences"), "is owned by the SkillRuntime"),
    ("an owner of another kind", lambda job: job["metadata"]["ownerReferences"][0].update(kind="Skill"), "is owned by the SkillRuntime"),
    ("a runtime's name with a foreign owner", lambda job: job["metadata"]["ownerReferences"][0].update(uid="0" * 8 + "-0000-4000-8000-" + "0" * 12),
     "name the same SkillRuntime"),
    ("a runtime's owner under another name", lambda job: (job["metadata"]["labels"].update({"knack.dev/runtime": "ghost"}),
                                                         job["metadata"]["ownerReferences"][0].update(name="ghost")), "name the same SkillRuntime"),
]


def changed(job, change):
    job = copy.deepcopy(job)
    change(job)
    return job
