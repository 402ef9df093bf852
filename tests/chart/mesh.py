"""A webhook as a service mesh has it, beside the injection: it puts containers of its own before all others of a pod.

It is called before or after ours, by its name, and again after changes of others.
"""

import base64
import http.server
import json
import os
import ssl
import subprocess
import tempfile
import threading

LABEL = "mesh.example/inject"
PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/"
# Longer than a busy machine takes for one answer: the most that Kubernetes allows.
TIMEOUT_SECONDS = 30
INIT = {"name": "mesh-init", "image": "mesh"}
PROXY = {"name": "mesh-proxy", "image": "mesh", "restartPolicy": "Always", "ports": [{"containerPort": 15001, "protocol": "TCP"}]}


def patch(pod):
    """What the mesh adds to a pod that it has not changed yet."""
    spec = pod["spec"]
    if any(one["name"] == INIT["name"] for one in spec.get("initContainers", ())):
        return []
    return [{"op": "add", "path": "/spec/initContainers", "value": [INIT, PROXY, *spec.get("initContainers", ())]}]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers reviews of pods."""

    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch",
                  "patch": base64.b64encode(json.dumps(patch(review["request"]["object"])).encode()).decode()}
        body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Mesh:
    """The webhook, called by an API server for pods with its label, under a name."""

    def __init__(self, server, name):
        self.server, self.name = server, name
        self.home = tempfile.TemporaryDirectory(prefix="knack-mesh-")

    def __enter__(self):
        key, certificate = (os.path.join(self.home.name, name) for name in ("key.pem", "cert.pem"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", "/CN=mesh",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.listener.socket = context.wrap_socket(self.listener.socket, server_side=True)
        threading.Thread(target=self.listener.serve_forever, daemon=True).start()
        with open(certificate, "rb") as file:
            bundle = base64.b64encode(file.read()).decode()
        self.server.apply({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": self.name, "labels": {"knack-test": "chart"}},
            "webhooks": [{
                "name": "mesh.example.org", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded",
                "timeoutSeconds": TIMEOUT_SECONDS, "objectSelector": {"matchLabels": {LABEL: "true"}},
                "clientConfig": {"url": "https://127.0.0.1:%d/" % self.listener.server_port, "caBundle": bundle},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            }],
        }, PATH + self.name)
        return self

    def __exit__(self, *_):
        self.server.ask("DELETE", PATH + self.name)
        self.listener.shutdown()
        self.listener.server_close()
        self.home.cleanup()
