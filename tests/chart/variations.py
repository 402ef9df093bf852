"""Every value of the chart, set to something else than its default: alone, and in pairs.

A variation may set what its own value needs to have an effect (a label of the ServiceMonitor needs the ServiceMonitor).
"""

import copy
import itertools

DIGEST = "sha256:" + "ab" * 32
COMPONENT = {
    "replicas": 2,
    "logLevel": "info,knack=debug",
    "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "1Gi", "cpu": "2"}},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "knack", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}]}},
    "priorityClassName": "system-cluster-critical",
    "podAnnotations": {"example.org/team": "a"},
}
VARIATIONS = {
    "image.repository": {"image": {"repository": "registry.example.org:5000/mirror/knack"}},
    "image.tag": {"image": {"tag": "9.9.9-rc.1"}},
    "image.digest": {"image": {"digest": DIGEST}},
    "image.pullPolicy": {"image": {"pullPolicy": "Always"}},
    "imagePullSecrets": {"imagePullSecrets": ["registry-key", "other-key"]},
    "crds.enabled": {"crds": {"enabled": False}},
    "crds.keep": {"crds": {"keep": False}},
    "watchNamespaces": {"watchNamespaces": ["team-a", "team-b"]},
    "runtimeNamespaces": {"runtimeNamespaces": ["team-a", "team-b"]},
    "defaultRuntime.enabled": {"defaultRuntime": {"enabled": False}, "runtimeNamespaces": ["team-a"],
                               "gateway": {"runtime": "team-a/tools"}},
    "defaultRuntime.name": {"defaultRuntime": {"name": "shared"}},
    "defaultRuntime.namespace": {"defaultRuntime": {"namespace": "other-sandboxes"}},
    "defaultRuntime.createNamespace": {"defaultRuntime": {"createNamespace": False}},
    "defaultRuntime.spec": {"defaultRuntime": {"spec": {"maxActivation": "Always", "sandbox": {"timeoutSeconds": 20}}}},
    "sandbox.images.python": {"sandbox": {"images": {"python": "registry.example.org:5000/python@" + DIGEST}}},
    "sandbox.images.node": {"sandbox": {"images": {"node": "registry.example.org:5000/node:22"}}},
    "sandbox.allowImageTags": {"sandbox": {"allowImageTags": True}},
    "sandbox.runnerImage": {"sandbox": {"runnerImage": "registry.example.org:5000/runner@" + DIGEST}},
    "sandbox.quota.enabled": {"sandbox": {"quota": {"enabled": False}}},
    "controller.allowedArchiveNetworks": {"controller": {"allowedArchiveNetworks": ["10.20.0.0/16", "fd00::/8"]}},
    "gateway.enabled": {"gateway": {"enabled": False}},
    "gateway.runtime": {"runtimeNamespaces": ["team-b"], "gateway": {"runtime": "team-b/tools"}},
    "gateway.clientAuth": {"gateway": {"clientAuth": "token-review"}},
    "gateway.publicUrl": {"gateway": {"publicUrl": "https://llm.example.org/knack"}},
    "gateway.upstreams": {"gateway": {"upstreams": {"openai": "http://mock.default.svc:8080", "anthropic": "https://proxy.example.org/a"}}},
    "gateway.providerKeysSecret": {"gateway": {"clientAuth": "token-review", "providerKeysSecret": "provider-keys"}},
    "gateway.service.type": {"gateway": {"service": {"type": "LoadBalancer"}}},
    "gateway.service.port": {"gateway": {"service": {"port": 8080}}},
    "gateway.service.annotations": {"gateway": {"service": {"annotations": {"example.org/internal": "true"}}}},
    "admissionPolicy.enabled": {"admissionPolicy": {"enabled": False}},
    "admissionPolicy.imageAllowList": {"admissionPolicy": {"imageAllowList": ["ghcr.io/knack-dev/sandbox-python"]}},
    "aggregateRoles.enabled": {"aggregateRoles": {"enabled": False}},
    "networkPolicy.enabled": {"networkPolicy": {"enabled": False}},
    "networkPolicy.egressPorts": {"networkPolicy": {"egressPorts": [8443]}},
    "podDisruptionBudget.enabled": {"podDisruptionBudget": {"enabled": False}, "hub": {"replicas": 3}},
    "monitoring.otlpEndpoint": {"monitoring": {"otlpEndpoint": "http://otel-collector.observability:4318"}},
    "monitoring.serviceMonitor.enabled": {"monitoring": {"serviceMonitor": {"enabled": True}}},
    "monitoring.serviceMonitor.interval": {"monitoring": {"serviceMonitor": {"enabled": True, "interval": "5s"}}},
    "monitoring.serviceMonitor.labels": {"monitoring": {"serviceMonitor": {"enabled": True, "labels": {"release": "prom"}}}},
    "monitoring.prometheusRule.enabled": {"monitoring": {"prometheusRule": {"enabled": True}}},
    "monitoring.prometheusRule.labels": {"monitoring": {"prometheusRule": {"enabled": True, "labels": {"release": "prom"}}}},
}
for _part in ("controller", "hub", "gateway"):
    for _key, _value in COMPONENT.items():
        VARIATIONS["%s.%s" % (_part, _key)] = {_part: {_key: _value}}

# What the schema or a template refuses, and a word of the message.
REFUSED = [
    ({"hubs": {}}, "hubs"),
    ({"image": {"name": "x"}}, "name"),
    ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
    ({"image": {"digest": "sha256:short"}}, "digest"),
    ({"crds": {"install": True}}, "install"),
    ({"controller": {"replica": 2}}, "replica"),
    ({"controller": {"allowedArchiveNetworks": ["10.0.0.1"]}}, "allowedArchiveNetworks"),
    ({"hub": {"replicas": "two"}}, "replicas"),
    ({"hub": {"replicas": -1}}, "replicas"),
    ({"gateway": {"clientAuth": "open"}}, "clientAuth"),
    ({"gateway": {"upstreams": {"mistral": "https://a"}}}, "mistral"),
    ({"gateway": {"upstreams": {"openai": "api.openai.com"}}}, "openai"),
    ({"gateway": {"service": {"port": 0}}}, "port"),
    ({"gateway": {"runtime": "default"}}, "runtime"),
    ({"gateway": {"providerKeysSecret": "keys"}}, "clientAuth"),
    ({"defaultRuntime": {"enabled": False}}, "gateway.runtime"),
    ({"defaultRuntime": {"namespace": "Sand_boxes"}}, "namespace"),
    ({"runtimeNamespaces": ["a", "a"]}, "runtimeNamespaces"),
    ({"sandbox": {"images": {"ruby": "x"}}}, "ruby"),
    ({"admissionPolicy": {"imageAllowList": ["python:3.12"]}}, "imageAllowList"),
    ({"networkPolicy": {"egressPorts": []}}, "egressPorts"),
    ({"monitoring": {"serviceMonitor": {"interval": "soon"}}}, "interval"),
    ({"monitoring": {"otlpEndpoint": "collector:4317"}}, "otlpEndpoint"),
    ({"monitoring": {"otlpEndpoint": "http://user:secret@collector:4318"}}, "otlpEndpoint"),
]


def merge(first, second):
    """Both sets of values; None if they set one value to different things."""
    result = copy.deepcopy(first)
    for key, value in second.items():
        if key not in result:
            result[key] = copy.deepcopy(value)
        elif isinstance(result[key], dict) and isinstance(value, dict):
            merged = merge(result[key], value)
            if merged is None:
                return None
            result[key] = merged
        elif result[key] != value:
            return None
    return result


def combinations():
    """(name, values) of the default, of every variation, and of every pair that does not contradict itself.

    Pairs that do not ask for the definitions go without them: they are two thirds of the text and depend on nothing else.
    """
    yield "default", {}
    yield from VARIATIONS.items()
    for (first, one), (second, other) in itertools.combinations(VARIATIONS.items(), 2):
        values = merge(one, other)
        if values is not None:
            yield first + " + " + second, {"crds": {"enabled": False}, **values}
