"""What can be said of the charts without a cluster."""

import ipaddress
import os
import re
import shutil
import subprocess
import tempfile

import yaml

import rbac
from harness import CHART, CRDS_CHART, HERE, ROOT, assert_equal, binary, helm, kubectl, run
from render import documents, identity, render, render_all, shared_documents
from variations import REFUSED, VARIATIONS, combinations, profile

# Kinds without a namespace that the chart makes.
CLUSTER_SCOPED = {"PriorityClass", "ClusterRole", "ClusterRoleBinding", "Namespace", "CustomResourceDefinition",
                  "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
                  "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration"}


def lint():
    for chart in (CRDS_CHART, CHART):
        helm("lint", "--strict", chart)


def leaves(values, path=""):
    """Every settable value of values.yaml: maps that are empty by default are one value."""
    for key, value in values.items():
        here = path + "." + key if path else key
        if isinstance(value, dict) and value and key != "resources":
            yield from leaves(value, here)
        else:
            yield here


def default_values():
    with open(os.path.join(CHART, "values.yaml"), encoding="utf-8") as file:
        return yaml.safe_load(file)


def every_value_is_varied():
    assert_equal(sorted(VARIATIONS), sorted(leaves(default_values())), "variations and values.yaml")


def templates_use_known_values():
    known = set(leaves(default_values()))
    parents = {path.rsplit(".", count)[0] for path in known for count in range(path.count(".") + 1)}
    for base, _, names in os.walk(os.path.join(CHART, "templates")):
        for name in names:
            with open(os.path.join(base, name), encoding="utf-8") as file:
                for found in re.findall(r"\.Values\.([A-Za-z.]+)", file.read()):
                    path = found.rstrip(".")
                    if path not in known | parents and not any(path.startswith(leaf + ".") for leaf in known):
                        raise AssertionError("%s uses .Values.%s, which values.yaml does not have" % (name, path))


def every_value_changes_something(rendered):
    """No value is inert: each variation renders something else than the default does."""
    default = rendered["default"]
    inert = [name for name in VARIATIONS if rendered[name] == default]
    # This one is proven in pairs: with two replicas there is a budget, without the flag there is none.
    assert_equal(inert, [], "values without effect")


def every_rendering_is_sound(rendered):
    sound = set()
    for name, text in rendered.items():
        seen = set()
        for part, document in shared_documents(text):
            key = identity(document)
            if key in seen:
                raise AssertionError("%s: %s twice" % (name, key))
            seen.add(key)
            if part not in sound:
                sound_document(name, document)
                sound.add(part)
    return "%d documents of %d renderings" % (len(sound), len(rendered))


def sound_document(name, document):
    _, kind, namespace, own = identity(document)
    if (kind in CLUSTER_SCOPED) != (not namespace):
        raise AssertionError("%s: %s %s: namespace %r" % (name, kind, own, namespace))
    if kind in CLUSTER_SCOPED - {"Namespace", "CustomResourceDefinition"} and not own.startswith("knack-"):
        raise AssertionError("%s: %s %s does not carry the release's name" % (name, kind, own))
    assert_equal(document["metadata"]["labels"]["app.kubernetes.io/name"], "knack", "%s: label of %s" % (name, own))
    if kind == "Deployment":
        sound_pod(name, document["spec"]["template"]["spec"])


def sound_pod(name, pod):
    assert_equal(len(pod["containers"]), 1, name + ": containers")
    security, container = pod["securityContext"], pod["containers"][0]
    assert_equal(security["runAsNonRoot"], True, name + ": runAsNonRoot")
    assert_equal(security["seccompProfile"], {"type": "RuntimeDefault"}, name + ": seccomp")
    assert_equal(container["securityContext"], {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                               "capabilities": {"drop": ["ALL"]}}, name + ": securityContext")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert_equal(container[probe]["httpGet"]["port"], "metrics", name + ": " + probe)
    # The command: one word, or two.
    words = 2 if container["args"][0] == "packages" else 1
    for argument in container["args"][words:]:
        if not re.fullmatch(r"--[a-z-]+(=\S+)?", argument):
            raise AssertionError("%s: argument %r" % (name, argument))


def refusals():
    for values, word in REFUSED:
        code, _, stderr = render(values, expect=None)
        if code == 0:
            raise AssertionError("%r was taken" % values)
        if word not in stderr:
            raise AssertionError("%r: %r is not in the message %r" % (values, word, stderr[-500:]))
    return "%d sets of values" % len(REFUSED)


def every_object_of_the_schema_is_closed():
    """additionalProperties false everywhere but where a value is handed to Kubernetes as it is."""
    import json
    with open(os.path.join(CHART, "values.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)

    def walk(node, path):
        if node.get("type") == "object" and "properties" in node:
            assert_equal(node.get("additionalProperties"), False, path or "the top")
        for key, child in node.get("properties", {}).items():
            walk(child, path + "." + key)

    walk(schema, "")
    described = set(leaves(default_values()))

    def known(path):
        node = schema
        for key in path.split("."):
            node = node.get("properties", {}).get(key)
            if node is None:
                return False
        return True

    assert_equal([path for path in described if not known(path)], [], "values without a schema")


def two_releases_share_nothing():
    first = {identity(d) for d in documents(render({"crds": {"enabled": False}}, "one", "ns-one"))}
    second = {identity(d) for d in documents(render({"crds": {"enabled": False}, "defaultRuntime": {"namespace": "two-sandboxes"}},
                                                    "two", "ns-two"))}
    assert_equal(first & second, set(), "objects of both releases")


def only_a_gateway_that_knows_nobody_sees_everything():
    """use-all goes with clientAuth none; a gateway that knows its callers asks for each of them."""
    for values, verbs in (({}, "use,use-all"), ({"gateway": {"clientAuth": "token-review"}}, "use,use-for"),
                          (profile("multi-tenant"), "use,use-for")):
        lines = [line for line in rbac.table(documents(render(values))).splitlines() if line.startswith("knack-gateway ")]
        assert_equal(lines, ["knack-gateway knack-sandboxes knack.dev skillruntimes[default] " + verbs], "rights of the gateway")


def the_profile_serves_labelled_namespaces_only():
    made = documents(render(profile("multi-tenant")))
    spec = next(document["spec"] for document in made if document["kind"] == "SkillRuntime")
    selector = {"matchLabels": {"knack.dev/skills": "enabled"}}
    assert_equal(spec["skillSelector"], {"namespaceSelector": selector}, "whose Skills")
    assert_equal(spec["allowedCallers"], {"namespaces": {"selector": selector}}, "whose callers")


def a_mirror_takes_the_place_of_our_registry():
    """Every image of ours comes from the mirror; one of another registry stays where it is."""
    digest = "@sha256:" + "a" * 64
    text = render({"image": {"registry": "mirror.example.org:5000/a", "digest": digest[1:]},
                   "sandbox": {"images": {"python": "ghcr.io/knack-dev/sandbox-python" + digest, "node": "other.example.org/node" + digest},
                               "runnerImage": "ghcr.io/knack-dev/runner" + digest}, "crds": {"enabled": False}})
    assert_equal(text.count("ghcr.io"), 0, "names of the old registry")
    assert_equal(text.count("image: mirror.example.org:5000/a/knack" + digest), 2, "Deployments of controller and hub")
    assert_equal(len(re.findall(r"image: \"?mirror\.example\.org:5000/a/knack-gateway:", text)), 2, "the gateway, alone and as a sidecar")
    runtime = next(d for d in documents(text) if d["kind"] == "SkillRuntime")["spec"]["sandbox"]
    assert_equal(runtime["image"], "mirror.example.org:5000/a/sandbox-python" + digest, "the sandbox image")
    assert_equal(runtime["allowedImages"], ["mirror.example.org:5000/a/sandbox-python", "other.example.org/node"], "allowed images")
    assert_equal(len(re.findall(r'value: "?mirror\.example\.org:5000/a/sandbox-python' + digest, text)), 2, "the sandbox image of controller and hub")
    for word in ("--runner-image=mirror.example.org:5000/a/runner",
                 "v.image.reference == 'mirror.example.org:5000/a/runner"):
        if word + digest not in text:
            raise AssertionError(word)


def pods_are_given_the_time_that_they_take_to_end():
    """The kubelet kills a component after its grace period: it covers the pause, the drain, and what follows them."""
    for values in ({}, {"hub": {"shutdownPauseSeconds": 20, "drainSeconds": 300}, "gateway": {"shutdownPauseSeconds": 0, "drainSeconds": 1}}):
        made = {d["metadata"]["name"]: d["spec"]["template"]["spec"] for d in documents(render(values)) if d["kind"] == "Deployment"}
        for name, after in (("hub", 30), ("gateway", 10)):
            pod = made["knack-" + name]
            words = dict(word.lstrip("-").split("=", 1) for word in pod["containers"][0]["args"] if "=" in word)
            told = int(words["shutdown-pause-seconds"]) + int(words["drain-seconds"])
            set_to = {"shutdownPauseSeconds": 5, "drainSeconds": {"hub": 60, "gateway": 600}[name], **values.get(name, {})}
            assert_equal(told, set_to["shutdownPauseSeconds"] + set_to["drainSeconds"], name + ": pause and drain")
            assert_equal(pod["terminationGracePeriodSeconds"], told + after, name + ": grace period")


def one_process_decides_what_is_built():
    """While the Deployment of builds is replaced there are not two of its pods, unless somebody says so."""
    for strategy, expected in (({}, {"type": "Recreate"}), ({"type": "RollingUpdate"}, {"type": "RollingUpdate"})):
        made = documents(render({"packages": {"repository": "registry.example.org/e", "strategy": strategy}}))
        spec = next(d for d in made if d["kind"] == "Deployment" and d["metadata"]["name"] == "knack-packages")["spec"]
        assert_equal((spec["replicas"], spec.get("strategy")), (1, expected), repr(strategy))


def the_default_runtime_declares_its_languages():
    """It names its image itself, so the hub's default does not reach it: what the chart's image holds stands in its spec."""
    def declared(values):
        text = render({"crds": {"enabled": False}, **values})
        return next(d for d in documents(text) if d["kind"] == "SkillRuntime")["spec"]["sandbox"].get("languages")
    own = {"defaultRuntime": {"spec": {"sandbox": {"languages": ["node"]}}}}
    assert_equal([declared({}), declared({"sandbox": {"languages": ["node", "python"]}}), declared(own)],
                 [["python"], ["node", "python"], ["node"]], "languages: stock, by value, in the runtime's own spec")


def notes_warn_of_images_by_tag():
    """The chart of the source names images by tag, with which nothing runs: its notes say so, and what to do."""
    def told(*flags):
        text = helm("install", "knack", CHART, "--namespace", "knack-system", "--dry-run=client", *flags)
        return "ImageNotPinned" in text.split("NOTES:", 1)[1]
    digest = "sandbox.images.python=registry.example.org/python@sha256:" + "a" * 64
    assert_equal([told(), told("--set", digest), told("--set", "sandbox.allowImageTags=true"), told("--set", "defaultRuntime.enabled=false,gateway.enabled=false")],
                 [True, False, False, False], "the warning: stock, by digest, tags allowed, no runtime")


def notes_warn_of_runtimes_without_code():
    """A SkillRuntime where no code may run serves nothing: the notes name the value that names it."""
    def warned(values):
        text = helm("install", "knack", CHART, "--dry-run=client", "--namespace", "knack-system", *values)
        return [value for value in ("gateway.runtime", "injection.runtime") if "WARNING: %s is" % value in text.split("NOTES:", 1)[1]]
    for values, expected in (((), []),
                             (("--set", "gateway.runtime=team-a/r"), ["gateway.runtime"]),
                             (("--set", "injection.runtime=team-a/r"), ["injection.runtime"]),
                             (("--set", "gateway.runtime=knack-sandboxes/r"), []),
                             (("--set", "gateway.runtime=team-a/r", "--set", "injection.runtime=team-a/r", "--set", "runtimeNamespaces={team-a}"), [])):
        assert_equal(warned(values), expected, repr(values))


def notes_tell_what_to_do():
    text = helm("install", "knack", CHART, "--namespace", "n", "--dry-run=client", "--set", "crds.enabled=false")
    notes = text.split("NOTES:", 1)[1]
    for word in ("http://knack-gateway.n.svc/v1", "kubectl apply", "knack-sandboxes", "kubectl get skillruntimes",
                 "may create Skills in any namespace (role edit) can write into the prompts of all its users"):
        if word not in " ".join(notes.split()):
            raise AssertionError("%r is not in the notes: %s" % (word, notes))
    tenants = helm("install", "knack", CHART, "--namespace", "n", "--dry-run=client", "--set", "crds.enabled=false",
                   "--values", os.path.join(CHART, "values-multi-tenant.yaml")).split("NOTES:", 1)[1]
    for word, there in (("any namespace (role edit)", False), ("the skills that are visible to their", True),
                        ("kubectl label namespace NAMESPACE knack.dev/skills=enabled kubectl apply", True),
                        ("kubectl label namespace NAMESPACE knack.dev/inject=enabled knack.dev/skills=enabled", True)):
        assert_equal(word in " ".join(tenants.split()), there, "%r in the notes of the profile" % word)
    for uploads in (False, True):
        registry = helm("install", "knack", CHART, "--namespace", "n", "--dry-run=client", "--set", "crds.enabled=false",
                        "--set", "registry.enabled=true,gateway.registry=%s" % str(uploads).lower()).split("NOTES:", 1)[1]
        assert_equal("--role=skills --serviceaccount=n:knack-gateway" in registry, uploads, "the right to upload, with gateway.registry=%s" % uploads)
    loud = helm("install", "knack", CHART, "--namespace", "n", "--dry-run=client", "--set", "crds.enabled=false",
                "--set", "admissionPolicy.enabled=false", "--set", "sandbox.allowImageTags=true")
    assert_equal(loud.count("WARNING"), 2, "warnings")
    for registry in (False, True):
        loud = helm("install", "knack", CHART, "--namespace", "n", "--dry-run=client", "--set", "crds.enabled=false",
                    "--set", "admissionPolicy.enabled=false,registry.enabled=%s" % str(registry).lower()).split("NOTES:", 1)[1]
        said = [word in " ".join(loud.split()) for word in ("which Jobs the hub creates", "the controller writes", "the registry writes")]
        assert_equal(said, [True, True, registry], "what the policies limit, with registry.enabled=%s" % registry)


def generated_files_are_fresh():
    done = subprocess.run([os.path.join(ROOT, "tools", "charts.sh"), "--check"], capture_output=True, text=True,
                          env=dict(os.environ, HELM=binary("HELM", "helm")))
    assert_equal((done.returncode, done.stderr), (0, ""), "tools/charts.sh --check")


def places_of_sandbox_image(made, image):
    """The image of sandboxes, in every object that names it."""
    for name in ("knack-controller", "knack-hub"):
        variables = made["Deployment", name]["spec"]["template"]["spec"]["containers"][0]["env"]
        assert_equal([one["value"] for one in variables if one["name"] == "KNACK_SANDBOX_IMAGE"], [image], name)
    sandbox = made["SkillRuntime", "default"]["spec"]["sandbox"]
    assert_equal(sandbox["image"], image, "the image of the default SkillRuntime")
    repository = re.split("[:@]", image)[0]
    assert_equal(repository in sandbox["allowedImages"], True, "%s in allowedImages" % repository)


def base_renders():
    """The kustomize base holds what the chart makes, the definitions apart."""
    chart = {identity(d) for d in documents(render({"crds": {"enabled": False}}, namespace="knack-system"))}
    base = documents(kubectl("kustomize", os.path.join(ROOT, "deploy")))
    chart.add(("v1", "Namespace", "", "knack-system"))
    assert_equal({identity(d) for d in base}, chart, "objects of deploy/")
    for document in base:
        if re.search("[Hh]elm", str(document["metadata"])):
            raise AssertionError("%s carries a mark of Helm" % (identity(document),))
    # A kustomization on top of it: `images:` reaches every place of the gateway's image.
    overlay = os.path.join(ROOT, "tests", "chart", "overlay")
    with open(os.path.join(overlay, "kustomization.yaml"), encoding="utf-8") as file:
        replaced = {image["name"]: "%(newName)s:%(newTag)s" % image for image in yaml.safe_load(file)["images"]}
    text = kubectl("kustomize", overlay)
    for old, new in replaced.items():
        assert_equal(re.findall(re.escape(old) + r"(?![-\w])", text), [], old + " on top of deploy/")
    gateway = replaced["ghcr.io/knack-dev/knack-gateway"]
    made = {(d["kind"], d["metadata"]["name"]): d for d in documents(text)}
    controller = made["Deployment", "knack-controller"]["spec"]["template"]["spec"]["containers"][0]
    assert_equal([one["value"] for one in controller["env"] if one["name"] == "KNACK_SIDECAR_IMAGE"], [gateway], "the image of sidecars")
    parameters = yaml.safe_load(made["ConfigMap", "knack-injection"]["data"]["parameters.yaml"])
    assert_equal(parameters["container"]["image"], gateway, "the image in the parameters")
    sandbox = replaced["ghcr.io/knack-dev/sandbox-python"]
    places_of_sandbox_image(made, sandbox)
    with open(os.path.join(ROOT, "docs", "kubernetes.md"), encoding="utf-8") as file:
        shown = [block for block in re.findall(r"(?ms)^```yaml\n(.*?)^```", file.read()) if block.startswith("resources: [deploy]")]
    with open(os.path.join(overlay, "kustomization.yaml"), encoding="utf-8") as file:
        assert_equal([yaml.safe_load(block)["replacements"] for block in shown], [yaml.safe_load(file)["replacements"]],
                     "the replacements that docs/kubernetes.md shows")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(os.path.join(ROOT, "deploy"), os.path.join(folder, "deploy"))
        with open(os.path.join(folder, "kustomization.yaml"), "w", encoding="utf-8") as file:
            file.write(shown[0])
        text = kubectl("kustomize", folder)
    assert_equal([line for line in text.splitlines() if "ghcr.io/" in line], [], "images that docs/kubernetes.md leaves")
    places_of_sandbox_image({(d["kind"], d["metadata"]["name"]): d for d in documents(text)}, "registry.example.org/sandbox-python@sha256:…")
    definitions = documents(kubectl("kustomize", os.path.join(ROOT, "deploy", "crds")))
    assert_equal(sorted(d["metadata"]["name"] for d in definitions), ["skillruntimes.knack.dev", "skills.knack.dev"], "deploy/crds")


def definitions_are_unchanged():
    """What Helm makes of a definition is the definition, with labels and the annotation that keeps it."""
    for keep in (True, False):
        made = {d["metadata"]["name"]: d for d in documents(render({"keep": keep}, chart=CRDS_CHART))}
        assert_equal(len(made), 2, "definitions")
        for name in os.listdir(os.path.join(ROOT, "crds")):
            if not name.endswith(".yaml"):
                continue
            with open(os.path.join(ROOT, "crds", name), encoding="utf-8") as file:
                source = yaml.safe_load(file)
            got = made[source["metadata"]["name"]]
            annotations = got["metadata"].pop("annotations", {})
            assert_equal(annotations, {"helm.sh/resource-policy": "keep"} if keep else {}, "annotations of " + name)
            got["metadata"].pop("labels")
            assert_equal(got, source, name)


def rights_are_those_of_the_table():
    """Every right stands in fixtures/rbac.txt; KNACK_UPDATE=1 writes the table, and the change is reviewed there."""
    path = os.path.join(HERE, "fixtures", "rbac.txt")
    got = rbac.table(documents(render({"runtimeNamespaces": ["team-a"]})))
    if os.environ.get("KNACK_UPDATE"):
        with open(path, "w", encoding="utf-8") as file:
            file.write(got)
    with open(path, encoding="utf-8") as file:
        assert_equal(got.splitlines(), file.read().splitlines(), "rights")


def restarts_come_with_their_right():
    """The right to patch workloads, the policy that bounds it and the flag are there with injection.rollStale alone."""
    for values, expected in (({}, (False, False, False)), ({"injection": {"rollStale": True}}, (True, True, True)),
                             ({"injection": {"rollStale": True, "delivery": "None"}}, (False, False, False)),
                             # Nothing is restarted, so there is no right that the policy would have to limit.
                             ({"injection": {"rollStale": True, "delivery": "None"}, "admissionPolicy": {"enabled": False}}, (False, False, False))):
        made = documents(render(values))
        right = "knack-controller cluster apps deployments list,patch" in rbac.table(made)
        policy = any(d["kind"] == "ValidatingAdmissionPolicy" and d["metadata"]["name"].endswith("controller-workloads") for d in made)
        container = next(d for d in made if d["kind"] == "Deployment" and d["metadata"]["name"] == "knack-controller")["spec"]["template"]["spec"]["containers"][0]
        flag = "--roll-stale-sidecars" in container["args"]
        assert_equal((right, policy, flag), expected, repr(values))
        # Older sidecars are reported in any case, where some are injected.
        image = any(one["name"] == "KNACK_SIDECAR_IMAGE" and re.fullmatch(r"\S+/knack-gateway:\S+", one["value"]) for one in container["env"])
        assert_equal(image, values.get("injection", {}).get("delivery") != "None", repr(values))


def a_trust_bundle_comes_with_its_right():
    """The right to write one ClusterTrustBundle, the policy that bounds it, the flag and the sidecar's volume are there with injection.authorities alone."""
    for values, expected in (({}, False), ({"injection": {"authorities": "ClusterTrustBundle"}}, True)):
        made = documents(render(values))
        policy = any(d["kind"] == "ValidatingAdmissionPolicy" and d["metadata"]["name"].endswith("controller-trustbundle") for d in made)
        container = next(d for d in made if d["kind"] == "Deployment" and d["metadata"]["name"] == "knack-controller")["spec"]["template"]["spec"]["containers"][0]
        flags = [argument.removeprefix("--trust-bundle=") for argument in container["args"] if argument.startswith("--trust-bundle=")]
        parameters = yaml.safe_load(next(d for d in made if d["metadata"]["name"] == "knack-injection")["data"]["parameters.yaml"])
        volume = next(volume for volume in parameters["volumes"] if volume["name"] == "knack-ca")
        projected = [source["clusterTrustBundle"] for source in volume.get("projected", {}).get("sources", [])]
        rights = [line for line in rbac.table(made).splitlines() if "clustertrustbundles" in line]
        assert_equal((policy, "configMap" in volume, len(flags), len(projected), len(rights)),
                     (expected, not expected, *[int(expected)] * 3), repr(values))
        if expected:
            assert_equal(projected, [{"name": flags[0], "optional": True, "path": "ca.crt"}], "the volume")
            assert_equal((flags[0] in rights[0], rights[0].endswith("create,get,patch")), (True, True), rights[0])


def the_registry_comes_with_its_rights():
    """Everything of the registry, and the controller's part in it, is there with registry.enabled alone."""
    expected = {
        "knack-registry cluster authentication.k8s.io tokenreviews create",
        "knack-registry cluster authorization.k8s.io subjectaccessreviews create",
        "knack-registry cluster core configmaps create,delete,get,list,patch",
        "knack-registry cluster knack.dev skills create,delete,get,list,update,watch",
        "knack-controller knack-system core configmaps[knack-hub-ca,knack-registry-ca] create,get,patch",
        "knack-controller knack-system core secrets[knack-root,knack-hub-tls,knack-hub-journal,knack-registry-tls] create,get,patch",
    }
    for values, there in (({}, False), ({"registry": {"enabled": True, "replicas": 2}}, True)):
        made = documents(render({"crds": {"enabled": False}, "injection": {"delivery": "None"}, **values}, namespace="knack-system"))
        lines = set(rbac.table(made).splitlines())
        assert_equal({line for line in lines if line.startswith("knack-registry ") or line in expected}, expected if there else set(), "rights")
        kinds = sorted(d["kind"] for d in made if d["metadata"]["name"] in ("knack-registry", "knack-registry-skills", "knack-registry-configmaps"))
        assert_equal(kinds, sorted(["Deployment", "Service", "ServiceAccount", "NetworkPolicy", "PodDisruptionBudget", "ClusterRole", "ClusterRoleBinding"]
                                   + 2 * ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]) if there else [], "objects")
        controller = next(d for d in made if d["kind"] == "Deployment" and d["metadata"]["name"] == "knack-controller")
        assert_equal("--registry" in controller["spec"]["template"]["spec"]["containers"][0]["args"], there, "the controller keeps its certificate")


NAMES = [{"protocol": protocol, "port": port} for port in (53, 5353) for protocol in ("UDP", "TCP")]


def ports_but_names(policy):
    """Ports of the first rule of egress, which begins with those of name servers."""
    ports = policy["spec"]["egress"][0]["ports"]
    assert_equal(ports[:len(NAMES)], NAMES, "ports of name servers")
    return [one["port"] for one in ports[len(NAMES):]]


def name_servers_are_reached_at_the_ports_of_their_pods():
    """Every policy of egress lets out to 53 and to 5353, where the name servers of OpenShift listen behind their Service."""
    made = documents(render({"crds": {"enabled": False}, "registry": {"enabled": True}, "packages": {"repository": "registry.example.org/e"}}))
    closed = {d["metadata"]["name"]: d for d in made if d["kind"] == "NetworkPolicy" and "Egress" in d["spec"]["policyTypes"]}
    assert_equal(sorted(closed), ["knack-builder", "knack-controller", "knack-hub", "knack-packages", "knack-registry"], "policies of egress")
    for policy in closed.values():
        ports_but_names(policy)


def builders_reach_public_addresses():
    """By IPv4 and IPv6, but for addresses of links and those of the metadata services of clouds."""
    made = documents(render({"crds": {"enabled": False}, "packages": {"repository": "registry.example.org/e"}}))
    policy = next(d for d in made if d["kind"] == "NetworkPolicy" and d["metadata"]["name"] == "knack-builder")
    rules = policy["spec"]["egress"][1:]
    assert_equal([rule["ports"] for rule in rules], 2 * [[{"protocol": "TCP", "port": 443}]], "ports")
    blocks = [(ipaddress.ip_network(peer["ipBlock"]["cidr"]), [ipaddress.ip_network(out) for out in peer["ipBlock"]["except"]]) for rule in rules for peer in rule["to"]]
    for address, expected in (("203.0.113.7", True), ("2001:db8::7", True), ("169.254.169.254", False), ("fe80::1", False), ("fd00:ec2::254", False), ("fd00:ec2::255", True)):
        address = ipaddress.ip_address(address)
        assert_equal(any(address in block and not any(address in out for out in outs) for block, outs in blocks), expected, "reaches %s" % address)


def openshift_admits_every_pod():
    """Each ServiceAccount of a pod, of builders and of sandboxes is bound to the constraint that lets it choose its user; sidecars choose none."""
    values = {"crds": {"enabled": False}, "openshift": {"enabled": True}, "registry": {"enabled": True}, "runtimeNamespaces": ["team-a"],
              "packages": {"repository": "registry.example.org/e"}, "injection": {"delivery": "Policy"}}
    made = documents(render(values))
    bound = {(subject["namespace"], subject["name"]) for d in made if d["kind"] == "RoleBinding" and d["roleRef"]["name"] == "system:openshift:scc:nonroot-v2"
             for subject in d["subjects"] if d["metadata"]["namespace"] == subject["namespace"]}
    used = {(d["metadata"]["namespace"], d["spec"]["template"]["spec"]["serviceAccountName"]) for d in made if d["kind"] == "Deployment"}
    used |= {(d["metadata"]["namespace"], d["metadata"]["name"]) for d in made if d["kind"] == "ServiceAccount"}
    used |= {(namespace, "default") for namespace in ("knack-sandboxes", "team-a")}
    assert_equal(bound, used, "ServiceAccounts that are bound, and those that are used")
    assert_equal(("knack-builds", "knack-builder") in used, True, "the builders' ServiceAccount")


def pods_that_are_not_ready_hold_up_no_drain():
    """A PodDisruptionBudget counts ready pods alone, and lets others be evicted."""
    values = {component: {"replicas": 2} for component in ("controller", "hub", "gateway")}
    made = [d for d in documents(render({"crds": {"enabled": False}, "registry": {"enabled": True, "replicas": 2}, **values})) if d["kind"] == "PodDisruptionBudget"]
    assert_equal([d["spec"].get("unhealthyPodEvictionPolicy") for d in made], 4 * ["AlwaysAllow"], "budgets")


def the_default_runtime_outlives_a_rollback():
    """A hook makes it on a first installation, so the first revision does not have it: Helm keeps it in both forms. Only one is a hook."""
    for extra, hook in (((), True), (("--is-upgrade",), False), (("--api-versions", "knack.dev/v1alpha1/SkillRuntime"), False)):
        runtime = next(d for d in documents(render({}, extra=extra)) if d["kind"] == "SkillRuntime")
        annotations = runtime["metadata"]["annotations"]
        assert_equal((annotations.get("helm.sh/resource-policy"), "helm.sh/hook" in annotations), ("keep", hook), "keep and hook with %r" % (extra,))


def metrics_are_read_by_those_who_are_named():
    """networkPolicy.metricsFrom is about the port of metrics, in every component, and about no other port."""
    named = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}, "podSelector": {"matchLabels": {"app": "prometheus"}}},
             {"ipBlock": {"cidr": "10.0.0.0/8"}}]
    metrics = {"protocol": "TCP", "port": "metrics"}
    for given in ([], named):
        made = documents(render({"crds": {"enabled": False}, "registry": {"enabled": True}, "packages": {"repository": "registry.example.org/e"},
                                 "networkPolicy": {"metricsFrom": given}}))
        policies = {d["metadata"]["name"]: d["spec"]["ingress"] for d in made if d["kind"] == "NetworkPolicy" and "ingress" in d["spec"]}
        assert_equal(sorted(policies), ["knack-controller", "knack-gateway", "knack-hub", "knack-packages", "knack-registry"], "policies of ingress")
        for name, rules in policies.items():
            assert_equal([rule.get("from", []) for rule in rules if metrics in rule["ports"]], [given], "who may read the metrics of " + name)
            assert_equal([rule for rule in rules if metrics in rule["ports"] and len(rule["ports"]) > 1], [], "other ports beside them, of " + name)
            assert_equal([rule for rule in rules if metrics not in rule["ports"] and "from" in rule], [], "limits of other ports of " + name)


def the_registry_reaches_its_catalog():
    """Arguments, key, authorities and the ports that the NetworkPolicy lets out to are those of the catalog, and there is none unless it is named."""
    mirror = {"name": "skillssh", "url": "http://mirror.tools.svc:8080/api", "filesUrl": "http://files.example.org/raw",
              "keySecret": {"name": "catalog", "key": "token"}}
    for catalog, arguments, ports in (
            ({}, [], [6443]),
            ({"name": "skillssh"}, ["--catalog=skillssh"], [6443, 443]),
            ({"name": "index", "url": "https://skills.example.org:8443/index.json"},
             ["--catalog=index", "--catalog-url=https://skills.example.org:8443/index.json"], [6443, 8443, 443]),
            ({"name": "skillsmp", "url": "https://[fd00::1]:6443/api"}, ["--catalog=skillsmp", "--catalog-url=https://[fd00::1]:6443/api"], [6443, 443]),
            (mirror, ["--catalog=skillssh", "--catalog-url=" + mirror["url"], "--catalog-files-url=" + mirror["filesUrl"],
                      "--catalog-key-env=KNACK_CATALOG_KEY"], [6443, 8080, 80])):
        made = documents(render({"crds": {"enabled": False}, "registry": {"enabled": True, "catalog": catalog}, "networkPolicy": {"egressPorts": [6443]},
                                 "caBundle": {"configMap": {"name": "corp-ca"}}}))
        pod = next(d for d in made if d["kind"] == "Deployment" and d["metadata"]["name"] == "knack-registry")["spec"]["template"]["spec"]
        container = pod["containers"][0]
        assert_equal([one for one in container["args"] if one.startswith("--catalog")], arguments, "arguments")
        assert_equal("--ca-file=/etc/knack/authorities/ca.crt" in container["args"], bool(catalog), "--ca-file")
        assert_equal([one["name"] for one in container["volumeMounts"] if one["name"] == "authorities"], ["authorities"] if catalog else [], "mounts")
        assert_equal([one["configMap"]["name"] for one in pod["volumes"] if one["name"] == "authorities"], ["corp-ca"] if catalog else [], "volumes")
        key = [one["valueFrom"] for one in container["env"] if one["name"] == "KNACK_CATALOG_KEY"]
        assert_equal(key, [{"secretKeyRef": catalog["keySecret"]}] if "keySecret" in catalog else [], "the key")
        policy = next(d for d in made if d["kind"] == "NetworkPolicy" and d["metadata"]["name"] == "knack-registry")
        assert_equal(ports_but_names(policy), ports, "ports")


def the_hub_reaches_its_collector():
    """The port of the collector is let out to, once."""
    for endpoint, ports in (("", [443, 6443]), ("http://collector.tools:4318", [443, 6443, 4318]),
                            ("https://collector.example.org:443/otlp", [443, 6443])):
        made = documents(render({"crds": {"enabled": False}, "monitoring": {"otlpEndpoint": endpoint}}))
        policy = next(d for d in made if d["kind"] == "NetworkPolicy" and d["metadata"]["name"] == "knack-hub")
        assert_equal(ports_but_names(policy), ports, "ports with %r" % endpoint)


def namespaced_install_has_no_rights_elsewhere():
    """With watchNamespaces, nothing but callers' identity and the labels of namespaces is read in the whole cluster."""
    made = documents(render({"watchNamespaces": ["team-a"]}))
    lines = [line for line in rbac.table(made).splitlines() if line.split()[1] == "cluster" and not line.startswith("users")]
    for line in lines:
        # The Leases of one name: other releases of Knack. The webhook of the chart: its caBundle.
        if not re.search(r" (namespaces|tokenreviews|subjectaccessreviews|leases\[knack-controller\]|mutatingwebhookconfigurations\[knack-injection\]) ", line):
            raise AssertionError("in the whole cluster: " + line)
    assert lines


def pinned_images_everywhere():
    """The list of images for air-gapped sites is the list of what the chart uses."""
    with open(os.path.join(CHART, "Chart.yaml"), encoding="utf-8") as file:
        listed = {entry["image"] for entry in yaml.safe_load(yaml.safe_load(file)["annotations"]["artifacthub.io/images"])}
    values = default_values()
    used = set(values["sandbox"]["images"].values())
    used |= set(re.findall(r"image: \"?(\S+/knack(?:-gateway)?:[^\s\"]+)", render({})))
    # Where environments of packages are built.
    with_packages = render({"packages": {"repository": "registry.example.org/team/environments"}})
    used |= set(re.findall(r"--builder-image=([^\s\"]+)", with_packages))
    # Only where somebody asks for it: the value of sandbox.runnerImage.
    used |= {image.replace("/knack:", "/runner:") for image in used if "/knack:" in image}
    assert_equal(used, listed, "images")


def example_manifests_are_fresh():
    """The manifests of examples/cluster hold the folders of examples/skills, byte for byte."""
    folder = os.path.join(ROOT, "examples", "cluster")
    names = sorted(name[:-5] for name in os.listdir(folder) if name.endswith(".yaml"))
    for name in names:
        source = os.path.join("examples", "skills", name)
        with open(os.path.join(folder, name + ".yaml"), encoding="utf-8") as file:
            inline = yaml.safe_load(file)["spec"]["source"]["inline"]["files"]
        found = [os.path.relpath(os.path.join(base, file), os.path.join(ROOT, source)) for base, _, files in os.walk(os.path.join(ROOT, source)) for file in files if "__pycache__" not in base]
        assert_equal(sorted(inline), sorted(found), "files of " + name)
        for path, content in inline.items():
            with open(os.path.join(ROOT, source, path), encoding="utf-8") as file:
                assert_equal(content, file.read(), path)
    assert len(names) >= 2, names


def tests(report):
    report.check("helm lint --strict", lint)
    report.check("every value is varied by a test", every_value_is_varied)
    report.check("templates use only values of values.yaml", templates_use_known_values)
    report.check("every object of the schema is closed and complete", every_object_of_the_schema_is_closed)
    report.check("wrong values are refused by name", refusals)
    rendered = {}
    if report.check("every value alone and in pairs renders",
                    lambda: rendered.update(render_all(combinations())) or "%d renderings" % len(rendered)):
        report.check("no value is without effect", lambda: every_value_changes_something(rendered))
        report.check("every rendering is sound", lambda: every_rendering_is_sound(rendered))
    report.check("two releases share no object", two_releases_share_nothing)
    report.check("rights are those of the table", rights_are_those_of_the_table)
    report.check("only a gateway that knows nobody sees everything", only_a_gateway_that_knows_nobody_sees_everything)
    report.check("the multi-tenant profile serves labelled namespaces only", the_profile_serves_labelled_namespaces_only)
    report.check("restarts come with their right", restarts_come_with_their_right)
    report.check("a ClusterTrustBundle comes with its right", a_trust_bundle_comes_with_its_right)
    report.check("the registry comes with its rights", the_registry_comes_with_its_rights)
    report.check("name servers are reached at the ports of their pods", name_servers_are_reached_at_the_ports_of_their_pods)
    report.check("builders reach public addresses", builders_reach_public_addresses)
    report.check("OpenShift admits every pod", openshift_admits_every_pod)
    report.check("pods that are not ready hold up no drain", pods_that_are_not_ready_hold_up_no_drain)
    report.check("the default runtime outlives a rollback", the_default_runtime_outlives_a_rollback)
    report.check("metrics are read by those who are named", metrics_are_read_by_those_who_are_named)
    report.check("the registry reaches its catalog", the_registry_reaches_its_catalog)
    report.check("the hub reaches its collector", the_hub_reaches_its_collector)
    report.check("a namespaced install has no rights elsewhere", namespaced_install_has_no_rights_elsewhere)
    report.check("the image list is complete", pinned_images_everywhere)
    report.check("manifests of examples/cluster are fresh", example_manifests_are_fresh)
    report.check("notes", notes_tell_what_to_do)
    report.check("notes of runtimes where no code may run", notes_warn_of_runtimes_without_code)
    report.check("a mirror takes the place of our registry", a_mirror_takes_the_place_of_our_registry)
    report.check("pods are given the time that they take to end", pods_are_given_the_time_that_they_take_to_end)
    report.check("one process decides what is built", one_process_decides_what_is_built)
    report.check("the default runtime declares its languages", the_default_runtime_declares_its_languages)
    report.check("notes warn of images by tag", notes_warn_of_images_by_tag)
    report.check("generated files are fresh", generated_files_are_fresh)
    report.check("definitions pass through Helm unchanged", definitions_are_unchanged)
    report.check("deploy/ holds what the chart makes", base_renders)
