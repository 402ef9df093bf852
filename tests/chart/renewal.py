"""The certificate of the webhook and the root that signs it are renewed while pods are created: no call fails meanwhile.

What an installation does in hours takes seconds here: the times in the Secret's state.json are moved into the past, and the
controller, started anew, looks every five seconds, since the hub's Secret, which it keeps too, takes no change.
"""

import base64
import json
import re
import socket
import ssl
import threading
import time

from bed import wait_until
from harness import assert_equal
from injection import path_of, rows

CREATORS = 3
# How often the controller looks. An authority is served by at the earliest one look after it was published.
LOOK_SECONDS = 5
# Of an idle machine, for one step: a look every 5 s, and what follows from it.
STEP_SECONDS = 20
# The webhook's certificate has 90 days and is renewed 30 days before its end; authorities overlap for an hour.
RENEWED_EARLIER_SECONDS = 70 * 24 * 3600
OVERLAP_SECONDS = 3700
PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)


class Renewal:
    """One table's webhook, its Secret, and what the API server trusts."""

    def __init__(self, asked):
        self.asked = asked
        self.secrets = "/api/v1/namespaces/%s/secrets/" % asked.own
        self.over = threading.Event()
        self.taken, self.connections, self.wrong = [0] * CREATORS, 0, []

    def change(self, secret, change):
        status, text = self.asked.server.ask("PATCH", self.secrets + secret, change, content="application/merge-patch+json")
        assert_equal((status, text if status != 200 else ""), (200, ""), secret)

    def hold(self):
        """The hub's Secret has no certificate any more and takes none. Before the controller starts: else its next look is a minute away."""
        self.change("knack-hub-tls", {"data": {"state.json": base64.b64encode(b"{}").decode()}, "immutable": True})

    def state(self):
        return json.loads(base64.b64decode(self.asked.server.get(self.secrets + "knack-webhook-tls")["data"]["state.json"]))

    def earlier(self, part, key, seconds):
        """Moves a time of the state into the past."""
        state = self.state()
        state[part][key] -= seconds
        self.change("knack-webhook-tls", {"data": {"state.json": base64.b64encode(json.dumps(state).encode()).decode()}})

    def until(self, what, condition):
        def holds():
            assert_equal(self.wrong[:3], [], "before: " + what)
            return condition(self.state())
        return wait_until(what, STEP_SECONDS, holds)

    def trusted(self):
        """The authorities that the API server trusts, as PEM: those of every entry."""
        entries = self.asked.server.get(path_of(self.asked.configuration))["webhooks"]
        bundles = {entry["clientConfig"].get("caBundle") for entry in entries}
        assert_equal(len(bundles), 1, "different bundles of the entries")
        return base64.b64decode(bundles.pop()).decode()

    def shown(self, context):
        """The certificate that a new connection is shown."""
        with socket.create_connection(("127.0.0.1", self.asked.port), timeout=120) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as tls:
                return ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True)).strip()

    def serves(self, certificate):
        return self.shown(ssl._create_unverified_context()) == PEM.search(certificate).group().strip()

    def create(self, number):
        """Creates labelled pods, one after the other, and notes each that fails or has no sidecar."""
        pod = next(rows())[1]
        while not self.over.is_set():
            try:
                status, text = self.asked.create(pod, self.asked.plain)
            except OSError as error:
                status, text = 0, str(error)
            containers = json.loads(text)["spec"].get("initContainers") if status == 201 else None
            if not containers or containers[0]["name"] != "knack-gateway":
                self.wrong.append("a pod without its sidecar" if status == 201 else "a pod: %d %s" % (status, text[:500]))
            self.taken[number] += 1

    def connect(self):
        """What an API server does that starts now: it connects anew, with the authorities of now."""
        while not self.over.is_set():
            begun = time.monotonic()
            try:
                self.shown(ssl.create_default_context(cadata=self.trusted()))
            except OSError as error:
                # Where this thread stood still for longer, it may have read what was trusted before.
                is_stale = isinstance(error, ssl.SSLCertVerificationError) and time.monotonic() - begun >= LOOK_SECONDS
                if not is_stale:
                    self.wrong.append("a new connection: %s" % error)
            self.connections += 1

    def steps(self):
        """A certificate of the same root, then a root: the three steps of each, as far apart as pods need to be created."""
        first, first_root = self.state()["active"], self.trusted()
        self.earlier("active", "not_after", RENEWED_EARLIER_SECONDS)
        second = self.until("the next certificate", lambda state: state["next"])["pair"]
        assert_equal((second["certificate"] != first["certificate"], second["authority"]), (True, first["authority"]), "a certificate of the same root")
        # The root goes in the same look as this certificate begins to serve.
        assert_equal(self.asked.server.ask("DELETE", self.secrets + "knack-root")[0], 200, "the deletion of the root")
        self.earlier("next", "published_at", OVERLAP_SECONDS)
        third = self.until("a certificate of another root", lambda state: state["next"] and state["next"]["pair"]["authority"] != first["authority"] and state["next"])["pair"]
        self.until("the second certificate serves", lambda _: self.serves(second["certificate"]))
        assert_equal(len(PEM.findall(self.trusted())), 2, "authorities before the other root signs")
        self.earlier("next", "published_at", OVERLAP_SECONDS)
        self.until("the third certificate serves", lambda _: self.serves(third["certificate"]))
        assert_equal(len(PEM.findall(self.trusted())), 2, "authorities after the other root signs")
        self.earlier("previous", "replaced_at", OVERLAP_SECONDS)
        self.until("the last root is dropped", lambda _: len(PEM.findall(self.trusted())) == 1)
        assert_equal((self.trusted() != first_root, self.trusted().strip()), (True, third["authority"].strip()), "the authority in the end")
        before = list(self.taken)
        self.until("pods after all of it", lambda _: all(now > then + 5 for now, then in zip(self.taken, before)))

    def run(self):
        failed_before = self.asked.failures()
        working = [threading.Thread(target=self.create, args=(number,)) for number in range(CREATORS)] + [threading.Thread(target=self.connect)]
        begun = time.monotonic()
        for thread in working:
            thread.start()
        try:
            self.steps()
        finally:
            self.over.set()
            for thread in working:
                thread.join()
            self.asked.server.ask("DELETE", self.secrets + "knack-hub-tls")
        assert_equal(self.wrong[:3], [], "of %d pods and %d connections" % (sum(self.taken), self.connections))
        assert_equal(self.asked.failures() - failed_before, 0.0, "calls that failed, as the API server counts them")
        return "%d pods, %d new connections in %.0f s" % (sum(self.taken), self.connections, time.monotonic() - begun)
