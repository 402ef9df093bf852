"""The component that closes the namespace of an application with the sidecar, against what the chart makes."""

import ipaddress
import os
import tempfile

import yaml

from harness import ROOT, assert_equal, kubectl
from render import documents, render


def served(made, name):
    """The pod template of a Deployment, and the port of its pods that its Service leads to."""
    template = next(d for d in made if d["kind"] == "Deployment" and d["metadata"]["name"] == name)["spec"]["template"]
    service = next(d for d in made if d["kind"] == "Service" and d["metadata"]["name"] == name)
    port = service["spec"]["ports"][0]["targetPort"]
    return template, next(one["containerPort"] for one in template["spec"]["containers"][0]["ports"] if port in (one["name"], one["containerPort"]))


def leads_to(rule, template, port, what):
    """A rule lets out to the pods of a Deployment of the release, and to nothing else."""
    assert_equal(rule["ports"], [{"port": port, "protocol": "TCP"}], "the port of the " + what)
    [target] = rule["to"]
    assert_equal(target["namespaceSelector"]["matchLabels"], {"kubernetes.io/metadata.name": "knack-system"}, "the namespace of the " + what)
    labels, wanted = template["metadata"]["labels"], target["podSelector"]["matchLabels"]
    assert_equal({key: labels.get(key) for key in wanted}, wanted, "the pods of the " + what)


def closed_namespaces_reach_the_hub():
    """deploy/components/sidecar-egress lets pods with the sidecar out to names, hub and registry of the chart and the provider alone."""
    made = documents(render({"crds": {"enabled": False}, "registry": {"enabled": True}}, namespace="knack-system"))
    ways = {what: served(made, "knack-" + what) for what in ("hub", "registry")}
    # As it is, and in a kustomization that names the provider's addresses.
    with tempfile.TemporaryDirectory() as folder:
        component = os.path.relpath(os.path.join(ROOT, "deploy", "components", "sidecar-egress"), os.path.realpath(folder))
        with open(os.path.join(folder, "kustomization.yaml"), "w", encoding="utf-8") as file:
            yaml.safe_dump({"namespace": "team-b", "components": [component]}, file)
        plain = documents(kubectl("kustomize", folder))
    example = documents(kubectl("kustomize", os.path.join(ROOT, "examples", "cluster", "sidecar")))
    with open(os.path.join(ROOT, "examples", "cluster", "sidecar", "egress.yaml"), encoding="utf-8") as file:
        beside = yaml.safe_load(file)["spec"]["egress"]
    leads_to(beside[0], *ways["hub"], "hub")
    leads_to(beside[1], *ways["registry"], "registry")
    assert_equal(sorted(d["kind"] for d in example), ["Deployment", "Namespace", "NetworkPolicy"], "the example")
    for namespace, found in (("team-b", plain), ("team-a", example)):
        policy = next(d for d in found if d["kind"] == "NetworkPolicy")
        assert_equal((policy["metadata"]["namespace"], policy["spec"]["policyTypes"]), (namespace, ["Egress"]), "the policy")
        # A kustomization names the provider's rule by its place.
        names, to_hub, provider, to_registry = policy["spec"]["egress"]
        assert_equal([(one["protocol"], one["port"]) for one in names["ports"]], [("UDP", 53), ("TCP", 53), ("UDP", 5353), ("TCP", 5353)], "names")
        [servers] = [expression["values"] for peer in names["to"] for expression in peer["namespaceSelector"]["matchExpressions"]]
        assert_equal(servers, ["kube-system", "openshift-dns"], "namespaces of name servers")
        leads_to(to_hub, *ways["hub"], "hub")
        leads_to(to_registry, *ways["registry"], "registry")
        blocks = [(ipaddress.ip_network(one["ipBlock"]["cidr"]), [ipaddress.ip_network(out) for out in one["ipBlock"].get("except", [])]) for one in provider["to"]]
        # The address of a cloud's metadata, of nodes, pods and Services is no provider's.
        for address in ("169.254.169.254", "10.96.0.1", "172.20.0.1", "192.168.1.1", "100.64.0.1", "fd00::1", "fe80::1"):
            address = ipaddress.ip_address(address)
            if any(address in block and not any(address in out for out in outs) for block, outs in blocks):
                raise AssertionError("%s: %s is let out to" % (namespace, address))
        assert_equal([str(block) for block, _ in blocks], ["203.0.113.0/24"] if namespace == "team-a" else ["0.0.0.0/0", "::/0"], "the provider's addresses")


def offline(report):
    report.check("a closed namespace reaches names, hub, registry and the provider", closed_namespaces_reach_the_hub)
