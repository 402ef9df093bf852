"""The profile values-multi-tenant.yaml on a cluster: each caller of the gateway is served what its own namespace sees."""

import json
import os

import yaml

from bed import apply, make_namespaces, remove_namespaces, wait_until
from harness import CHART, assert_equal, helm, kubectl

PROFILE = os.path.join(CHART, "values-multi-tenant.yaml")
SKILL = """
---
apiVersion: knack.dev/v1alpha1
kind: Skill
metadata: {name: %(name)s, namespace: %(namespace)s}
spec:
  %(shared)s
  source:
    inline:
      files:
        SKILL.md: |
          ---
          name: %(name)s
          description: A skill of %(namespace)s.
          ---
          Say hello.
"""
ACCOUNT = """
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: app, namespace: %(namespace)s}
"""
SHARED = "allowedRuntimes: {namespaces: {from: All}}"


class Tenants:
    """Two teams that were let in, and one that was not."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.first, self.second, self.outside = ("%s-%s" % (cluster.SKILLS, part) for part in ("first", "second", "outside"))
        self.all = (self.first, self.second, self.outside)

    def install(self):
        """`helm upgrade -f values-multi-tenant.yaml`, with the images and the model of the tests."""
        make_namespaces(*self.all)
        for namespace in (self.first, self.second):
            kubectl("label", "namespace", namespace, "knack.dev/skills=enabled", "--overwrite")
        flags = []
        for key, value in merged(self.cluster.values()).items():
            flags += ["--set-json", "%s=%s" % (key, json.dumps(value))]
        helm("upgrade", self.cluster.RELEASE, CHART, "--namespace", self.cluster.NAMESPACE, "--wait", "--timeout",
             "%ds" % self.cluster.READY_SECONDS, "--reset-values", "--values", PROFILE, *flags)
        self.cluster.gateway_is_rolled_out()
        text = "".join(ACCOUNT % {"namespace": namespace} for namespace in self.all)
        for namespace in self.all:
            for name in ("greeting", "secret-of-" + namespace.rsplit("-", 1)[1]):
                text += SKILL % {"name": name, "namespace": namespace, "shared": ""}
        apply(text)

    def token(self, namespace):
        return kubectl("create", "token", "app", "-n", namespace, "--audience=knack-gateway").strip()

    def told(self, namespace):
        """What the model is told of skills when a caller of a namespace asks."""
        body = {"model": "knack-test", "messages": [{"role": "user", "content": "which skills"}]}
        status, answer = self.cluster.ask_gateway("/v1/chat/completions", body, self.token(namespace), expect=(200, 401, 503))
        return answer["choices"][0]["message"]["content"] if status == 200 else ""

    def until(self, namespace, what, *names):
        """Waits until a caller of a namespace sees exactly these skills."""
        def sees():
            told = self.told(namespace)
            return sorted(line.split('name="')[1].split('"')[0] for line in told.splitlines() if 'name="' in line) == sorted(names)
        wait_until("%s: %s; last: %s" % (what, names, self.told(namespace)), 60, sees)

    def each_sees_its_own(self):
        self.until(self.first, "the first team", "greeting", "secret-of-first")
        self.until(self.second, "the second team", "greeting", "secret-of-second")

    def a_team_that_was_not_let_in_is_refused(self):
        body = {"model": "knack-test", "messages": [{"role": "user", "content": "which skills"}]}
        told = self.cluster.refusal(body, self.token(self.outside))
        if not told.startswith("401") or "may not use SkillRuntime" not in told:
            raise AssertionError("expected a refusal, got %r" % told)

    def a_foreign_skill_cannot_be_named(self):
        body = {"model": "knack-test", "messages": [{"role": "user", "content": "which skills"}]}
        status, answer = self.cluster.ask_gateway("/v1/chat/completions", body, self.token(self.first), expect=(200, 404),
                                                  headers={"x-knack-skills": "secret-of-second"})
        assert_equal((status, answer.get("error", {}).get("code")), (404, "skill_not_found"), "naming another team's skill")

    def sharing_shows_and_takes_no_name(self):
        """A Skill that is shared with everybody is shown to the other team by its full name: its own keeps the plain one."""
        apply(SKILL % {"name": "greeting", "namespace": self.second, "shared": SHARED})
        self.until(self.first, "the first team", "greeting", "secret-of-first", self.second + "/greeting")
        self.until(self.second, "the second team", "greeting", "secret-of-second")

    def a_label_lets_in_and_locks_out(self):
        kubectl("label", "namespace", self.outside, "knack.dev/skills=enabled")
        self.until(self.outside, "the team that was let in", "greeting", "secret-of-outside", self.second + "/greeting")
        kubectl("label", "namespace", self.outside, "knack.dev/skills-")
        wait_until("locked out again", 60, lambda: not self.told(self.outside))

    def remove(self):
        remove_namespaces(*self.all)


def merged(values):
    """The tests' values under which the profile's own keys stay: `--set-json` replaces a whole key."""
    with open(PROFILE, encoding="utf-8") as file:
        profile = yaml.safe_load(file)
    values = json.loads(json.dumps(values))
    for key, part in profile.items():
        overlay(values.setdefault(key, {}), part)
    return values


def overlay(values, part):
    for key, value in part.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            overlay(values[key], value)
        else:
            values[key] = value


def tests(report, cluster):
    tenants = Tenants(cluster)
    try:
        if report.check("helm upgrade with values-multi-tenant.yaml", tenants.install):
            for name, test in (
                    ("each team sees its own skills", tenants.each_sees_its_own),
                    ("a team that was not let in is refused", tenants.a_team_that_was_not_let_in_is_refused),
                    ("another team's skill cannot be named", tenants.a_foreign_skill_cannot_be_named),
                    ("a shared skill is shown, and takes no name away", tenants.sharing_shows_and_takes_no_name),
                    ("a label lets a team in and locks it out", tenants.a_label_lets_in_and_locks_out)):
                report.check("tenants: " + name, test)
    finally:
        tenants.remove()
