"""Kubernetes objects for the chart's cluster tests: applying, waiting, and cleaning up."""

import json
import os
import time

from harness import kubectl

MONITORING = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %(plural)s.monitoring.coreos.com, labels: {knack-test: chart}}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: %(kind)s, plural: %(plural)s}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


def apply(text, *arguments):
    return kubectl("apply", "--server-side", "--force-conflicts", *arguments, "-f", "-", stdin=text)


def get(*arguments):
    return json.loads(kubectl("get", *arguments, "-o", "json"))


def exists(*arguments):
    return kubectl("get", *arguments, expect=None)[0] == 0


def process_of(container):
    """The first process of a container, as the machine of the bed knows it: 1 in the container, where each probe is another one."""
    identity = container["containerID"].removeprefix("containerd://")
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cgroup" % entry, encoding="utf-8") as cgroup, open("/proc/%s/status" % entry, encoding="utf-8") as status:
                if identity in cgroup.read() and any(line.startswith("NSpid:") and line.split()[-1] == "1" for line in status):
                    return int(entry)
        except OSError:
            continue
    raise AssertionError("no process of container %s" % identity)


# Seconds are written for an idle machine of two cores; a loaded one takes several times as long.
PATIENCE = 5


def wait_until(what, seconds, condition, state=lambda: ""):
    """The first true answer of a condition; polls, since what is waited for spans several kinds.

    A failure shows the text of `state`: what a person would look at next.
    """
    seconds *= PATIENCE
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError("%s: not after %d s\n%s" % (what, seconds, state()))
        time.sleep(0.2)


def stub_monitoring():
    for kind, plural in (("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules")):
        if not exists("crd", plural + ".monitoring.coreos.com"):
            apply(MONITORING % {"kind": kind, "plural": plural})
        kubectl("wait", "--for=condition=Established", "crd/%s.monitoring.coreos.com" % plural, "--timeout=800s")


def remove_stubs():
    kubectl("delete", "crd", "-l", "knack-test=chart", "--ignore-not-found")


def make_namespaces(*names):
    apply("".join("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {knack-test: chart}}\n" % name for name in names))


def remove_namespaces(*names):
    kubectl("delete", "namespace", "--ignore-not-found", "--wait=true", "--timeout=800s", *names)
