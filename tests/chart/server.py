"""An API server, asked over HTTP as whoever a test says: hundreds of requests without a process for each."""

import http.client
import json
import re
import subprocess
import time
import urllib.parse

from harness import ENVIRONMENT, binary

# Of a busy machine, with the longest that a webhook may take in it (mesh.py).
ANSWER_SECONDS = 120

# An API server that is busy, or that reads a new kind's storage, says 429 for a second or two; client-go asks again too.
BUSY_TRIES = 60


class Server:
    """`kubectl proxy` in front of the API server of a kubeconfig (that of KUBECONFIG when None)."""

    def __init__(self, kubeconfig=None):
        chosen = ["--kubeconfig", kubeconfig] if kubeconfig else []
        # The proxy refuses paths of attach and exec by default; here they are what is asked about.
        self.proxy = subprocess.Popen([binary("KUBECTL", "kubectl"), *chosen, "proxy", "--port=0", "--reject-paths=^$"],
                                      stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        # What the last answer warned of.
        self.warning = ""
        self.port = int(re.search(r":(\d+)$", self.proxy.stdout.readline().strip()).group(1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.proxy.terminate()
        self.proxy.wait()
        self.proxy.stdout.close()

    def ask(self, method, path, body=None, user=None, content="application/json", **query):
        """Status and text of the answer to one request; one that comes too early is asked again."""
        for _ in range(BUSY_TRIES):
            status, text = self.ask_once(method, path, body, user, content, query)
            if status != 429:
                break
            time.sleep(1)
        return status, text

    def ask_once(self, method, path, body, user, content, query):
        """Status and text of the answer to one request."""
        headers = {"content-type": content}
        if user:
            headers["impersonate-user"] = user
            for group in groups_of(user):
                headers["impersonate-group"] = group
        if query:
            path += "?" + urllib.parse.urlencode(query)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            self.warning = answer.getheader("Warning") or ""
            return answer.status, answer.read().decode()
        except http.client.HTTPException as error:
            # An API server that ends in the middle of an answer, as a connection that it closes before.
            raise ConnectionError(repr(error)) from error
        finally:
            connection.close()

    def ready(self):
        """Whether it answers and is ready."""
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def get(self, path, **query):
        """An object; None if there is none."""
        status, text = self.ask("GET", path, **query)
        if status == 404:
            return None
        if status != 200:
            raise AssertionError("GET %s: %d %s" % (path, status, text[:1000]))
        return json.loads(text)

    def apply(self, obj, path):
        """Server-side apply of an object, which must be taken."""
        status, text = self.ask("PATCH", path, obj, content="application/apply-patch+yaml", fieldManager="chart-test", force="true")
        if status not in (200, 201):
            raise AssertionError("apply %s: %d %s" % (path, status, text[:1000]))
        return json.loads(text)


def groups_of(user):
    """The groups of a ServiceAccount that matter: rights of the tests' accounts come by name."""
    return ["system:authenticated"] if user.startswith("system:serviceaccount:") else []


def message(text):
    """What an answer of the API server says went wrong, the words of every policy that refused."""
    try:
        status = json.loads(text)
    except ValueError:
        return text
    causes = (status.get("details") or {}).get("causes") or []
    return "; ".join([status.get("message", text)] + [cause.get("message", "") for cause in causes[1:]])
