"""What the chart renders of the injection: its parameters, who delivers it, and that its defaults are those of the program. Needs no
API server.
"""

import json
import os
import re

import yaml

from harness import CHART, ROOT, assert_equal, helm
from render import documents, render

CRATE = os.path.join(ROOT, "crates", "injection")


def parameters_of(rendered):
    """The text of parameters.yaml in a rendering."""
    return next(d for d in rendered if d["kind"] == "ConfigMap" and d["metadata"]["name"] == "knack-injection")["data"]["parameters.yaml"]


def parameters(values, namespace="knack-system"):
    """parameters.yaml of the chart with values."""
    return yaml.safe_load(parameters_of(documents(render({"crds": {"enabled": False}, **values}, namespace=namespace))))


def defaults_are_those_of_the_program():
    """`knack inject` without parameters gives what the chart with its defaults gives."""
    with open(os.path.join(CRATE, "src", "parameters.yaml"), encoding="utf-8") as file:
        assert_equal(parameters({"injection": {"delivery": "Policy"}}), yaml.safe_load(file), "parameters.yaml of crates/injection and of the chart")


def patterns_are_those_of_the_program():
    """The policy reads base URLs and names of runtimes by the patterns of the crate, and knows its variables with keys, those of
    clients for Azure, and its annotations."""
    with open(os.path.join(CRATE, "src", "names.rs"), encoding="utf-8") as file:
        names = file.read()
    patterns = re.findall(r'(?:BASE_URL|OWN_URL|POD_URL|PUNYCODE|RUNTIME): &str =\s*r"([^"]+)"', names)
    keys = re.findall(r'\("[a-z]+", &\[("[A-Z_]+"(?:, "[A-Z_]+")*)\]\)', names)
    azure = re.findall(r'"(AZURE_[A-Z_]+)"', names)
    assert_equal((len(patterns), len(keys), len(azure)), (5, 3, 2), "patterns and keys of names.rs")
    with open(os.path.join(ROOT, "crates", "vocabulary", "src", "lib.rs"), encoding="utf-8") as file:
        words = dict(re.findall(r'pub const (ANNOTATION_[A-Z_]+): &str = "([^"]+)"', file.read()))
    listed = re.search(r"ANNOTATIONS: \[&str; \d\] = \[([^\]]+)\]", names).group(1)
    annotations = [words[word.strip()] for word in listed.split(",")]
    made = json.dumps(documents(render({"injection": {"delivery": "Policy"}})), ensure_ascii=False)
    wanted = [json.dumps(pattern)[1:-1] for pattern in patterns] + [json.dumps('"keys": dyn([%s])' % ", ".join("dyn(%s)" % key for key in one.split(", ")))[1:-1] for one in keys]
    wanted += [json.dumps("e.name in " + json.dumps(azure, separators=(",", ":")))[1:-1], json.dumps("k in " + json.dumps(annotations, separators=(",", ":")))[1:-1]]
    for text in wanted:
        if text not in made:
            raise AssertionError("%s is not in the policy" % text)


def mcp_is_served_where_it_is_asked_for():
    """Neither sidecars nor the gateway that callers share serve MCP clients by themselves, and each has a setting of its own."""
    for shared, sidecars in ((False, False), (True, False), (False, True)):
        values = {"injection": {"delivery": "Policy", "mcp": {"enabled": sidecars}}, "gateway": {"mcp": {"enabled": shared}}}
        made = documents(render(values))
        given = {e["name"]: e.get("value") for e in parameters(values)["container"]["env"]}
        assert_equal(given.get("KNACK_MCP"), "true" if sidecars else None, "KNACK_MCP of sidecars")
        gateway = next(d for d in made if d["kind"] == "Deployment" and d["metadata"]["name"] == "knack-gateway")
        assert_equal("--mcp" in gateway["spec"]["template"]["spec"]["containers"][0]["args"], shared, "--mcp of the gateway")


def the_registry_is_reached_where_it_is_enabled():
    """Sidecars relay to the registry once there is one; the gateway that callers share does only where it is said. Both report
    their runs where a history is kept, and keep files where the registry does."""
    address = "https://knack-registry.away.svc:8444"
    for enabled, shared in ((False, False), (True, False), (True, True)):
        values = {"injection": {"delivery": "Policy"}, "registry": {"enabled": enabled}, "gateway": {"registry": shared}}
        given = {entry["name"]: entry["value"] for entry in parameters(values, "away")["container"]["env"]}
        assert_equal(given.get("KNACK_REGISTRY"), address if enabled else None, "KNACK_REGISTRY of sidecars")
        made = documents(render(values, namespace="away"))
        policies = [json.dumps(d) for d in made if d["kind"] == "MutatingAdmissionPolicy"]
        assert_equal([address in policy for policy in policies], [enabled] * len(policies), "the address in the policies")
        gateway = next(d for d in made if d["kind"] == "Deployment" and d["metadata"]["name"] == "knack-gateway")
        arguments = gateway["spec"]["template"]["spec"]["containers"][0]["args"]
        assert_equal("--registry=" + address in arguments, shared, "--registry of the gateway")
        reported = ("KNACK_HISTORY" in given, any(a.startswith("--history") for a in arguments))
        assert_equal(reported, (False, False), "reports without a history")
        if enabled:
            values = {**values, "registry": {"enabled": True, "history": {"enabled": True}}}
            given = {e["name"]: e.get("value") for e in parameters(values, namespace="away")["container"]["env"]}
            gateway = next(d for d in documents(render(values, namespace="away")) if d["kind"] == "Deployment" and d["metadata"]["name"] == "knack-gateway")
            arguments = gateway["spec"]["template"]["spec"]["containers"][0]["args"]
            reported = (given.get("KNACK_HISTORY"), "--history=" + address in arguments)
            assert_equal(reported, (address, True), "reports to a history")
            assert_equal("KNACK_FILES_REGISTRY" in given or any(a.startswith("--files") for a in arguments), False, "files that nobody keeps")
            values = {**values, "registry": {"enabled": True, "files": {"enabled": True}}}
            given = {e["name"]: e.get("value") for e in parameters(values, namespace="away")["container"]["env"]}
            gateway = next(d for d in documents(render(values, namespace="away")) if d["kind"] == "Deployment" and d["metadata"]["name"] == "knack-gateway")
            arguments = gateway["spec"]["template"]["spec"]["containers"][0]["args"]
            kept = (given.get("KNACK_FILES_REGISTRY"), "--files-registry=" + address in arguments)
            assert_equal(kept, (address, True), "files are kept at the registry")
    render({"gateway": {"registry": True}}, expect=1)


def values_that_are_taken_away():
    """Names of Secrets, and resources of storage, that are null, as Helm takes a value away, are none: the program reads the parameters
    all the same."""
    assert_equal(parameters({"injection": {"delivery": "Policy", "imagePullSecrets": None}})["imagePullSecrets"], [], "imagePullSecrets")
    storage = {kind: {"ephemeral-storage": None} for kind in ("requests", "limits")}
    given = parameters({"injection": {"delivery": "Policy", "resources": storage}})["resources"]
    assert_equal({kind: sorted(given[kind]) for kind in given}, {kind: ["cpu", "memory"] for kind in storage}, "resources without storage")


def openshift_chooses_the_user():
    """On OpenShift the constraint of an application refuses a user outside of its namespace's range, so the sidecar names none."""
    for values, user in (({}, 65532), ({"openshift": {"enabled": True}}, None), ({"injection": {"runAsUser": None}}, None), ({"injection": {"runAsUser": 7}}, 7)):
        values = {**values, "injection": {"delivery": "Policy", **values.get("injection", {})}}
        security = parameters(values)["container"]["securityContext"]
        assert_equal([security.get("runAsUser"), security.get("runAsGroup"), security["runAsNonRoot"]], [user, user, True], repr(values))
        policy = next(json.dumps(d) for d in documents(render({"crds": {"enabled": False}, **values})) if d["kind"] == "MutatingAdmissionPolicy")
        assert_equal("runAsUser" in policy, user is not None, "a user in the policy with %r" % values)


PARTS_OF_WEBHOOK = {"right", "Secret", "Service", "port", "arguments", "way in"}


def parts_of_webhook(made):
    """What a rendering has for the webhook alone."""
    parts = set()
    for document in made:
        name, kind = document["metadata"]["name"], document["kind"]
        for rule in document.get("rules") or [] if kind in ("Role", "ClusterRole") else []:
            if rule["resources"] == ["mutatingwebhookconfigurations"]:
                assert_equal((rule["resourceNames"], rule["verbs"]), (["knack-injection"], ["get", "patch"]), "the right on the webhook")
                parts.add("right")
            if "knack-webhook-tls" in rule.get("resourceNames", ()):
                parts.add("Secret")
        if kind == "Service" and name == "knack-webhook":
            parts.add("Service")
        ways_in = document["spec"].get("ingress", []) if kind == "NetworkPolicy" else []
        if any({"protocol": "TCP", "port": "webhook"} in rule["ports"] for rule in ways_in):
            parts.add("way in")
        if kind == "Deployment" and name == "knack-controller":
            container = document["spec"]["template"]["spec"]["containers"][0]
            if "webhook" in [port["name"] for port in container["ports"]]:
                parts.add("port")
            if "--webhook-configuration=knack-injection" in container["args"]:
                parts.add("arguments")
    return parts


def delivery_is_told():
    """Where the API server serves policies, or by name, the policy and its bindings are made; else the webhook. Only that has rights."""
    def kinds(values, *extra):
        made = documents(render({"crds": {"enabled": False}, **values}, extra=extra))
        found = sorted(d["kind"] for d in made if d["kind"].startswith("Mutating"))
        assert_equal(parts_of_webhook(made), PARTS_OF_WEBHOOK if "MutatingWebhookConfiguration" in found else set(), "what the webhook needs, with %r" % values)
        return found
    served = ("--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")
    all_three = ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding"]
    no_runtime = {"defaultRuntime": {"enabled": False}, "gateway": {"enabled": False}}
    webhook = ["MutatingWebhookConfiguration"]
    for values, extra, expected in (({}, (), webhook), ({}, served, all_three), ({"injection": {"delivery": "Policy"}}, (), all_three),
                                    ({"injection": {"delivery": "Webhook"}}, served, webhook),
                                    ({"injection": {"delivery": "None"}}, (), []), (no_runtime, (), []), (no_runtime, served, [])):
        assert_equal(kinds(values, *extra), expected, "%r %r" % (values, extra))


def parameters_are_published_without_a_delivery():
    """`knack inject` is what is left with `injection.delivery: None`: its parameters are there as with a delivery, and the notes
    say how to get them, and that a namespace needs its label all the same."""
    assert_equal(parameters({"injection": {"delivery": "None"}}), parameters({"injection": {"delivery": "Policy"}}), "the parameters")
    no_runtime = documents(render({"defaultRuntime": {"enabled": False}, "gateway": {"enabled": False}}))
    assert_equal([d for d in no_runtime if d["metadata"]["name"] == "knack-injection"], [], "parameters without a runtime")
    notes = helm("install", "knack", CHART, "--namespace", "n", "--dry-run=client", "--set", "injection.delivery=None").split("NOTES:", 1)[1]
    for text in ("kubectl label namespace NAMESPACE knack.dev/inject=enabled", "kubectl get configmap -n n knack-injection -o jsonpath='{.data.parameters\\.yaml}'",
                 "knack inject -f FILE --parameters parameters.yaml"):
        if text not in notes:
            raise AssertionError("%r is not in the notes:\n%s" % (text, notes))


def tests(report):
    report.check("injection: defaults are those of the program", defaults_are_those_of_the_program)
    report.check("injection: MCP is served where it is asked for", mcp_is_served_where_it_is_asked_for)
    report.check("injection: the registry is reached where it is enabled", the_registry_is_reached_where_it_is_enabled)
    report.check("injection: patterns are those of the program", patterns_are_those_of_the_program)
    report.check("injection: parameters are published without a delivery", parameters_are_published_without_a_delivery)
    report.check("injection: values that are taken away", values_that_are_taken_away)
    report.check("injection: OpenShift chooses the user", openshift_chooses_the_user)
    report.check("injection: delivery by value and by what the API server serves", delivery_is_told)
