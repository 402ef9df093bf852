"""The charts in dry runs on a real API server: what needs no installation."""

import json
import os

from bed import apply, exists, make_namespaces, remove_namespaces, remove_stubs, stub_monitoring, wait_until
from harness import ROOT, assert_equal, kubectl
from render import documents, identity, render, render_all, shared_documents
from variations import combinations

RENDER_NAMESPACES = ("team-a", "team-b", "other-sandboxes", "knack-sandboxes", "knack-builds", "other-builds")


def every_rendering_is_taken(rendered):
    """Each distinct object of all renderings passes the server's strict validation and its admission, in a dry run."""
    distinct = {}
    for text in rendered.values():
        distinct.update(shared_documents(text))
    # Texts that differ in comments alone are one object.
    distinct = {json.dumps(document, sort_keys=True): document for document in distinct.values()}
    made = [d for d in distinct.values() if d["kind"] != "CustomResourceDefinition" or "annotations" in d["metadata"]]
    text = "".join("---\n" + json.dumps(document) + "\n" for document in made)
    told = kubectl("apply", "--server-side", "--force-conflicts", "--field-manager=chart-test", "--dry-run=server",
                   "--validate=strict", "-f", "-", stdin=text, seconds=1200)
    taken = told.count("serverside-applied (server dry run)")
    assert_equal(taken, len(made), "objects taken")
    return "%d distinct objects of %d renderings" % (taken, len(rendered))


# Installations as other people's clusters need them: users that the cluster assigns, OpenShift, IPv6.
ELSEWHERE = {
    "default": {},
    "users of the cluster's own range": {"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}},
    "a user of a namespace's range": {"podSecurityContext": {"runAsUser": 1000650000, "runAsGroup": 1000650000, "fsGroup": 1000650000}},
    "OpenShift": {"openshift": {"enabled": True}},
    "IPv6": {"listenAddress": "[::]"},
    "nodes of another architecture": {
        component: {"nodeSelector": {"kubernetes.io/arch": "arm64"}, "tolerations": [{"key": "kubernetes.io/arch", "operator": "Exists"}]}
        for component in ("controller", "hub", "gateway")
    },
}


def pods_are_restricted(cluster):
    """The pods of every component, as Pod Security `restricted` admits them; a Deployment alone would only be warned of."""
    namespace = cluster.NAMESPACE + "-restricted"
    apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {pod-security.kubernetes.io/enforce: restricted}}\n" % namespace)
    try:
        count = 0
        for name, values in ELSEWHERE.items():
            for document in documents(render({"crds": {"enabled": False}, **values})):
                if document["kind"] != "Deployment":
                    continue
                spec = dict(document["spec"]["template"]["spec"])
                del spec["serviceAccountName"]
                pod = {"apiVersion": "v1", "kind": "Pod", "spec": spec,
                       "metadata": {"name": document["metadata"]["name"], "namespace": namespace}}
                wait_until("the namespace's ServiceAccount", 20, lambda: exists("serviceaccount", "-n", namespace, "default"))
                kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(pod))
                count += 1
        return "%d pods" % count
    finally:
        remove_namespaces(namespace)


def base_is_taken():
    """`kubectl apply -k deploy/crds` and `-k deploy`, as a dry run: its namespaces are fixed, and others may use them."""
    made = [identity(d) for d in documents(kubectl("kustomize", os.path.join(ROOT, "deploy")))]
    namespaces = sorted({key[2] for key in made if key[2]})
    missing = [name for name in namespaces if not exists("namespace", name)]
    make_namespaces(*missing)
    try:
        for folder in ("deploy/crds", "deploy"):
            kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-k", os.path.join(ROOT, folder))
    finally:
        remove_namespaces(*missing)
    return "%d objects" % len(made)


def examples_are_taken(cluster):
    """Every example manifest passes the definitions' rules and strict validation, in a dry run."""
    examples = os.path.join(ROOT, "examples")
    files = ["-f", os.path.join(examples, "cluster"), "-f", os.path.join(examples, "cluster", "runtimes"), "-f", os.path.join(examples, "manifests")]
    strict = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "-n", cluster.NAMESPACE]
    told = kubectl(*strict, *files) + kubectl(*strict, "-k", os.path.join(examples, "kustomize"))
    told += kubectl(*strict, "-f", os.path.join(ROOT, "deploy", "components", "sidecar-egress", "networkpolicy.yaml"))
    return "%d objects" % told.count("serverside-applied")


def tests(report, cluster):
    """What needs nothing but an API server; the namespaces that the renderings name are there meanwhile."""
    created = [name for name in (*RENDER_NAMESPACES, cluster.NAMESPACE) if not exists("namespace", name)]
    try:
        make_namespaces(*created)
        stub_monitoring()
        rendered = {}
        if report.check("every value alone and in pairs renders, for the server",
                        lambda: rendered.update(render_all(combinations(), written=True)) or "%d renderings" % len(rendered)):
            if not all(exists("crd", name) for name in cluster.DEFINITIONS):
                kubectl("apply", "--server-side", "-k", os.path.join(ROOT, "deploy", "crds"))
            report.check("every rendering is taken by the API server", lambda: every_rendering_is_taken(rendered))
        report.check("pods pass Pod Security restricted, with any user", lambda: pods_are_restricted(cluster))
        report.check("deploy/ is taken by the API server", base_is_taken)
        report.check("every example is taken by the API server", lambda: examples_are_taken(cluster))
    finally:
        remove_stubs()
        remove_namespaces(*created)
