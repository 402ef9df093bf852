"""An application with the sidecar in the closed namespace of examples/cluster/sidecar, by real packets.

The provider is outside of the cluster, in the range that the example names; beside it is what nothing is to reach.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile

import yaml

from bed import apply, exists, get, make_namespaces, remove_namespaces, wait_until
from enforced import Enforced
from harness import BED, ENVIRONMENT, ROOT, assert_equal, kubectl
from injection import program
from render import documents
from sidecars import APP, pod

NAMESPACE = "chart-closed"
OUTSIDE = "/run/netns/%s-outside" % os.environ.get("KNACK_BED", "knack-bed")
ADDRESSES = PROVIDER, STRANGER, METADATA = "203.0.113.7", "198.51.100.7", "169.254.169.254"
# The model says which skills it was shown.
SCRIPT = {"models": ["knack-test"], "turns": [{"rounds": [{"pick": {"skills": {"from": "system", "regex": "(?s)(<skill .*</skill>)"}}, "reply": {"text": "{{skills}}"}}]}]}
MOCK_READY = "answers on"
# As long as nothing may be on its way; and as long as an answer may take on a busy machine.
PROBE_SECONDS, REACHED_SECONDS = 3, 60

# Beside the provider: ports that are open, and name servers that answer whatever they are asked.
LISTENERS = """
import socket, sys, threading

def accept(server):
    while True:
        server.accept()[0].close()

def answer(address):
    # One for each address: else the answer would come from another one than was asked.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind((address, 53))
        while True:
            udp.sendto(*udp.recvfrom(512))

threads = [threading.Thread(target=accept, args=(socket.create_server(("0.0.0.0", port)),)) for port in (80, 8443)]
threads += [threading.Thread(target=answer, args=(address,)) for address in sys.argv[1:]]
for thread in threads:
    thread.start()
print("listening", flush=True)
"""

# Prints, for each place, whether it was reached.
PROBE = """
import concurrent.futures, json, socket, sys
def reached(place):
    kind, address, port, seconds = place
    try:
        if kind == "name":
            return bool(socket.getaddrinfo(address, port))
        if kind == "udp":
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
                # Asked again each second: a datagram may be lost on the way.
                asking.settimeout(1)
                for _ in range(seconds):
                    asking.sendto(b"?", (address, port))
                    try:
                        return bool(asking.recv(512))
                    except TimeoutError:
                        continue
                return False
        socket.create_connection((address, port), timeout=seconds).close()
        return True
    except OSError:
        return False
places = json.loads(sys.argv[1])
with concurrent.futures.ThreadPoolExecutor(len(places)) as pool:
    print(json.dumps(dict(zip(places, pool.map(reached, places.values())))))
"""


def policy(cluster):
    """That of the example, for this namespace and this release."""
    made = documents(kubectl("kustomize", os.path.join(ROOT, "examples", "cluster", "sidecar")))
    found = next(document for document in made if document["kind"] == "NetworkPolicy")
    assert_equal(found["spec"]["egress"][2]["to"], [{"ipBlock": {"cidr": "203.0.113.0/24"}}], "the provider of the example")
    found["metadata"]["namespace"] = NAMESPACE
    found["spec"]["egress"][1]["to"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] = cluster.NAMESPACE
    return found


def places(cluster):
    """Name: (kind, address, port), those that the policy names first."""
    service = lambda namespace, name: get("service", "-n", namespace, name)["spec"]["clusterIP"]
    address = lambda namespace, label: get("pods", "-n", namespace, "-l", label)["items"][0]["status"]["podIP"]
    hub = address(cluster.NAMESPACE, "app.kubernetes.io/component=hub")
    node = get("nodes")["items"][0]["status"]["addresses"][0]["address"]
    named = {
        "a name": ("name", "mock.%s.svc.cluster.local" % cluster.SKILLS, 8080),
        "the hub": ("tcp", "knack-hub.%s.svc" % cluster.NAMESPACE, 8443), "a pod of the hub": ("tcp", hub, 8443),
        "the provider": ("tcp", PROVIDER, 443),
    }
    others = {
        "the hub's metrics": ("tcp", hub, 9090), "the controller's metrics": ("tcp", address(cluster.NAMESPACE, "app.kubernetes.io/component=controller"), 9090),
        "the gateway that callers share": ("tcp", service(cluster.NAMESPACE, "knack-gateway"), get("service", "-n", cluster.NAMESPACE, "knack-gateway")["spec"]["ports"][0]["port"]),
        "a Service of another namespace": ("tcp", service(cluster.SKILLS, "mock"), 8080), "a pod of another namespace": ("tcp", address(cluster.SKILLS, "app=mock"), 8080),
        "the API server's Service": ("tcp", service("default", "kubernetes"), 443), "kubelet": ("tcp", node, 10250),
        "another port of the provider": ("tcp", PROVIDER, 80), "the hub's port at the provider": ("tcp", PROVIDER, 8443),
        "a name server outside": ("udp", STRANGER, 53), "a name server at the provider": ("udp", PROVIDER, 53),
        "port 443 of another address": ("tcp", STRANGER, 443), "a cloud's metadata": ("tcp", METADATA, 80),
    }
    return named, others


def reached(name, asked, unreachable=()):
    """What of `asked` a pod reaches, by its names. Those that it should reach have time."""
    asked = {place: (*where, PROBE_SECONDS if place in unreachable else REACHED_SECONDS) for place, where in asked.items()}
    told = json.loads(kubectl("exec", "-n", NAMESPACE, name, "-c", "app", "--", "/usr/bin/python3", "-c", PROBE, json.dumps(asked)))
    return [place for place, is_reached in told.items() if is_reached]


@contextlib.contextmanager
def outside():
    """The rest of the world: its addresses, the provider, and what else listens there."""
    running = []

    def start(ready, *command):
        process = subprocess.Popen(["nsenter", "--net=" + OUTSIDE, "--", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)
        running.append(process)
        said = process.stdout.readline()
        if ready not in said:
            process.kill()
            raise AssertionError("%s: %s" % (command[0], said + process.stdout.read()))

    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as script:
        yaml.safe_dump(SCRIPT, script)
        script.flush()
        try:
            for address in ADDRESSES:
                inside("ip", "addr", "replace", address + "/32", "dev", "lo")
            start("listening", sys.executable, "-c", LISTENERS, *ADDRESSES)
            start(MOCK_READY, program(), "mock", "--listen=0.0.0.0:443", "--script=" + script.name)
            yield
        finally:
            for process in running:
                process.kill()
                process.wait()
                process.stdout.close()
            for address in ADDRESSES:
                inside("ip", "addr", "del", address + "/32", "dev", "lo")


def inside(*command):
    subprocess.run(["nsenter", "--net=" + OUTSIDE, "--", *command], check=True, capture_output=True)


def application(cluster, name, label):
    """Asks the provider until an answer has a skill, and stays."""
    one = pod(cluster)
    one["metadata"].update(name=name, namespace=NAMESPACE, labels={"knack.dev/inject": label})
    one["spec"]["terminationGracePeriodSeconds"] = 1
    container = one["spec"]["containers"][0]
    container["env"][0]["value"] = "http://%s:443/v1" % PROVIDER
    container["command"][-1] = (APP if label == "enabled" else "import time\n") + "time.sleep(3600)\n"
    return json.dumps(one)


def reaches_what_it_needs(cluster):
    """The injected pod: its answers carry skills, and it reaches nothing that the policy does not name. A pod without the sidecar reaches all."""
    make_namespaces(NAMESPACE)
    try:
        kubectl("label", "namespace", NAMESPACE, "knack.dev/inject=enabled")
        wait_until("knack-ca", 60, lambda: exists("configmap", "-n", NAMESPACE, "knack-ca"))
        closed = policy(cluster)
        apply(json.dumps(closed))
        apply(cluster.SKILL, "-n", NAMESPACE)
        kubectl("wait", "-n", NAMESPACE, "skill/adder", "--for=condition=Ready", "--timeout=800s")
        named, others = places(cluster)
        with outside(), Enforced(closed) as enforced:
            for name, label, is_selected in (("closed", "enabled", True), ("open", "disabled", False)):
                apply(application(cluster, name, label))
                wait_until("an address of " + name, 60, lambda name=name: get("pod", "-n", NAMESPACE, name)["status"].get("podIP"))
                assert_equal(enforced.decide(name), is_selected, "whether the policy selects " + name)
            logs = lambda container: kubectl("logs", "-n", NAMESPACE, "closed", "-c", container, "--tail=20", expect=None)[1]
            wait_until("an answer with a skill", 60, lambda: "<skill name=" in logs("app"), lambda: logs("app") + logs("knack-gateway"))
            kubectl("wait", "-n", NAMESPACE, "pod/open", "--for=condition=Ready", "--timeout=800s")
            # Else a place that is not reached would say nothing.
            assert_equal(reached("open", {**named, **others}), [*named, *others], "what a pod reaches that the policy does not select")
            assert_equal(reached("closed", {**named, **others}, others), [*named], "what the application with the sidecar reaches")
        return "%d places reached, %d not" % (len(named), len(others))
    finally:
        remove_namespaces(NAMESPACE)


def tests(report, cluster):
    name = "in a closed namespace the sidecar reaches names, the hub and the provider, by real packets"
    if subprocess.run([BED, "status"], capture_output=True).returncode == 0:
        report.check(name, lambda: reaches_what_it_needs(cluster))
    else:
        report.skip(name, "this cluster is not the test bed")
