"""The injection by the controller's webhook, on an API server that knows no other: the rows of injection.py, and what only a
webhook has: a certificate, a process that ends, and bodies that are no reviews.

The controller is a process beside the API server, which calls it by its address; nothing else differs from the chart's.
"""

import base64
import functools
import http.client
import json
import os
import random
import re
import secrets
import socket
import ssl
import subprocess
import tempfile

from admission import define
from bed import wait_until
from harness import CHART, ENVIRONMENT, assert_equal, helm
from injection import SECONDS_UNTIL_ACTIVE, Table, labelled, path_of, program, rows
from oldest import on_the_oldest
from render import documents, render
from renewal import Renewal
from server import Server

# Until the Secret, its key and caBundle are there again; the controller looks every minute.
SECONDS_UNTIL_RENEWED = 120
END_SECONDS = 180
# Of the chart's two seconds for one call a busy machine takes more: then a pod starts without its sidecar, as it should.
CALL_SECONDS = 30


# Below the ports that Linux gives to outgoing connections: a process that starts again gets its port again.
PORTS = range(21_000, 29_000)


def free_ports(count):
    """Different ports of loopback that nothing listens on."""
    found = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free port in %r" % PORTS)


class WebhookTable(Table):
    DELIVERY = "Webhook"
    CALLS = "MutatingWebhookConfiguration"

    def __init__(self, server, kubeconfig):
        self.kubeconfig, self.process = kubeconfig, None
        self.port, self.metrics_port = free_ports(2)
        super().__init__(server)
        self.home = tempfile.TemporaryDirectory(prefix="knack-webhook-")
        self.configuration = next(document for document in self.made if document["kind"] == self.CALLS)

    def ours(self, rendered):
        """By the controller's address: no Service leads out of this API server's cluster. And with time for a busy machine."""
        made = super().ours(rendered)
        for document in made:
            for entry in document.get("webhooks", ()):
                entry.update(clientConfig={"url": "https://127.0.0.1:%d/inject" % self.port}, timeoutSeconds=CALL_SECONDS)
        return made

    def start(self):
        """The controller, as the chart starts it."""
        file = os.path.join(self.home.name, "parameters.yaml")
        with open(file, "w", encoding="utf-8") as out:
            out.write(self.parameters)
        log = open(os.path.join(self.home.name, "log"), "ab")
        self.process = subprocess.Popen(
            [program(), "controller", "--namespace", self.own, "--watch-namespace", self.own, "--metrics-listen", "127.0.0.1:%d" % self.metrics_port, "--injection-runtime", self.own + "/none",
             "--webhook-listen", "127.0.0.1:%d" % self.port, "--webhook-name", "127.0.0.1", "--webhook-configuration", self.configuration["metadata"]["name"],
             "--injection-parameters", file], stdout=log, stderr=log, env=dict(ENVIRONMENT, KUBECONFIG=self.kubeconfig))
        log.close()

    def stop(self):
        self.process.terminate()
        assert_equal(self.process.wait(END_SECONDS), 0, "the end of the controller")
        self.process = None

    def prepare(self):
        self.server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.own}}, "/api/v1/namespaces/" + self.own)
        # No controllers run beside this API server, so nobody else makes them.
        for name in ("kube-system", "kube-public", "kube-node-lease"):
            self.server.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}, "/api/v1/namespaces/%s/serviceaccounts/default" % name)
        self.start()
        super().prepare()
        self.failed_before = self.failures()

    def row(self, title, pod):
        # A field that this API server has not is seen by webhooks, and taken away afterwards.
        dropped = sorted(set(pod["spec"]) - set(self.before[title]["spec"]))
        if dropped:
            assert_equal(self.taken(pod, self.plain)["spec"]["initContainers"][0]["name"], "knack-gateway", "the sidecar")
            return "without " + ", ".join(dropped)
        return super().row(title, pod)

    def failures(self, name=".injection.knack.dev"):
        """Calls of the webhook that failed, as the API server counts them: of an entry, or of both."""
        status, text = self.server.ask("GET", "/metrics")
        assert_equal(status, 200, "metrics of the API server")
        lines = [line for line in text.splitlines() if line.startswith("apiserver_admission_webhook_fail_open_count{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if name + '"' in line)

    def no_error(self):
        """Every call was answered."""
        assert_equal(self.failures() - self.failed_before, 0.0, "calls that failed")
        counted = self.counts()
        assert_equal({outcome: count for outcome, count in counted.items() if outcome in ("invalid", "busy")}, {}, "answers that were no reviews")
        return "%d reviews" % sum(counted.values())

    def metrics(self):
        """The lines of the controller's /metrics."""
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=120)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        return lines

    def alerted(self):
        """Every metric of the controller that an alert asks for is there, with every label that it asks by."""
        made = documents(render({"crds": {"enabled": False}, "monitoring": {"prometheusRule": {"enabled": True}}}))
        rules = [rule["expr"] for document in made if document["kind"] == "PrometheusRule" for group in document["spec"]["groups"] for rule in group["rules"]]
        asked = sorted({found for expr in rules for found in re.findall(r"(knack_controller_[a-z_]+)\{([^}]*)\}", expr)})
        assert len(asked) >= 6, asked

        def missing():
            lines = self.metrics()
            return [name for name, labels in asked if not any(
                line.startswith((name + "{", name + " ")) and all(label in line for label in re.findall(r'[a-z]+="[^"]*"', labels) if not label.startswith("namespace="))
                for line in lines)]
        wait_until("metrics of alerts", SECONDS_UNTIL_ACTIVE, lambda: not missing())
        return ", ".join(name for name, _ in asked)

    def counts(self):
        lines = self.metrics()
        name = 'knack_controller_webhook_reviews_total{outcome="'
        return {line[len(name):].split('"')[0]: int(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name)}

    def post(self, body, path="/inject", headers=()):
        """Status and text of a call that is not the API server's."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=120, context=ssl._create_unverified_context())
        try:
            connection.request("POST", path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def bad_bodies(self):
        """Answered with a reason, and the next pod has its sidecar all the same."""
        for what, body, status, word in (
                ("garbage", b"\xff\x00garbage", 400, "not an AdmissionReview"), ("nothing", b"", 400, "not an AdmissionReview"),
                ("another kind", json.dumps({"apiVersion": "v1", "kind": "Pod"}).encode(), 400, "Pod of v1"),
                ("deep", b"[" * 200_000, 400, "not an AdmissionReview"), ("large", b" " * (5 << 20), 413, "4 MiB"),
                ("many values", b'{"a":[' + b"0," * 40_000 + b"0]}", 413, "32768 values")):
            got, text = self.post(body)
            assert_equal((got, word in text), (status, True), "%s: %s" % (what, text))
        assert_equal(self.post(b"{}", path="/elsewhere")[0], 404, "another path")
        # A body that never comes: the connection is let go, and calls go on meanwhile.
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as plain:
            with ssl._create_unverified_context().wrap_socket(plain) as silent:
                silent.sendall(b"POST /inject HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{")
                self.is_injected()
                assert_equal(silent.recv(4096).split(b"\r\n")[0], b"HTTP/1.1 408 Request Timeout", "a body that never comes")
        self.is_injected()

    def is_injected(self):
        assert_equal(self.taken(next(rows())[1], self.plain)["spec"]["initContainers"][0]["name"], "knack-gateway", "the sidecar")

    def injects(self):
        return self.taken(next(rows())[1], self.plain)["spec"].get("initContainers")

    def renewed(self):
        """The Secret is lost, and what the API server trusts: both come back, and a controller that starts again keeps them."""
        secret = "/api/v1/namespaces/%s/secrets/knack-webhook-tls" % self.own
        before = self.server.get(secret)["data"]["tls.crt"]
        assert_equal(self.server.ask("DELETE", secret)[0], 200, "the deletion")
        self.server.ask("PATCH", path_of(self.configuration), [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}], content="application/json-patch+json")
        after = wait_until("another certificate", SECONDS_UNTIL_RENEWED, lambda: (lambda one: one and one["data"]["tls.crt"] != before and one["data"]["tls.crt"])(self.server.get(secret)))
        wait_until("caBundle", SECONDS_UNTIL_RENEWED, lambda: "caBundle" in self.server.get(path_of(self.configuration))["webhooks"][0]["clientConfig"])
        wait_until("the sidecar with another certificate", SECONDS_UNTIL_ACTIVE, self.injects)
        # Whoever applies the chart again, as Helm and Argo CD do, takes nothing away.
        self.put(self.configuration)
        self.is_injected()
        bundle = base64.b64decode(self.server.get(path_of(self.configuration))["webhooks"][0]["clientConfig"]["caBundle"]).decode()
        assert_equal(bundle.count("BEGIN CERTIFICATE"), 1, "authorities")
        return "%d bytes of PEM" % len(after)

    def away(self):
        """Without the controller a pod starts without its sidecar, soon; with it again the next one has it."""
        self.stop()
        pod = next(rows())[1]
        entry = 'name="pods.injection.knack.dev'
        before = self.failures(entry)
        assert_equal(self.taken(pod, self.plain)["spec"].get("initContainers"), None, "a pod without the controller")
        # What the alert asks for.
        assert_equal(self.failures(entry) > before, True, "failures that the API server counts as %s" % entry)
        assert_equal(self.taken(labelled(pod, None), self.plain)["spec"].get("initContainers"), None, "a pod that does not ask")
        self.start()
        wait_until("the sidecar with the controller again", SECONDS_UNTIL_ACTIVE, self.injects)

    def remove(self):
        super().remove()
        if self.process:
            self.process.terminate()
            self.process.wait(END_SECONDS)
        self.home.cleanup()


def table(report, server, kubeconfig):
    version = server.get("/version")["gitVersion"]
    asked = WebhookTable(server, kubeconfig)

    def check(name, test):
        return report.check("injection by webhook, %s: %s" % (version, name), test)
    try:
        if not check("the webhook is called", asked.prepare):
            with open(os.path.join(asked.home.name, "log"), encoding="utf-8") as log:
                print(log.read()[-3000:])
            return
        for title, pod in rows():
            check(title, lambda title=title, pod=pod: asked.row(title, pod))
        check("pods that did not ask are what they were", asked.untouched)
        check("the restricted standard", asked.restricted)
        check("a LimitRange", lambda: asked.bounded() and None)
        check("a pod that is there stays as it is", asked.later)
        check("beside the webhook of a mesh", asked.beside_a_mesh)
        check("every call was answered", asked.no_error)
        check("metrics of alerts are there", asked.alerted)
        check("bodies that are no reviews", asked.bad_bodies)
        check("a lost certificate", asked.renewed)
        renewal = Renewal(asked)
        renewal.hold()
        check("a controller that is away", asked.away)
        check("a certificate and a root that are renewed while pods are created", renewal.run)
        check("a pod without its sidecar is told of", asked.warned)
        check("a pod without its sidecar is refused", asked.refused)
    finally:
        asked.remove()


def switched():
    """`helm upgrade` from one delivery to the other: at no time there is none, and in the end there is one."""
    release = "knack-switch-" + secrets.token_hex(3)
    path = "/apis/admissionregistration.k8s.io/v1/%s/" + release + "-injection"
    values = {"crds": {"enabled": False}, "defaultRuntime": {"enabled": False}, "gateway": {"enabled": False}, "watchNamespaces": [release]}

    def upgrade(delivery):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({**values, "injection": {"delivery": delivery, "runtime": release + "/none"}}, file)
            file.flush()
            return helm("upgrade", "--install", release, CHART, "--namespace", release, "--create-namespace", "--values", file.name)

    with Server() as server:
        def made():
            return [name for name, kind in (("Policy", "mutatingadmissionpolicies"), ("Webhook", "mutatingwebhookconfigurations")) if server.get(path % kind)]
        try:
            for delivery, expected in (("Webhook", ["Webhook"]), ("Policy", ["Policy", "Webhook"]), ("Policy", ["Policy"]),
                                       # The webhook is not called yet: nobody has written its caBundle.
                                       ("Webhook", ["Policy", "Webhook"]), ("Webhook", ["Policy", "Webhook"])):
                notes = upgrade(delivery)
                assert_equal(made(), expected, "after an upgrade to " + delivery)
                assert_equal("until the next helm upgrade" in notes, len(expected) == 2, "what the notes say: " + notes)
            pem = server.get("/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt")["data"]["ca.crt"]
            bundle = base64.b64encode(pem.encode()).decode()
            entries = range(len(server.get(path % "mutatingwebhookconfigurations")["webhooks"]))
            patch = [{"op": "add", "path": "/webhooks/%d/clientConfig/caBundle" % number, "value": bundle} for number in entries]
            status, text = server.ask("PATCH", path % "mutatingwebhookconfigurations", patch, content="application/json-patch+json")
            assert_equal((status, text if status != 200 else ""), (200, ""), "caBundle")
            upgrade("Webhook")
            assert_equal(made(), ["Webhook"], "after the webhook is called")
            kept = server.get(path % "mutatingwebhookconfigurations")["webhooks"]
            assert_equal([one["clientConfig"].get("caBundle") for one in kept], [bundle] * len(kept), "caBundle after an upgrade")
        finally:
            helm("uninstall", release, "--namespace", release, "--ignore-not-found")
            server.ask("DELETE", "/api/v1/namespaces/" + release)


def tests(report):
    report.check("injection: from one delivery to the other", switched)
    on_the_oldest(report, "injection by webhook", functools.partial(on_another, report))


def on_another(report, server, kubeconfig):
    """The rows at an API server that knows nothing of us yet."""
    define(server)
    table(report, server, kubeconfig)
