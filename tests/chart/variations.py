"""Every value of the chart, set to something else than its default: alone, and in sets in which every pair meets.

A variation may set what its own value needs to have an effect (a label of the ServiceMonitor needs the ServiceMonitor).
"""

import copy
import itertools
import os

import yaml

from harness import CHART

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
# What goes into the pod as it is: in pairs only with the other settings of its component.
PASSED_THROUGH = {
    "podLabels": {"sidecar.istio.io/inject": "false"},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
                                   "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "knack"}}}],
    "strategy": {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}},
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/knack"}},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.org:3128"}],
    "extraVolumes": [{"name": "authority", "configMap": {"name": "authority"}}],
    "extraVolumeMounts": [{"name": "authority", "mountPath": "/etc/authority", "readOnly": True}],
}
VARIATIONS = {
    "image.registry": {"image": {"registry": "registry.example.org:5000/mirror"}},
    "image.repository": {"image": {"repository": "registry.example.org:5000/mirror/knack"}},
    "image.tag": {"image": {"tag": "9.9.9-rc.1"}},
    "image.digest": {"image": {"digest": DIGEST}},
    "gatewayImage.repository": {"gatewayImage": {"repository": "registry.example.org:5000/mirror/knack-gateway"}},
    "gatewayImage.tag": {"gatewayImage": {"tag": "9.9.9-rc.1"}},
    "gatewayImage.digest": {"gatewayImage": {"digest": DIGEST}},
    "image.pullPolicy": {"image": {"pullPolicy": "Always"}},
    "imagePullSecrets": {"imagePullSecrets": ["registry-key", "other-key"]},
    "podSecurityContext.runAsUser": {"podSecurityContext": {"runAsUser": None}},
    "podSecurityContext.runAsGroup": {"podSecurityContext": {"runAsGroup": None}},
    "podSecurityContext.fsGroup": {"podSecurityContext": {"fsGroup": 1000650000}},
    "openshift.enabled": {"openshift": {"enabled": True}},
    "listenAddress": {"listenAddress": "[::]"},
    "caBundle.configMap.name": {"caBundle": {"configMap": {"name": "corp-ca"}}},
    "caBundle.configMap.key": {"caBundle": {"configMap": {"name": "corp-ca", "key": "roots.pem"}}},
    "hub.takeoverAfterSeconds": {"hub": {"takeoverAfterSeconds": 30}},
    "hub.shutdownPauseSeconds": {"hub": {"shutdownPauseSeconds": 0}},
    "hub.drainSeconds": {"hub": {"drainSeconds": 600}},
    "gateway.recordStoreMib": {"gateway": {"recordStoreMib": 64}},
    "gateway.mcp.enabled": {"gateway": {"mcp": {"enabled": True}}},
    "injection.mcp.enabled": {"injection": {"delivery": "Policy", "mcp": {"enabled": True}}},
    "gateway.upstreamKnack": {"gateway": {"upstreams": {"openai": "https://knack.example.org"}, "upstreamKnack": ["openai"]}},
    "gateway.sandboxCodeTools": {"gateway": {"sandboxCodeTools": ["openai", "anthropic", "gemini"]}},
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
    "sandbox.languages": {"sandbox": {"languages": ["node", "python"]}},
    "sandbox.startTimeoutSeconds": {"sandbox": {"startTimeoutSeconds": 600}},
    "sandbox.allowImageTags": {"sandbox": {"allowImageTags": True}},
    "sandbox.runnerImage": {"sandbox": {"runnerImage": "registry.example.org:5000/runner@" + DIGEST}},
    "sandbox.quota.enabled": {"sandbox": {"quota": {"enabled": False}}},
    "controller.allowedArchiveNetworks": {"controller": {"allowedArchiveNetworks": ["10.20.0.0/16", "fd00::/8"]}},
    "gateway.enabled": {"gateway": {"enabled": False}},
    "gateway.runtime": {"runtimeNamespaces": ["team-b"], "gateway": {"runtime": "team-b/tools"}},
    "gateway.registry": {"registry": {"enabled": True}, "gateway": {"registry": True}},
    "gateway.clientAuth": {"gateway": {"clientAuth": "token-review"}},
    "gateway.runModel": {"registry": {"enabled": True}, "gateway": {"registry": True, "runModel": "gpt-5-mini"}},
    "gateway.publicUrl": {"gateway": {"publicUrl": "https://llm.example.org/knack"}},
    "gateway.upstreams": {"gateway": {"upstreams": {"openai": "http://mock.default.svc:8080", "anthropic": "https://proxy.example.org/a"}}},
    "gateway.providerKeysSecret": {"gateway": {"clientAuth": "token-review", "providerKeysSecret": "provider-keys"}},
    "gateway.providerKeysWholeAccount": {"gateway": {"clientAuth": "token-review", "providerKeysSecret": "provider-keys",
                                                     "providerKeysWholeAccount": True}},
    "gateway.shutdownPauseSeconds": {"gateway": {"shutdownPauseSeconds": 0}},
    "gateway.drainSeconds": {"gateway": {"drainSeconds": 25}},
    "gateway.service.sessionAffinity": {"gateway": {"service": {"sessionAffinity": "None"}}},
    "gateway.service.type": {"gateway": {"service": {"type": "LoadBalancer"}}},
    "gateway.service.port": {"gateway": {"service": {"port": 8080}}},
    "gateway.service.annotations": {"gateway": {"service": {"annotations": {"example.org/internal": "true"}}}},
    "injection.delivery": {"injection": {"delivery": "Policy"}},
    "injection.withoutSidecar": {"injection": {"delivery": "Policy", "withoutSidecar": "Deny"}},
    "injection.authorities": {"injection": {"delivery": "Policy", "authorities": "ClusterTrustBundle"}},
    "injection.rollStale": {"injection": {"delivery": "Policy", "rollStale": True}},
    "injection.runtime": {"injection": {"delivery": "Policy", "runtime": "team-a/tools"}},
    "injection.logLevel": {"injection": {"delivery": "Policy", "logLevel": "debug"}},
    "injection.runAsUser": {"injection": {"delivery": "Policy", "runAsUser": None}},
    "injection.imagePullSecrets": {"injection": {"delivery": "Policy", "imagePullSecrets": ["registry-key"]}},
    "injection.resources": {"injection": {"delivery": "Policy", "resources": {"limits": {"cpu": "1", "memory": "256Mi"}}}},
    "admissionPolicy.enabled": {"admissionPolicy": {"enabled": False}},
    "admissionPolicy.extraPodFields": {"admissionPolicy": {"extraPodFields": ["schedulingGates"]}},
    "admissionPolicy.imageAllowList": {"admissionPolicy": {"imageAllowList": ["ghcr.io/knack-dev/sandbox-python"]}},
    "aggregateRoles.enabled": {"aggregateRoles": {"enabled": False}},
    "networkPolicy.enabled": {"networkPolicy": {"enabled": False}},
    "networkPolicy.egressPorts": {"networkPolicy": {"egressPorts": [8443]}},
    "networkPolicy.metricsFrom": {"networkPolicy": {"metricsFrom": [{"namespaceSelector": {"matchLabels": {"team": "metrics"}}, "podSelector": {}},
                                                                    {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}},
    "podDisruptionBudget.enabled": {"podDisruptionBudget": {"enabled": False}, "hub": {"replicas": 3}},
    "monitoring.otlpEndpoint": {"monitoring": {"otlpEndpoint": "http://otel-collector.observability:4318"}},
    "monitoring.serviceMonitor.enabled": {"monitoring": {"serviceMonitor": {"enabled": True}}},
    "monitoring.serviceMonitor.interval": {"monitoring": {"serviceMonitor": {"enabled": True, "interval": "5s"}}},
    "monitoring.serviceMonitor.labels": {"monitoring": {"serviceMonitor": {"enabled": True, "labels": {"release": "prom"}}}},
    "monitoring.prometheusRule.enabled": {"monitoring": {"prometheusRule": {"enabled": True}}},
    "monitoring.dashboard.enabled": {"monitoring": {"dashboard": {"enabled": True}}},
    "monitoring.dashboard.labels": {"monitoring": {"dashboard": {"enabled": True, "labels": {"team": "llm"}}}},
    "monitoring.prometheusRule.labels": {"monitoring": {"prometheusRule": {"enabled": True, "labels": {"release": "prom"}}}},
}
for _part in ("controller", "hub", "gateway"):
    for _key, _value in COMPONENT.items():
        VARIATIONS["%s.%s" % (_part, _key)] = {_part: {_key: _value}}
    for _key, _value in PASSED_THROUGH.items():
        _path = "%s.%s" % (_part, "serviceAccount.annotations" if _key == "serviceAccount" else _key)
        VARIATIONS[_path] = {_part: {_key: _value}}
        if _key == "extraVolumeMounts":
            VARIATIONS[_path][_part]["extraVolumes"] = PASSED_THROUGH["extraVolumes"]

# A registry that is off has no settings.
_REGISTRY = {"enabled": True, "shutdownPauseSeconds": 0, "drainSeconds": 60, **COMPONENT, **PASSED_THROUGH}
for _key, _value in _REGISTRY.items():
    _path = "serviceAccount.annotations" if _key == "serviceAccount" else _key
    VARIATIONS["registry." + _path] = {"registry": {"enabled": True, _key: _value}}
    if _key == "extraVolumeMounts":
        VARIATIONS["registry." + _path]["registry"]["extraVolumes"] = PASSED_THROUGH["extraVolumes"]

# A history that is off has none either. One process writes it, and one on a claim is not rolled out beside the next.
for _key, _value in {"enabled": True, "days": 7, "sizeMib": 512, "existingClaim": "history"}.items():
    VARIATIONS["registry.history." + _key] = {"registry": {"enabled": True, "replicas": 1, "history": {"enabled": True, _key: _value}}}

# Neither have files that are off.
for _key, _value in {"enabled": True, "hours": 48, "sizeMib": 2048, "existingClaim": "files"}.items():
    VARIATIONS["registry.files." + _key] = {"registry": {"enabled": True, "replicas": 1, "files": {"enabled": True, _key: _value}}}

# Without a catalog there is nothing that these could be of.
_CATALOG = {"name": "skillssh", "url": "http://mirror.tools.svc:8080/api", "filesUrl": "https://files.example.org/raw",
            "keySecret.name": {"name": "catalog"}, "keySecret.key": {"name": "catalog", "key": "token"}}
for _key, _value in _CATALOG.items():
    VARIATIONS["registry.catalog." + _key] = {"registry": {"enabled": True, "catalog": {"name": "skillssh", _key.split(".")[0]: _value}}}

# Without a repository no value of these has an effect.
_PACKAGES = {
    "repository": "registry.example.org:5000/team/environments",
    "baseRepositories": ["registry.example.org:5000/team/sandbox"],
    "registrySecret": "registry",
    "registryPlainHttp": True,
    "index": "https://mirror.example.org/simple",
    "indexSecret": "index",
    "npmIndex": "https://mirror.example.org/npm/",
    "npmIndexSecret": "npm",
    "builderImage": "registry.example.org:5000/packages-builder@" + DIGEST,
    "builderPullSecrets": ["registry-key"],
    "namespace": "other-builds",
    "createNamespace": False,
    "egress": [{"cidr": "10.0.0.0/8", "ports": [443, 5000]}],
    **COMPONENT,
    "replicas": 0,
    "podLabels": PASSED_THROUGH["podLabels"],
    "topologySpreadConstraints": PASSED_THROUGH["topologySpreadConstraints"],
    "serviceAccount": PASSED_THROUGH["serviceAccount"],
    "strategy": {"type": "RollingUpdate"},
}
for _key, _value in _PACKAGES.items():
    _path = "serviceAccount.annotations" if _key == "serviceAccount" else _key
    VARIATIONS["packages." + _path] = {"packages": {"repository": _PACKAGES["repository"], _key: _value}}

# Pairs that a template refuses.
CONTRADICTIONS = {("registry.strategy", "registry.history.existingClaim"), ("registry.strategy", "registry.files.existingClaim")}
# What the schema or a template refuses, and a word of the message.
REFUSED = [
    ({"registry": {"enabled": True, "replicas": 2, "history": {"enabled": True}}}, "registry.replicas"),
    ({"registry": {"enabled": True, "strategy": {"type": "Recreate"}, "history": {"enabled": True, "existingClaim": "history"}}}, "registry.strategy"),
    ({"registry": {"enabled": False, "files": {"enabled": True}}}, "registry.files.enabled"),
    ({"registry": {"history": {"enabled": True, "existingClaim": "history"}}}, "registry.history.enabled"),
    ({"registry": {"catalog": {"name": "skillssh"}}}, "registry.catalog.name"),
    ({"registry": {"enabled": True, "replicas": 2, "files": {"enabled": True}}}, "registry.replicas"),
    ({"registry": {"enabled": True, "strategy": {"type": "Recreate"}, "files": {"enabled": True, "existingClaim": "files"}}}, "registry.strategy"),
    ({"registry": {"enabled": True, "history": {"enabled": True, "existingClaim": "a"}, "files": {"enabled": True, "existingClaim": "a"}}}, "registry.files.existingClaim"),
    ({"registry": {"enabled": True, "files": {"enabled": True, "hours": 0}}}, "hours"),
    ({"registry": {"enabled": True, "catalog": {"name": "npm"}}}, "name"),
    ({"registry": {"enabled": True, "catalog": {"url": "https://mirror.example.org/api"}}}, "registry.catalog.url"),
    ({"registry": {"enabled": True, "catalog": {"filesUrl": "https://mirror.example.org"}}}, "registry.catalog.filesUrl"),
    ({"registry": {"enabled": True, "catalog": {"name": "skillsmp", "filesUrl": "https://mirror.example.org"}}}, "registry.catalog.filesUrl"),
    ({"registry": {"enabled": True, "catalog": {"name": "index"}}}, "registry.catalog.url"),
    ({"registry": {"enabled": True, "catalog": {"name": "index", "url": "https://a.example.org/", "filesUrl": "https://mirror.example.org"}}}, "registry.catalog.filesUrl"),
    ({"registry": {"enabled": True, "catalog": {"keySecret": {"name": "catalog"}}}}, "registry.catalog.keySecret.name"),
    ({"registry": {"enabled": True, "catalog": {"name": "skillsmp", "url": "https://user:secret@mirror.example.org/api"}}}, "url"),
    ({"registry": {"enabled": True, "catalog": {"name": "skillsmp", "url": "mirror.example.org"}}}, "url"),
    ({"packages": {"repository": "registry.example.org/team/environments:latest"}}, "repository"),
    ({"packages": {"index": "https://user:secret@mirror.example.org/simple"}}, "index"),
    ({"packages": {"npmIndex": "https://user:secret@mirror.example.org/npm"}}, "npmIndex"),
    ({"packages": {"repository": "registry.example.org/e", "namespace": "knack-sandboxes"}}, "packages.namespace"),
    ({"packages": {"replicas": 2}}, "replicas"),
    # Nothing builds packages without a repository: what is set for builders would do nothing.
    ({"packages": {"index": "https://mirror.example.org/simple"}}, "packages.index: "),
    ({"packages": {"indexSecret": "netrc"}}, "packages.indexSecret: "),
    ({"packages": {"npmIndex": "https://mirror.example.org/npm/"}}, "packages.npmIndex: "),
    ({"packages": {"npmIndexSecret": "npmrc"}}, "packages.npmIndexSecret: "),
    ({"packages": {"registrySecret": "registry"}}, "packages.registrySecret: "),
    ({"packages": {"baseRepositories": ["registry.example.org/sandbox"]}}, "packages.baseRepositories: "),
    ({"packages": {"repository": "registry.example.org/e", "baseRepositories": ["registry.example.org/sandbox"]}, "admissionPolicy": {"imageAllowList": ["registry.example.org/sandbox"]}}, "packages.baseRepositories: "),
    ({"packages": {"repository": "registry.example.org/e", "baseRepositories": ["registry.example.org/sandbox:1"]}}, "baseRepositories"),
    ({"packages": {"registryPlainHttp": True}}, "packages.registryPlainHttp: "),
    ({"packages": {"builderPullSecrets": ["pull"]}}, "packages.builderPullSecrets: "),
    ({"hubs": {}}, "hubs"),
    ({"image": {"name": "x"}}, "name"),
    ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
    ({"image": {"digest": "sha256:short"}}, "digest"),
    ({"crds": {"install": True}}, "install"),
    ({"caBundle": {"secret": "x"}}, "secret"),
    ({"caBundle": {"configMap": {"name": "Corp"}}}, "name"),
    ({"caBundle": {"configMap": {"name": "corp", "key": "a/b"}}}, "key"),
    ({"listenAddress": "127.0.0.1"}, "listenAddress"),
    ({"podSecurityContext": {"privileged": True}}, "privileged"),
    ({"openshift": {"scc": "anyuid"}}, "scc"),
    ({"hub": {"extraEnv": [{"value": "x"}]}}, "name"),
    ({"hub": {"takeoverAfterSeconds": 1}}, "takeoverAfterSeconds"),
    ({"gateway": {"serviceAccount": {"name": "x"}}}, "name"),
    ({"controller": {"replica": 2}}, "replica"),
    ({"controller": {"allowedArchiveNetworks": ["10.0.0.1"]}}, "allowedArchiveNetworks"),
    ({"hub": {"replicas": "two"}}, "replicas"),
    ({"hub": {"replicas": -1}}, "replicas"),
    ({"registry": {"replicas": 21}}, "replicas"),
    ({"gateway": {"clientAuth": "open"}}, "clientAuth"),
    ({"gateway": {"upstreams": {"mistral": "https://a"}}}, "mistral"),
    ({"gateway": {"upstreams": {"openai": "api.openai.com"}}}, "openai"),
    ({"gateway": {"service": {"port": 0}}}, "port"),
    ({"gateway": {"runtime": "default"}}, "runtime"),
    ({"gateway": {"providerKeysSecret": "keys"}}, "clientAuth"),
    ({"gateway": {"clientAuth": "token-review", "providerKeysWholeAccount": True}}, "gateway.providerKeysWholeAccount: "),
    ({"defaultRuntime": {"enabled": False}}, "gateway.runtime"),
    ({"defaultRuntime": {"namespace": "Sand_boxes"}}, "namespace"),
    ({"runtimeNamespaces": ["a", "a"]}, "runtimeNamespaces"),
    ({"sandbox": {"images": {"ruby": "x"}}}, "ruby"),
    ({"injection": {"delivery": "Sometimes"}}, "delivery"),
    ({"injection": {"runtime": "default"}}, "runtime"),
    ({"injection": {"resources": {"limits": {"cpu": None}}}}, "cpu"),
    ({"injection": {"resources": {"requests": {"memory": "lots"}}}}, "memory"),
    ({"injection": {"resources": {"limits": {"cpu": "-1"}}}}, "cpu"),
    ({"injection": {"resources": {"requests": {"memory": "0.2G"}}}}, "the request of memory (0.2G) is above its limit (128Mi)"),
    ({"injection": {"resources": {"requests": {"cpu": "1"}}}}, "the request of cpu (1) is above its limit (200m)"),
    ({"injection": {"resources": {"limits": {"banana": 1}}}}, "banana"),
    ({"injection": {"resources": {"requests": {"cpu": -1}}}}, "cpu"),
    ({"injection": {"resources": {"requests": {"ephemeral-storage": "2Gi"}, "limits": {"ephemeral-storage": "1Gi"}}}},
     "the request of ephemeral-storage (2Gi) is above its limit (1Gi)"),
    ({"injection": {"resources": {"requests": None}}}, "missing property 'requests'"),
    ({"injection": {"resources": None}}, "missing property 'resources'"),
    ({"injection": {"delivery": None}}, "missing property 'delivery'"),
    ({"injection": {"withoutSidecar": None}}, "missing property 'withoutSidecar'"),
    ({"injection": {"mcp": None}}, "missing property 'mcp'"),
    ({"injection": {"resources": {"requests": {"memory": "1m"}, "limits": {"memory": "100m"}}}}, "the limit of memory (100m) is below"),
    ({"injection": {"resources": {"requests": {"memory": 1}, "limits": {"memory": 1048576}}}}, "the limit of memory (1.048576e+06) is below"),
    ({"injection": {"resources": {"limits": {"ephemeral-storage": 0}}}}, "the limit of ephemeral-storage (0) is below"),
    ({"injection": {"logLevel": "debug\0"}}, "logLevel"),
    ({"injection": {"runAsUser": 1 << 31}}, "runAsUser"),
    ({"injection": {"runtime": "team-a/" + 64 * "a"}}, "runtime"),
    ({"gateway": {"runtime": 64 * "a" + "/tools"}}, "runtime"),
    ({"injection": {"delivery": "Policy"}, "defaultRuntime": {"enabled": False}, "gateway": {"enabled": False}}, "injection.runtime"),
    ({"admissionPolicy": {"imageAllowList": ["python:3.12"]}}, "imageAllowList"),
    ({"image": {"registry": "https://registry.example.org"}}, "registry"),
    ({"image": {"registry": "registry..example.org"}}, "registry"),
    ({"image": {"registry": "registry-.example.org/mirror"}}, "registry"),
    ({"image": {"registry": "registry.example.org:65536"}}, "registry"),
    ({"image": {"registry": "registry.example.org/" + 218 * "a"}}, "registry"),
    ({"gatewayImage": {"repository": "registry.example.org/mirror/knack..gateway"}}, "repository"),
    ({"gatewayImage": {"repository": "registry.example.org/mirror/knack___gateway"}}, "repository"),
    ({"gatewayImage": {"repository": None}}, "missing property 'repository'"),
    ({"image": {"pullPolicy": None}}, "missing property 'pullPolicy'"),
    ({"defaultRuntime": {"name": None}}, "missing property 'name'"),
    ({"defaultRuntime": {"namespace": None}}, "missing property 'namespace'"),
    ({"admissionPolicy": {"extraPodFields": ["host-network"]}}, "extraPodFields"),
    ({"networkPolicy": {"egressPorts": []}}, "egressPorts"),
    ({"networkPolicy": {"metricsFrom": [{}]}}, "metricsFrom"),
    ({"networkPolicy": {"metricsFrom": [{"namespace": "monitoring"}]}}, "metricsFrom"),
    # The right to patch workloads is bounded by an admission policy alone.
    ({"injection": {"rollStale": True}, "admissionPolicy": {"enabled": False}}, "injection.rollStale: "),
    ({"monitoring": {"serviceMonitor": {"interval": "soon"}}}, "interval"),
    ({"monitoring": {"otlpEndpoint": "collector:4317"}}, "otlpEndpoint"),
    ({"monitoring": {"otlpEndpoint": "http://user:secret@collector:4318"}}, "otlpEndpoint"),
]


def profile(name):
    """The values of one of the chart's own files."""
    with open(os.path.join(CHART, "values-%s.yaml" % name), encoding="utf-8") as file:
        return yaml.safe_load(file)


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


def stays_inside(name):
    """Whether a value goes into one object as it is, and is paired with the other settings of its own part only."""
    part, *rest = name.split(".")
    return bool(rest) and (rest[0] in PASSED_THROUGH or (part == "injection" and rest[0] != "delivery")
                          or (part == "packages" and rest[0] != "repository") or (part == "registry" and rest[0] != "enabled"))


# As many variations in one rendering as keep a failure readable. Twelve would halve the renderings again, and hide more of them behind a part that is off.
TOGETHER = 8


def combinations():
    """(name, values) of the default, of the chart's profiles, of every variation alone, and of sets of variations in which every pair meets.

    Sets go without the definitions: they are two thirds of the text and depend on nothing else. A set whose variations ask for the definitions has them.
    """
    yield "default", {}
    yield "values-multi-tenant.yaml", profile("multi-tenant")
    yield from VARIATIONS.items()
    names = list(VARIATIONS)
    for chosen in pairwise(len(names), *pairs(names)):
        values = {}
        for number in chosen:
            values = merge(values, VARIATIONS[names[number]])
        yield " + ".join(names[number] for number in chosen), {"crds": {"enabled": False}, **values}


def pairs(names):
    """(compatible, wanted): for each variation the bit set of those that do not contradict it, and of those that it is to meet."""
    compatible, wanted = [0] * len(names), [0] * len(names)
    for first, second in itertools.combinations(range(len(names)), 2):
        one, other = names[first], names[second]
        if (one, other) in CONTRADICTIONS or merge(VARIATIONS[one], VARIATIONS[other]) is None:
            continue
        stays = one.split(".")[0] != other.split(".")[0] and (stays_inside(one) or stays_inside(other))
        for number, bit in ((first, 1 << second), (second, 1 << first)):
            compatible[number] |= bit
            wanted[number] |= 0 if stays else bit
    return compatible, wanted


def pairwise(count, compatible, wanted):
    """Sets of at most TOGETHER numbers below `count`, all compatible with one another, such that each wanted pair is in one of them.

    Pairwise testing (a covering array of strength 2 over the pairs that are on), by the greedy way: each set begins with a pair that is
    left, and takes the number that meets most numbers which it has not met.
    """
    left = list(wanted)
    for first in range(count):
        while left[first]:
            second = (left[first] & -left[first]).bit_length() - 1
            chosen, bits = [first, second], 1 << first | 1 << second
            while len(chosen) < TOGETHER:
                fits = [number for number in range(count) if not bits >> number & 1 and compatible[number] & bits == bits]
                best = max(fits, key=lambda number: (left[number] & bits).bit_count(), default=None)
                if best is None or not left[best] & bits:
                    break
                chosen.append(best)
                bits |= 1 << best
            for number in chosen:
                left[number] &= ~bits
            yield sorted(chosen)
