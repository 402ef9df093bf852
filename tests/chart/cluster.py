"""The charts on a real API server: an installation's whole life, and rights.

Works on any cluster that KUBECONFIG names; it must be one for tests. Images and names come from the environment, see SETTINGS.
"""

import json
import os
import re
import sys

import closed
import drained
import dry_runs
import node_drained
import releases
import rollback
import rollout
import sidecars
import tenants
from bed import apply, exists, get, make_namespaces, remove_namespaces, wait_until
from harness import CHART, ROOT, assert_equal, helm, kubectl
from render import render

SETTINGS = {
    "release": os.environ.get("KNACK_CHART_RELEASE", "knack"),
    "namespace": os.environ.get("KNACK_CHART_NAMESPACE", "chart-knack"),
    "sandboxes": os.environ.get("KNACK_CHART_SANDBOXES", "chart-sandboxes"),
    "skills": os.environ.get("KNACK_CHART_SKILLS", "chart-skills"),
    "registry": os.environ.get("KNACK_CHART_REGISTRY", "knack.local"),
    "tag": os.environ.get("KNACK_CHART_TAG", "dev"),
}
RELEASE, NAMESPACE, SANDBOXES, SKILLS = (SETTINGS[key] for key in ("release", "namespace", "sandboxes", "skills"))
# What the names of cluster-wide objects of the release begin with.
CLUSTER_PREFIX = RELEASE if "knack" in RELEASE else RELEASE + "-knack"
READY_SECONDS = 600
# For an answer with runs of code. A request that is sent again runs its code again.
ANSWER_SECONDS = 300
DEFINITIONS = ("skills.knack.dev", "skillruntimes.knack.dev")
SKILL = """
apiVersion: knack.dev/v1alpha1
kind: Skill
metadata: {name: adder}
spec:
  source:
    inline:
      files:
        SKILL.md: |
          ---
          name: adder
          description: Adds two numbers.
          ---
          Run scripts/add.py A B.
        scripts/add.py: |
          import sys
          print(int(sys.argv[1]) + int(sys.argv[2]))
"""
MOCK = """
apiVersion: v1
kind: ConfigMap
metadata: {name: mock-script}
data:
  script.yaml: |
    models: [knack-test]
    turns:
      - user: add
        rounds:
          - expect: {tool: load_skill, system: '<skill name="adder">'}
            reply:
              calls: [{tool: load_skill, arguments: {skill: adder}}]
          - expect: {result: add.py}
            reply:
              calls:
                - tool: run_code
                  arguments: {skill: adder, command: python3 skills/adder/scripts/add.py 19 23}
          - expect: {result: '42'}
            reply: {text: The sum is 42.}
      - user: which skills
        rounds:
          - reply: {text: '{{skills}}'}
            pick: {skills: {from: system, regex: '(?s)(<skill .*</skill>)'}}
      - user: who pays
        rounds:
          - expect: {header: {authorization: {equals: Bearer the-provider-key}}}
            reply: {text: The gateway pays.}
      - user: take your time
        rounds:
          - expect: {system: '<skill name="adder">'}
            reply: {text: 'Word by word this answer comes through the sidecar of a pod that ends.'}
            stream: {delay_ms: 700}
      - user: sleep for eight seconds
        rounds:
          - reply:
              calls:
                - tool: run_code
                  arguments: {skill: adder, command: "python3 -c 'import time, uuid; time.sleep(8); print(uuid.uuid4())'"}
          - pick: {slept: {from: results, regex: '([0-9a-f]{8}-[-0-9a-f]{27})'}}
            reply: {text: 'slept {{slept}}'}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: mock}
spec:
  selector: {matchLabels: {app: mock}}
  template:
    metadata: {labels: {app: mock}}
    spec:
      automountServiceAccountToken: false
      containers:
        - name: mock
          image: %(registry)s/knack:%(tag)s
          imagePullPolicy: IfNotPresent
          args: [mock, --listen=0.0.0.0:8080, --script=/script/script.yaml]
          ports: [{containerPort: 8080}]
          readinessProbe: {httpGet: {path: /v1/models, port: 8080}, periodSeconds: 1}
          volumeMounts: [{name: script, mountPath: /script}]
      volumes: [{name: script, configMap: {name: mock-script}}]
---
apiVersion: v1
kind: Service
metadata: {name: mock}
spec: {selector: {app: mock}, ports: [{port: 8080}]}
"""


def values():
    image = SETTINGS["registry"] + "/%s:" + SETTINGS["tag"]
    return {
        "image": {"repository": SETTINGS["registry"] + "/knack", "tag": SETTINGS["tag"]},
        "gatewayImage": {"repository": SETTINGS["registry"] + "/knack-gateway"},
        "sandbox": {"images": {"python": image % "sandbox-python", "node": image % "sandbox-node"}, "allowImageTags": True},
        # A run of eight seconds has no room in the default of ten where a node is busy.
        "defaultRuntime": {"namespace": SANDBOXES, "spec": {
            "sandbox": {"timeoutSeconds": 60},
            "env": [{"name": "WEATHER_KEY", "valueFrom": {"secretKeyRef": {"name": "weather", "key": "key"}}, "skills": ["weather"]}]}},
        # A busy node may notice later than after the default of five seconds that a pod takes no new requests.
        "gateway": {"upstreams": {"openai": "http://mock.%s.svc:8080" % SKILLS}, "shutdownPauseSeconds": 15},
    }


def value_flags(*extra):
    """`--set-json` flags of the test's values, and more."""
    return [flag for key, value in values().items() for flag in ("--set-json", "%s=%s" % (key, json.dumps(value)))] + list(extra)


def install():
    take = ["--take-ownership"] if any(exists("crd", name) for name in DEFINITIONS) else []
    helm("install", RELEASE, CHART, "--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout",
         "%ds" % READY_SECONDS, *take, *value_flags())


def first_request_runs_code():
    """helm install, kubectl apply, and nothing else: a request through the gateway runs the skill's code in a Job."""
    kubectl("apply", "-n", SKILLS, "-f", "-", stdin=SKILL)
    kubectl("wait", "-n", SKILLS, "skill/adder", "--for=condition=Ready", "--timeout=800s")
    apply(MOCK % SETTINGS, "-n", SKILLS)
    kubectl("rollout", "status", "-n", SKILLS, "deployment/mock", "--timeout=800s")
    # The gateway may have started before its runtime was there, and then asks again every two seconds.
    gateway_has_the_skill(60)
    # A Service that is seconds old has a name and a route on the node a little after its pods are ready.
    wait_until("the gateway reaches the mock's Service", 30, lambda: ask_gateway("/v1/models", expect=(200, 502, 504))[0] == 200)
    body = {"model": "knack-test", "messages": [{"role": "user", "content": "please add 19 and 23"}]}
    answer = chat(body)
    assert_equal(answer["choices"][0]["message"]["content"], "The sum is 42.", "the answer")
    # The record of a run is written after the answer.
    made = wait_until("the Job that ran the skill", 15,
                      lambda: get("jobs", "-n", SANDBOXES, "-l", "knack.dev/skill=adder")["items"])
    assert_equal(len(made), 1, "Jobs of the skill")
    return "Job " + made[0]["metadata"]["name"]


# Metrics of alerts and dashboard that this installation does not have after one run, and why.
NOT_HERE = {
    "knack_registry_": "there is no registry",
    "knack_executions_history_dropped_total": "there is no registry that keeps a history",
    "knack_packages_": "no environments of packages are built",
}


def metrics_of(component):
    """/metrics of the replicas of a component that answer, as docs/observability.md reads those of the hub."""
    names = kubectl("get", "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=" + component, "-o", "jsonpath={.items[*].metadata.name}").split()
    answers = (kubectl("get", "--raw", "/api/v1/namespaces/%s/pods/%s:9090/proxy/metrics" % (NAMESPACE, name), expect=None) for name in names)
    # One that is being replaced, or a proxy that gives up, has nothing to tell yet.
    return "".join(out for status, out, _ in answers if status == 0)


def running_processes_have_what_is_monitored():
    """After a run every metric of alerts and dashboard is told by the process that has it, and the hub tells of the skill."""
    asked = set(re.findall(r"\bknack_\w+(?=\{)", render({"monitoring": {"prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}}}).replace('\\"', '"')))
    asked = {name for name in asked if not name.startswith(tuple(NOT_HERE))}
    assert len(asked) >= 20, asked

    def missing():
        told = "".join(metrics_of(component) for component in ("controller", "hub", "gateway"))
        types = set(re.findall(r"^# TYPE (\w+) ", told, re.MULTILINE))
        return sorted(name for name in asked if not {name, re.sub("_(total|bucket)$", "", name)} & types)

    # The controller counts pods and objects once a minute, and a gateway reports its uses every 15 seconds.
    wait_until("metrics", 120, lambda: not missing(), lambda: "missing: %s" % missing())
    used = re.compile(r'skill="%s/adder",use="ran"\} 1( |$)' % re.escape(SKILLS), re.MULTILINE)
    wait_until("the run among the hub's uses of skills", 60, lambda: used.search(metrics_of("hub")))


def gateway_readiness(place=NAMESPACE):
    """What the gateway says of itself, or why it says nothing: a pod of before that still ends its answers is not ready."""
    pods = [pod["metadata"] for pod in get("pods", "-n", place, "-l", "app.kubernetes.io/component=gateway")["items"]]
    name = next((pod["name"] for pod in pods if "deletionTimestamp" not in pod), None)
    return "no pod" if name is None else "".join(kubectl("get", "--raw", "/api/v1/namespaces/%s/pods/%s:9090/proxy/readyz" % (place, name), expect=None)[1:])


def gateway_is_rolled_out():
    """Nothing of the gateway before it takes requests any more: a Service leads to a pod that ends for as long as the node has not noticed."""
    kubectl("rollout", "status", "-n", NAMESPACE, "deployment/knack-gateway", "--timeout=800s")
    wait_until("the gateway's pods of before are gone", 60, lambda: not [
        pod for pod in get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=gateway")["items"] if "deletionTimestamp" in pod["metadata"]])


def gateway_has_the_skill(seconds, place=NAMESPACE):
    def state():
        logs = (kubectl("logs", "-n", place, "deployment/knack-" + part, "--tail=30") for part in ("gateway", "hub"))
        return "\n".join((gateway_readiness(place), kubectl("get", "pods", "-n", place), *logs))

    wait_until("the gateway has the skill", seconds, lambda: "skills=1" in gateway_readiness(place), state)


def chat(body, token="test", place=NAMESPACE):
    """The answer to a chat request through the gateway; one that is no 200 is an AssertionError with its status and body."""
    return ask_gateway("/v1/chat/completions", body, token, place=place)[1]


def ask_gateway(path, body=None, token="test", expect=(200,), headers=None, place=NAMESPACE):
    """Status and JSON body of a request to the Service of the gateway in the namespace `place`, as a pod on the node sends it.

    The first call to a new Service can be refused, so a connection that fails is tried again.
    """
    import urllib.error
    import urllib.request
    service = get("service", "-n", place, "knack-gateway")["spec"]
    request = urllib.request.Request("http://%s:%d%s" % (service["clusterIP"], service["ports"][0]["port"], path),
                                     body and json.dumps(body).encode(),
                                     {"content-type": "application/json", "authorization": "Bearer " + token, **(headers or {})})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    told = []

    def asked():
        try:
            with opener.open(request, timeout=ANSWER_SECONDS) as response:
                status, text = response.status, response.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        except OSError as error:
            told.append(str(error))
            return None
        if status not in expect:
            raise AssertionError("the gateway answered %d: %s" % (status, text[:2000]))
        return status, json.loads(text)

    return wait_until("an answer of the gateway (%s)" % told[-1:], 20, asked)


CALLERS = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: app, namespace: %(skills)s}
---
apiVersion: v1
kind: Secret
metadata: {name: provider-keys, namespace: %(namespace)s}
stringData: {openai: the-provider-key}
"""


def gateway_knows_its_callers():
    """With token-review: no token, one for another audience, and one without the right are refused; else the gateway's key pays."""
    apply(CALLERS % SETTINGS)
    kubectl("label", "namespace", SKILLS, "knack.dev/inject-", expect=None)
    known = dict(values()["gateway"], clientAuth="token-review", providerKeysSecret="provider-keys")
    default_values("--set-json", "gateway=" + json.dumps(known))
    gateway_is_rolled_out()
    body = {"model": "knack-test", "messages": [{"role": "user", "content": "who pays"}]}
    token = kubectl("create", "token", "app", "-n", SKILLS, "--audience=knack-gateway").strip()
    other = kubectl("create", "token", "app", "-n", SKILLS, "--audience=somebody-else").strip()
    for shown, word in (("not-a-token", "not a ServiceAccount token"), (other, "audience knack-gateway"), (token, "may not use SkillRuntime")):
        told = refusal(body, shown)
        if told[:3] not in ("401", "403") or word not in told:
            raise AssertionError("expected a refusal with %r, got %r" % (word, told))
    # The runtime's allowedCallers are the namespaces with this label.
    kubectl("label", "namespace", SKILLS, "knack.dev/inject=enabled")
    # Verdicts are remembered for a moment.
    answer = wait_until("an allowed caller's answer", 60, lambda: not refusal(body, token) and chat(body, token))
    assert_equal(answer["choices"][0]["message"]["content"], "The gateway pays.", "the answer")


def refusal(body, token):
    """Status and body of a refusal; empty if the request was answered."""
    try:
        chat(body, token)
        return ""
    except AssertionError as error:
        return str(error).removeprefix("the gateway answered ")


def default_runtime():
    return get("skillruntime", "-n", SANDBOXES, "default")


def runtime_is_in_the_register():
    """The controller has written down what the default runtime allows; the first run could not have been otherwise."""
    runtime = default_runtime()
    lines = get("resourcequota", "-n", SANDBOXES, "knack-sandboxes")["metadata"]["annotations"]["admitted.knack.dev/default"].split("\n")
    for line in ("uid " + runtime["metadata"]["uid"], "image " + runtime["spec"]["sandbox"]["image"], "env weather key WEATHER_KEY"):
        assert_equal(line in lines, True, "%r among %r" % (line, lines))


def edited_runtime(spec, what, allowed):
    """Edits the default runtime, and waits until the register says what it then allows."""
    kubectl("patch", "skillruntime", "-n", SANDBOXES, "default", "--type=merge", "-p", json.dumps({"spec": spec}))
    wait_until(what, 30, lambda: allowed(get("resourcequota", "-n", SANDBOXES, "knack-sandboxes")["metadata"]["annotations"].get("admitted.knack.dev/default", "")))


def register_follows_the_runtime():
    """A withdrawn grant is withdrawn from the API server's rules too."""
    granted = default_runtime()["spec"]["env"]
    edited_runtime({"env": None}, "the grant is gone", lambda text: "env " not in text and "uid " in text)
    edited_runtime({"env": granted}, "the grant is back", lambda text: "env weather key WEATHER_KEY" in text)


# Who, verb, resource (`resource:subresource`, `resource/name`), namespace ("" for all), and whether it may.
RIGHTS = [
    ("knack-hub", "create", "pods", SANDBOXES, False),
    ("knack-hub", "create", "jobs.batch", SANDBOXES, True),
    ("knack-hub", "create", "jobs.batch", "default", False),
    ("knack-hub", "create", "jobs.batch", NAMESPACE, False),
    ("knack-hub", "get", "secrets", SANDBOXES, False),
    ("knack-hub", "get", "secrets", NAMESPACE, False),
    ("knack-hub", "create", "pods:exec", SANDBOXES, False),
    ("knack-hub", "create", "pods:attach", SANDBOXES, True),
    ("knack-hub", "get", "pods:attach", SANDBOXES, True),
    ("knack-hub", "delete", "pods", SANDBOXES, True),
    ("knack-hub", "delete", "pods", "kube-system", False),
    ("knack-hub", "patch", "configmaps", SKILLS, False),
    ("knack-hub", "watch", "configmaps", SKILLS, False),
    ("knack-hub", "patch", "configmaps/knack-skill-uses", NAMESPACE, True),
    ("knack-hub", "patch", "configmaps/knack-hub-ca", NAMESPACE, False),
    ("knack-hub", "update", "jobs.batch", SANDBOXES, False),
    ("knack-hub", "delete", "leases.coordination.k8s.io", SANDBOXES, False),
    ("knack-hub", "patch", "skillruntimes.knack.dev:status", SKILLS, False),
    ("knack-controller", "patch", "configmaps", SKILLS, False),
    ("knack-controller", "patch", "configmaps/knack-hub-ca", NAMESPACE, True),
    ("knack-controller", "patch", "configmaps/knack-ca", SKILLS, True),
    ("knack-controller", "patch", "configmaps/settings", SKILLS, False),
    ("knack-controller", "patch", "configmaps/other", NAMESPACE, False),
    ("knack-controller", "watch", "configmaps/knack-skill-uses", NAMESPACE, True),
    ("knack-controller", "patch", "configmaps/knack-skill-uses", NAMESPACE, False),
    ("knack-controller", "create", "secrets", NAMESPACE, False),
    ("knack-controller", "create", "secrets/knack-hub-tls", NAMESPACE, True),
    ("knack-hub", "get", "secrets/knack-root", NAMESPACE, False),
    ("knack-controller", "get", "secrets/provider-keys", NAMESPACE, False),
    ("knack-controller", "update", "leases.coordination.k8s.io/other", NAMESPACE, False),
    ("knack-controller", "delete", "networkpolicies.networking.k8s.io", SANDBOXES, False),
    ("knack-hub", "patch", "skills.knack.dev:status", SKILLS, False),
    ("knack-hub", "patch", "skillruntimes.knack.dev:status", SANDBOXES, True),
    ("knack-hub", "create", "tokenreviews.authentication.k8s.io", "", True),
    ("knack-controller", "create", "jobs.batch", SANDBOXES, False),
    ("knack-controller", "create", "pods:attach", SANDBOXES, False),
    ("knack-controller", "get", "secrets", SKILLS, False),
    ("knack-controller", "patch", "skills.knack.dev", SKILLS, False),
    ("knack-controller", "patch", "skills.knack.dev:status", SKILLS, True),
    ("knack-controller", "create", "networkpolicies.networking.k8s.io", SANDBOXES, True),
    ("knack-controller", "create", "networkpolicies.networking.k8s.io", SKILLS, False),
    ("knack-controller", "create", "resourcequotas", SANDBOXES, True),
    ("knack-controller", "create", "resourcequotas", SKILLS, False),
    ("knack-hub", "update", "resourcequotas", SANDBOXES, False),
    ("knack-hub", "watch", "networkpolicies.networking.k8s.io", SANDBOXES, True),
    ("knack-hub", "update", "networkpolicies.networking.k8s.io", SANDBOXES, False),
    ("knack-hub", "watch", "networkpolicies.networking.k8s.io", SKILLS, False),
    ("knack-gateway", "get", "configmaps", NAMESPACE, False),
    ("knack-gateway", "get", "skills.knack.dev", SKILLS, False),
    ("knack-gateway", "use", "skillruntimes.knack.dev/default", SANDBOXES, True),
    ("knack-gateway", "use-all", "skillruntimes.knack.dev/default", SANDBOXES, True),
    ("knack-gateway", "use", "skillruntimes.knack.dev/default", SKILLS, False),
    ("group:viewers", "get", "skills.knack.dev", SKILLS, True),
    ("group:viewers", "create", "skills.knack.dev", SKILLS, False),
    ("group:viewers", "get", "skillruntimes.knack.dev", SKILLS, True),
    ("group:editors", "create", "skills.knack.dev", SKILLS, True),
    ("group:editors", "create", "skillruntimes.knack.dev", SKILLS, False),
    ("group:admins", "create", "skillruntimes.knack.dev", SKILLS, True),
    ("group:admins", "use", "skillruntimes.knack.dev", SKILLS, True),
    ("group:admins", "bind", "clusterroles.rbac.authorization.k8s.io/%s-hub-runtime" % CLUSTER_PREFIX, SKILLS, False),
    ("group:editors", "bind", "clusterroles.rbac.authorization.k8s.io/%s-hub-runtime" % CLUSTER_PREFIX, SKILLS, False),
]
GROUPS = "".join("""
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: chart-test-%(role)s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %(role)s}
subjects: [{kind: Group, name: chart-test-%(group)s, apiGroup: rbac.authorization.k8s.io}]
""" % {"role": role, "group": group} for role, group in (("view", "viewers"), ("edit", "editors"), ("admin", "admins")))


def right(who, verb, resource, namespace, allowed):
    if who.startswith("group:"):
        subject = ["--as=chart-test", "--as-group=chart-test-" + who[6:]]
    else:
        subject = ["--as=system:serviceaccount:%s:%s" % (NAMESPACE, who)]
    place = ["-n", namespace] if namespace else ["-A"]

    resource, _, part = resource.partition(":")
    place += ["--subresource=" + part] if part else []

    def said():
        return kubectl("auth", "can-i", verb, resource, *place, *subject, expect=None)[1].strip()

    if allowed:
        # The controller that adds up the roles view, edit and admin takes a moment.
        wait_until("%s may %s %s" % (who, verb, resource), 20, lambda: said() == "yes")
    else:
        assert_equal(said(), "no", "%s may %s %s in %s" % (who, verb, resource, namespace or "all"))


def upgrade():
    """The runtime that a hook made becomes an object of the release, and stays the same object."""
    before = default_runtime()["metadata"]["uid"]
    default_values("--set", "hub.replicas=2", "--set", "defaultRuntime.spec.maxActivation=Auto")
    runtime = default_runtime()
    assert_equal(runtime["metadata"]["uid"], before, "the runtime's uid")
    assert_equal(runtime["spec"]["maxActivation"], "Auto", "the changed field")
    assert_equal("SkillRuntime" in helm("get", "manifest", RELEASE, "--namespace", NAMESPACE), True, "in the release")
    assert_equal(get("deployment", "-n", NAMESPACE, "knack-hub")["status"].get("readyReplicas"), 2, "replicas of the hub")
    assert exists("poddisruptionbudget", "-n", NAMESPACE, "knack-hub")
    default_values()
    assert_equal(default_runtime()["spec"]["maxActivation"], "Listed", "a field that was taken back has its default")


def watched_namespaces_only():
    """With Roles in the Skills' namespace alone, the sandboxes' namespace is still fenced, and code runs there."""
    kubectl("delete", "-n", SANDBOXES, "networkpolicy/knack-sandbox-default", "resourcequota/knack-sandboxes")
    try:
        default_values("--set", "watchNamespaces={%s}" % SKILLS, "--set", "defaultRuntime.spec.sandbox.timeoutSeconds=90")
        code_runs_in_watched_namespaces()
    except AssertionError as error:
        raise AssertionError("%s\nhub:\n%s" % (error, hub_warnings())) from error
    finally:
        # The tests after this one need the Skills of every namespace, whatever became of this one.
        default_values()


def code_runs_in_watched_namespaces():
    roles = get("clusterrolebindings", "-l", "app.kubernetes.io/component=controller,app.kubernetes.io/instance=" + RELEASE)["items"]
    assert_equal([role["metadata"]["name"] for role in roles], [CLUSTER_PREFIX + "-controller-cluster"], "rights everywhere")
    generation = default_runtime()["metadata"]["generation"]
    wait_until("the runtime's edit is judged", 60, lambda: default_runtime()["status"].get("observedGeneration") == generation)
    kubectl("wait", "-n", SANDBOXES, "skillruntime/default", "--for=condition=Ready", "--timeout=800s")
    for kind, name in (("networkpolicy", "knack-sandbox-default"), ("resourcequota", "knack-sandboxes")):
        wait_until("%s stands again" % name, 120, lambda: exists(kind, "-n", SANDBOXES, name))
    gateway_has_the_skill(60)
    # By name: Jobs of earlier tests go meanwhile, five minutes after their end.
    jobs = lambda: {job["metadata"]["name"] for job in get("jobs", "-n", SANDBOXES, "-l", "knack.dev/skill=adder")["items"]}
    before = jobs()
    answer = chat({"model": "knack-test", "messages": [{"role": "user", "content": "please add 19 and 23"}]})
    assert_equal(answer["choices"][0]["message"]["content"], "The sum is 42.", "the answer")
    wait_until("the Job that ran the skill", 15, lambda: jobs() - before)


def hub_warnings():
    """What the hub's replicas warn of, of this rollout and, where their pods are there, of those before it."""
    logs = kubectl("logs", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=hub", "--prefix", "--tail=200", expect=None)[1]
    return "\n".join(line for line in logs.splitlines() if '"level":"INFO"' not in line or "took over" in line)


def default_values(*extra):
    """Upgrades the release to the test's values, and more."""
    helm("upgrade", RELEASE, CHART, "--namespace", NAMESPACE, "--wait", "--timeout", "%ds" % READY_SECONDS, *value_flags(*extra))


def second_release_is_refused():
    """Two controllers would overwrite each other's status: Helm refuses the second release by the name of the first."""
    other = NAMESPACE + "-second"
    code, _, err = helm("install", "second", CHART, "--namespace", other, "--create-namespace", "--set", "crds.enabled=false",
                        "--set", "defaultRuntime.namespace=" + other, "--set", "defaultRuntime.createNamespace=false", expect=None)
    try:
        for word in ("release %s of Knack" % RELEASE, "all namespaces", "watchNamespaces"):
            if code == 0 or word not in err:
                raise AssertionError("exit %d, %r is not in %s" % (code, word, err[-800:]))
    finally:
        helm("uninstall", "second", "--namespace", other, "--ignore-not-found", expect=None)
        remove_namespaces(other)


# What is in every namespace, and what Kubernetes itself writes down of what happened.
NOT_OURS = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
RECORDS = ("Event", "PodMetrics")


def objects_of(namespace):
    """Every object of a namespace, of whatever kind."""
    kinds = kubectl("api-resources", "--namespaced=true", "--verbs=list", "-o", "name").split()
    found = json.loads(kubectl("get", ",".join(sorted(kinds)), "-n", namespace, "-o", "json"))["items"]
    return {(item["kind"], item["metadata"]["name"]) for item in found if item["kind"] not in RECORDS}


def uninstall():
    """Everything goes but the definitions, the users' Skills, and what those own."""
    before = objects_of(NAMESPACE)
    for made in (("Secret", "knack-root"), ("Secret", "knack-hub-tls"), ("ConfigMap", "knack-hub-ca"), ("Lease", "knack-controller")):
        assert_equal(made in before, True, "%s before" % (made,))
    helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout", "800s")
    wait_until("the sandboxes' namespace is gone", 60, lambda: not exists("namespace", SANDBOXES))
    assert exists("crd", "skills.knack.dev"), "the definition went with the release"
    assert exists("skill", "-n", SKILLS, "adder"), "a user's Skill went with the release"
    # The Secret is the test's own. The rest goes with the ServiceAccount that owns it, collected by Kubernetes.
    left = lambda: {item for item in objects_of(NAMESPACE) if item != ("Secret", "provider-keys")} - NOT_OURS
    wait_until("nothing is left in the release's namespace: %s" % left(), 60, lambda: not left())
    for kind in kubectl("api-resources", "--namespaced=false", "--verbs=list", "-o", "name").split():
        if kind.split(".")[0] in ("componentstatuses", "nodes"):
            continue
        left_of = get(kind, "-l", "app.kubernetes.io/name=knack,app.kubernetes.io/instance=" + RELEASE)["items"]
        kept = [item["metadata"]["name"] for item in left_of if item["kind"] != "CustomResourceDefinition"]
        assert_equal(kept, [], "left of " + kind)


def base_installs():
    """`kubectl apply -k` of a kustomization on top of deploy/: every Deployment gets ready."""
    if exists("namespace", "knack-system") or exists("namespace", "knack-sandboxes"):
        raise AssertionError("knack-system or knack-sandboxes is there already; the base has fixed namespaces")
    overlay = os.path.join(ROOT, "tests", "chart", "overlay")
    try:
        kubectl("apply", "--server-side", "--force-conflicts", "-k", os.path.join(ROOT, "deploy", "crds"))
        kubectl("apply", "--server-side", "-k", overlay)
        for part in ("controller", "hub", "gateway"):
            kubectl("rollout", "status", "-n", "knack-system", "deployment/knack-" + part, "--timeout=%ds" % READY_SECONDS)
        kubectl("wait", "-n", "knack-sandboxes", "skillruntime/default", "--for=condition=Ready", "--timeout=800s")
    finally:
        kubectl("delete", "-k", overlay, "--ignore-not-found", "--wait=true", "--timeout=800s", expect=None)


def tests(report):
    if not report.check("a cluster answers", lambda: kubectl("version", "-o", "json") and None):
        return
    dry_runs.tests(report, sys.modules[__name__])
    rollback.tests(report, sys.modules[__name__])
    report.check("kubectl apply -k", base_installs)
    try:
        make_namespaces(NAMESPACE, SKILLS)
        if report.check("helm install", install):
            lifecycle(report)
    finally:
        helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found", expect=None)
        remove_namespaces(NAMESPACE, SKILLS, SANDBOXES)


def lifecycle(report):
    report.check("helm install, kubectl apply, and a request runs its code", first_request_runs_code)
    report.check("running processes have the metrics of alerts and dashboard", running_processes_have_what_is_monitored)
    sidecars.tests(report, sys.modules[__name__])
    drained.tests(report, sys.modules[__name__])
    node_drained.tests(report, sys.modules[__name__])
    closed.tests(report, sys.modules[__name__])
    rollout.tests(report, sys.modules[__name__])
    report.check("the register has the default runtime", runtime_is_in_the_register)
    report.check("the register follows the runtime", register_follows_the_runtime)
    apply(GROUPS, "-n", SKILLS)
    for entry in RIGHTS:
        report.check("%s %s %s %s in %s" % (entry[0], "may" if entry[4] else "may not", entry[1], entry[2], entry[3] or "all"),
                     lambda entry=entry: right(*entry))
    report.check("helm upgrade", upgrade)
    report.check("watchNamespaces: the sandboxes' namespace is fenced, and code runs", watched_namespaces_only)
    releases.tests(report, sys.modules[__name__])
    report.check("a gateway that knows its callers pays for them", gateway_knows_its_callers)
    tenants.tests(report, sys.modules[__name__])
    report.check("a second release is refused by name", second_release_is_refused)
    report.check("helm uninstall", uninstall)
