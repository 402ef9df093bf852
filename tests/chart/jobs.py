"""Jobs that a hub could try to make, and what the admission policies say of each."""

import copy
import os

import yaml

from harness import ROOT

GOLDENS = os.path.join(ROOT, "src", "jobs", "pods", "golden")
PYTHON_DIGEST, RUNNER_DIGEST = "sha256:" + "aa" * 32, "sha256:" + "bb" * 32
NO_UID = "00000000-0000-4000-8000-000000000000"


def snapshot(path):
    """The value of a golden of Rust's tests; its short digests become whole ones, which the chart's values must be."""
    with open(path, encoding="utf-8") as file:
        text = file.read().split("---\n", 2)[2]
    return yaml.safe_load(text.replace("@sha256:aa", "@" + PYTHON_DIGEST).replace("@sha256:bb", "@" + RUNNER_DIGEST))


def golden(name):
    """The Job of one kind of run, as the executor's own tests keep it."""
    return snapshot(os.path.join(GOLDENS, name + ".snap"))


def goldens():
    """Every kind of Job that the product makes, by name."""
    names = sorted(name[:-5] for name in os.listdir(GOLDENS) if name.startswith("job_") and name.endswith(".snap"))
    return {name: golden(name) for name in names}


def placed(job, namespace, priority_class):
    """A golden's Job in a test's namespace, with the PriorityClass of its installation."""
    job = copy.deepcopy(job)
    job["metadata"]["namespace"] = namespace
    pod(job)["priorityClassName"] = priority_class
    return job


def changed(job, change):
    job = copy.deepcopy(job)
    change(job)
    return job


def metadata(job):
    return job["metadata"]


def owner(job):
    return metadata(job)["ownerReferences"][0]


def template(job):
    return job["spec"]["template"]


def pod(job):
    return template(job)["spec"]


def container(job):
    return pod(job)["containers"][0]


def security(job):
    return container(job)["securityContext"]


def env(name, secret, key):
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def rename(job, name):
    """Another SkillRuntime everywhere: label, owner, pod."""
    metadata(job)["labels"]["knack.dev/runtime"] = name
    template(job)["metadata"]["labels"]["knack.dev/runtime"] = name
    owner(job)["name"] = name


def volume(**source):
    return lambda job: pod(job)["volumes"].append({"name": "extra", **source})


def in_pod(**fields):
    return lambda job: pod(job).update(copy.deepcopy(fields))


def in_container(**fields):
    return lambda job: container(job).update(copy.deepcopy(fields))


def in_security(**fields):
    return lambda job: security(job).update(copy.deepcopy(fields))


def in_job(**fields):
    return lambda job: job["spec"].update(copy.deepcopy(fields))


def on_pod(kind, key, value):
    return lambda job: template(job)["metadata"].setdefault(kind, {}).update({key: value})


DIGEST = "sha256:" + "0" * 64
OWNER = "is owned by the SkillRuntime that its label"
JUDGED = "has been judged by the controller"
FIELD = "has a field that no sandbox needs"
MOUNTS = "emptyDir and the runner's image only"
ENVIRONMENT = "single keys of Secrets"
GRANT = "does not grant this environment: every key of a Secret must be in its spec.env, or in the config of one of its spec.skillSelector.skills"
HOST = "shares nothing with the host"
LOCKS = "without capabilities on a read-only root"
SECCOMP = "seccomp profile RuntimeDefault"
LABELS = "labels and annotations of its SkillRuntime only"
RUNNER = "starts the runner"
HTTP = {"httpGet": {"path": "/", "port": 1}}

# Rows about fields that the oldest server does not have, with a value by which they are found: names of fields stand in managedFields too.
NEWER_FIELDS = {"an image that is not the runner's as files": "evil.example", "a claim of a device": "evil-device"}

# Name, golden, what is done to it, and a word of the refusal, or several of which one is told (None: it is taken).
CASES = [
    # What a sandbox may be besides what the goldens are.
    ("a pod of the pool that is released later", "job_defaults", lambda job: metadata(job).update(generateName="knack-default-"), None),
    ("a record on the Job", "job_defaults", lambda job: metadata(job)["labels"].update({"knack.dev/skill": "weather", "example.org/queue": "a"}), None),
    ("a granted Secret's key", "job_defaults", in_container(env=[env("API_KEY", "weather", "key")]), None),
    ("a Secret's key of the configuration of functions", "job_everything", in_container(env=[env("KNACK_CONFIG_apiKey", "prices", "key")]), None),
    ("an allowed image with a digest", "job_defaults", in_container(image="registry.example/knack/sandbox-node@" + DIGEST), None),
    ("an image that the runtime names", "job_everything", in_container(image="registry.example/knack/sandbox-office@sha256:cc"), None),
    ("a Job that waits for a queue", "job_defaults", in_job(suspend=True), None),
    ("a pod that is given time to end", "job_defaults", in_pod(terminationGracePeriodSeconds=65), None),
    ("a user namespace", "job_defaults", in_pod(hostUsers=False), None),
    ("a probe of one node by its name", "job_probe", in_pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]}}}), None),
    ("a run that keeps off a node", "job_defaults", in_pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}]}]}}}), None),
    ("a uid that the platform chooses", "job_defaults", lambda job: [pod(job)["securityContext"].pop(key) for key in ("runAsUser", "runAsGroup")] and None, None),
    # Whose it is.
    ("no label of a runtime", "job_defaults", lambda job: metadata(job)["labels"].pop("knack.dev/runtime"), OWNER),
    ("no label of a sandbox", "job_defaults", lambda job: metadata(job)["labels"].pop("knack.dev/role"), OWNER),
    ("no labels, which the server takes from the pod", "job_defaults", lambda job: metadata(job).pop("labels"), None),
    ("no labels anywhere", "job_defaults", lambda job: (metadata(job).pop("labels"), template(job).pop("metadata")), OWNER),
    ("no owner", "job_defaults", lambda job: metadata(job).pop("ownerReferences"), OWNER),
    ("an owner of another kind", "job_defaults", lambda job: owner(job).update(kind="Skill"), OWNER),
    ("an owner of a version that there is not", "job_defaults", lambda job: owner(job).update(apiVersion="knack.dev/v9"), OWNER),
    ("an owner of another group", "job_defaults", lambda job: owner(job).update(apiVersion="knack.dev.example.org/v1alpha1"), OWNER),
    ("an owner that is not its controller", "job_defaults", lambda job: owner(job).pop("controller"), OWNER),
    ("a second owner", "job_defaults", lambda job: metadata(job)["ownerReferences"].append({"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": NO_UID}), (OWNER, JUDGED)),
    ("the label of one runtime and the owner of another", "job_defaults", lambda job: owner(job).update(name="everything"), OWNER),
    ("a runtime that there is not", "job_defaults", lambda job: rename(job, "ghost"), JUDGED),
    ("a runtime that there is not, with a uid of its own", "job_defaults", lambda job: (rename(job, "ghost"), owner(job).update(uid=NO_UID)), JUDGED),
    ("a runtime's name with an invented uid", "job_defaults", lambda job: owner(job).update(uid=NO_UID), JUDGED),
    ("a runtime that there is not, with a Secret and any image", "job_defaults", lambda job: (
        rename(job, "ghost"), owner(job).update(uid=NO_UID),
        in_container(image="evil.example/img@" + DIGEST, env=[env("DATABASE", "database", "url")])(job)), JUDGED),
    ("a finalizer", "job_defaults", lambda job: metadata(job).update(finalizers=["example.org/stay"]), "no finalizers"),
    ("a finalizer that orphans", "job_defaults", lambda job: metadata(job).update(finalizers=["orphan"]), "no finalizers"),
    # What the fence selects by.
    ("a pod without the label that the fence selects by", "job_defaults", lambda job: template(job)["metadata"]["labels"].pop("knack.dev/role"), "the NetworkPolicy selects by them"),
    ("a pod with another role", "job_defaults", lambda job: template(job)["metadata"]["labels"].update({"knack.dev/role": "gateway"}), "the NetworkPolicy selects by them"),
    ("a pod of another runtime", "job_defaults", lambda job: template(job)["metadata"]["labels"].update({"knack.dev/runtime": "everything"}), "the NetworkPolicy selects by them"),
    ("a pod without labels", "job_defaults", lambda job: template(job).pop("metadata"), "the NetworkPolicy selects by them"),
    ("a label that opens somebody's NetworkPolicy", "job_defaults", on_pod("labels", "egress", "allowed"), LABELS),
    ("a label of another runtime's sandboxes", "job_defaults", on_pod("labels", "example.org/team", "weather"), LABELS),
    ("a label of the SkillRuntime's with another value", "job_everything", on_pod("labels", "example.org/team", "prices"), LABELS),
    ("an annotation of the SkillRuntime's with another value", "job_everything", on_pod("annotations", "example.org/inject", "true"), LABELS),
    ("an annotation of another runtime's sandboxes", "job_defaults", on_pod("annotations", "example.org/inject", "false"), LABELS),
    ("a label that asks for an injection", "job_defaults", on_pod("labels", "knack.dev/inject", "enabled"), LABELS),
    ("an annotation that attaches a network", "job_defaults", on_pod("annotations", "k8s.v1.cni.cncf.io/networks", "cluster"), LABELS),
    ("an annotation that takes AppArmor off", "job_defaults", on_pod("annotations", "container.apparmor.security.beta.kubernetes.io/sandbox", "unconfined"), LABELS),
    ("a pod with a finalizer", "job_defaults", lambda job: template(job)["metadata"].update(finalizers=["example.org/stay"]), "no finalizers and no owner"),
    ("a pod with an owner", "job_defaults", lambda job: template(job)["metadata"].update(ownerReferences=[
        {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": NO_UID}]), "no finalizers and no owner"),
    # What runs.
    ("another command", "job_defaults", in_container(command=["python3", "-c", "print()"]), RUNNER),
    ("no command", "job_defaults", lambda job: container(job).pop("command"), RUNNER),
    ("the runner with arguments of its own", "job_defaults", in_container(args=["--unlocked"]), RUNNER),
    ("two containers", "job_defaults", lambda job: pod(job)["containers"].append(dict(copy.deepcopy(container(job)), name="second")), "exactly one container"),
    ("an init container", "job_defaults", lambda job: pod(job).update(initContainers=[dict(copy.deepcopy(container(job)), name="first")]), "exactly one container"),
    ("a port of the node", "job_defaults", in_container(ports=[{"containerPort": 80, "hostPort": 80}]), FIELD),
    ("a port", "job_defaults", in_container(ports=[{"containerPort": 80}]), FIELD),
    ("a hook after the start", "job_defaults", in_container(lifecycle={"postStart": {"exec": {"command": ["sh"]}}}), FIELD),
    ("a liveness probe", "job_defaults", in_container(livenessProbe=HTTP), FIELD),
    ("a readiness probe", "job_defaults", in_container(readinessProbe=HTTP), FIELD),
    ("a startup probe", "job_defaults", in_container(startupProbe=HTTP), FIELD),
    ("a working directory", "job_defaults", in_container(workingDir="/etc"), FIELD),
    ("more than one pod", "job_defaults", in_job(parallelism=50, completions=50), "is one pod"),
    ("a pod that is never made complete", "job_defaults", in_job(parallelism=0), "is one pod"),
    ("indexed pods", "job_defaults", in_job(completionMode="Indexed"), "is one pod"),
    ("a controller of its own", "job_defaults", in_job(managedBy="example.org/controller"), "is one pod"),
    ("a retry", "job_defaults", in_job(backoffLimit=3), "runs once"),
    ("a restart", "job_defaults", lambda job: (pod(job).update(restartPolicy="OnFailure"), job["spec"].pop("podFailurePolicy")), "runs once"),
    ("no deadline", "job_defaults", lambda job: job["spec"].pop("activeDeadlineSeconds"), "a sandbox Job ends"),
    ("a deadline in years", "job_defaults", in_job(activeDeadlineSeconds=100_000_000), "a sandbox Job ends"),
    ("an end that is never collected", "job_defaults", lambda job: job["spec"].pop("ttlSecondsAfterFinished"), "a sandbox Job ends"),
    ("a pod that takes days to end", "job_defaults", in_pod(terminationGracePeriodSeconds=1_000_000), "a sandbox Job ends"),
    # Where.
    ("a node by name", "job_defaults", in_pod(nodeName="control-plane"), "names no node"),
    ("another scheduler", "job_defaults", in_pod(schedulerName="mine"), "names no node"),
    ("nodes that the runtime does not name", "job_defaults", in_pod(nodeSelector={"node-role.kubernetes.io/control-plane": ""}), "nodes of its SkillRuntime"),
    ("nodes that the runtime does name, left out", "job_everything", lambda job: pod(job).pop("nodeSelector"), "nodes of its SkillRuntime"),
    ("a toleration that the runtime does not have", "job_defaults", in_pod(tolerations=[{"operator": "Exists"}]), "tolerations of its SkillRuntime"),
    ("a toleration for more than the runtime's", "job_everything", lambda job: pod(job)["tolerations"][0].pop("effect"), "tolerations of its SkillRuntime"),
    ("a node by its label", "job_defaults", in_pod(nodeSelector={"kubernetes.io/hostname": "node-1"}), "goes to the nodes of its SkillRuntime"),
    ("another RuntimeClass", "job_defaults", in_pod(runtimeClassName="privileged"), "RuntimeClass of its SkillRuntime"),
    ("no RuntimeClass where the runtime has one", "job_everything", lambda job: pod(job).pop("runtimeClassName"), "RuntimeClass of its SkillRuntime"),
    ("no PriorityClass", "job_defaults", lambda job: pod(job).pop("priorityClassName"), "the quota of sandboxes counts"),
    ("a PriorityClass that evicts others", "job_defaults", in_pod(priorityClassName="system-node-critical"), "the quota of sandboxes counts"),
    # What it holds.
    ("a token", "job_defaults", in_pod(automountServiceAccountToken=True), "no ServiceAccount token"),
    ("a token by default", "job_defaults", lambda job: pod(job).pop("automountServiceAccountToken"), "no ServiceAccount token"),
    ("another ServiceAccount", "job_defaults", in_pod(serviceAccountName="builder"), "no ServiceAccount token"),
    ("a projected token", "job_defaults", volume(projected={"sources": [{"serviceAccountToken": {"path": "t"}}]}), MOUNTS),
    ("a hostPath", "job_defaults", volume(hostPath={"path": "/"}), MOUNTS),
    ("a Secret as files", "job_defaults", volume(secret={"secretName": "database"}), MOUNTS),
    ("a ConfigMap as files", "job_defaults", volume(configMap={"name": "settings"}), MOUNTS),
    ("a volume claim", "job_defaults", volume(persistentVolumeClaim={"claimName": "data"}), MOUNTS),
    ("a volume that is claimed for it", "job_defaults", volume(ephemeral={"volumeClaimTemplate": {"spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}), MOUNTS),
    ("a share over the network", "job_defaults", volume(nfs={"server": "10.0.0.1", "path": "/"}), MOUNTS),
    ("an image that is not the runner's as files", "job_everything", lambda job: pod(job)["volumes"][1]["image"].update(reference="evil.example/data:1"), MOUNTS),
    ("a second work directory", "job_defaults", volume(emptyDir={}), MOUNTS),
    ("a work directory without a bound", "job_defaults", lambda job: pod(job)["volumes"][0]["emptyDir"].pop("sizeLimit"), MOUNTS),
    ("a runner over another one", "job_defaults", lambda job: container(job)["volumeMounts"].append({"name": "work", "mountPath": "/knack"}), "mounts its work directory at /work"),
    ("mounts that reach the node", "job_defaults", lambda job: container(job)["volumeMounts"][0].update(mountPropagation="HostToContainer"), "mounts its work directory at /work"),
    ("a value of its own", "job_defaults", in_container(env=[{"name": "LD_PRELOAD", "value": "/work/a.so"}]), ENVIRONMENT),
    ("another key of a granted Secret", "job_defaults", in_container(env=[env("API_KEY", "weather", "admin")]), GRANT),
    ("a Secret that is not granted", "job_defaults", in_container(env=[env("DATABASE", "database", "url")]), GRANT),
    ("a granted Secret under another name", "job_defaults", in_container(env=[env("PATH", "weather", "key")]), GRANT),
    ("a Secret of another runtime's configuration of functions", "job_defaults", in_container(env=[env("KNACK_CONFIG_apiKey", "prices", "key")]), GRANT),
    ("another key of a Secret of the configuration", "job_everything", in_container(env=[env("KNACK_CONFIG_apiKey", "prices", "admin")]), GRANT),
    ("a Secret of the configuration as another value", "job_everything", in_container(env=[env("KNACK_CONFIG_maxCost", "prices", "key")]), GRANT),
    ("another runtime's Secret", "job_defaults", in_container(env=[env("OTHER", "of-everything", "key")]), GRANT),
    ("all of a Secret", "job_defaults", in_container(envFrom=[{"secretRef": {"name": "weather"}}]), ENVIRONMENT),
    ("a ConfigMap's key", "job_defaults", in_container(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]), ENVIRONMENT),
    ("a field of the pod", "job_defaults", in_container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]), ENVIRONMENT),
    ("a pull Secret that is not the runtime's", "job_defaults", in_pod(imagePullSecrets=[{"name": "database"}]), "pull Secrets of its SkillRuntime"),
    ("a device that is not the runtime's", "job_defaults", lambda job: [container(job)["resources"][kind].update({"example.org/gpu": "1"}) for kind in ("limits", "requests")] and None,
     "devices of its SkillRuntime"),
    ("a claim of a device", "job_defaults", in_pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "evil-device"}]), FIELD),
    ("no limit of memory", "job_defaults", lambda job: container(job)["resources"]["limits"].pop("memory"), "limits for cpu and memory"),
    # Its locks.
    ("the host's network", "job_defaults", in_pod(hostNetwork=True), HOST),
    ("the host's processes", "job_defaults", in_pod(hostPID=True), HOST),
    ("the host's IPC", "job_defaults", in_pod(hostIPC=True), HOST),
    ("the host's users", "job_defaults", in_pod(hostUsers=True), HOST),
    ("one process namespace", "job_defaults", in_pod(shareProcessNamespace=True), HOST),
    ("a name server", "job_defaults", in_pod(dnsConfig={"nameservers": ["8.8.8.8"]}), "no name server"),
    ("the cluster's name server", "job_defaults", lambda job: (pod(job).update(dnsPolicy="ClusterFirst"), pod(job).pop("dnsConfig")), "no name server"),
    ("the addresses of Services", "job_defaults", lambda job: pod(job).pop("enableServiceLinks"), "no name server"),
    ("names for addresses", "job_defaults", in_pod(hostAliases=[{"ip": "169.254.169.254", "hostnames": ["metadata"]}]), FIELD),
    ("no seccomp", "job_defaults", lambda job: pod(job)["securityContext"].pop("seccompProfile"), SECCOMP),
    ("seccomp Unconfined", "job_defaults", lambda job: pod(job)["securityContext"].update(seccompProfile={"type": "Unconfined"}), SECCOMP),
    ("seccomp Unconfined in the container", "job_defaults", in_security(seccompProfile={"type": "Unconfined"}), SECCOMP),
    ("AppArmor Unconfined", "job_defaults", in_security(appArmorProfile={"type": "Unconfined"}), SECCOMP),
    ("a privileged container", "job_defaults", in_security(privileged=True, allowPrivilegeEscalation=True), LOCKS),
    ("a capability", "job_defaults", lambda job: security(job)["capabilities"].update(add=["NET_ADMIN"]), LOCKS),
    ("the default capabilities", "job_defaults", lambda job: security(job).pop("capabilities"), LOCKS),
    ("a writable root", "job_defaults", lambda job: security(job).pop("readOnlyRootFilesystem"), LOCKS),
    ("root", "job_defaults", in_security(runAsNonRoot=False), LOCKS),
    ("root by its number", "job_defaults", in_security(runAsUser=0), LOCKS),
    ("a group of the system", "job_defaults", lambda job: pod(job)["securityContext"].update(fsGroup=0), LOCKS),
    ("a group of the system beside its own", "job_defaults", lambda job: pod(job)["securityContext"].update(supplementalGroups=[0]), "no supplemental group"),
    ("an unmasked proc", "job_defaults", in_security(procMount="Unmasked"), ""),
    ("a sysctl", "job_defaults", lambda job: pod(job)["securityContext"].update(sysctls=[{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]), "no sysctl"),
    ("an SELinux type", "job_defaults", in_security(seLinuxOptions={"type": "spc_t"}), "no sysctl"),
    # Its image.
    ("an image that the runtime does not allow", "job_defaults", in_container(image="evil.example/img@" + DIGEST), "does not allow the image evil.example/img"),
    ("a named image of another runtime", "job_defaults", in_container(image="registry.example/knack/sandbox-office@sha256:cc"), "does not allow the image"),
    ("a named image with another digest", "job_everything", in_container(image="registry.example/knack/sandbox-office@" + DIGEST), "does not allow the image"),
    ("a named image by tag", "job_everything", in_container(image="registry.example/knack/sandbox-office:1"), "does not allow the image"),
    ("an allowed image by tag", "job_defaults", in_container(image="registry.example/knack/sandbox-node:1"), "does not allow the image"),
    ("an image whose name begins like an allowed one", "job_defaults", in_container(image="registry.example/knack/sandbox-node-evil@" + DIGEST), "does not allow the image"),
    ("the runtime's repository with another digest", "job_defaults", in_container(image="registry.example/knack/sandbox-python@" + DIGEST), "does not allow the image"),
    ("another runtime's image", "job_defaults", in_container(image="registry.example/knack/of-everything@" + DIGEST), "does not allow the image"),
    ("no image", "job_defaults", lambda job: container(job).pop("image"), "image"),
]
