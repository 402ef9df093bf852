"""`spec.packages.allowed` of a SkillRuntime: a skill with other packages is refused by name and nothing is built for it, a model is told that
there is no such skill, and the skill runs after the edit that allows its packages."""

import json
import urllib.error
import urllib.request

import builder
from bed import apply, get, wait_until
from harness import assert_equal, kubectl, run
from installed import NAMESPACE, SANDBOXES, SKILLS, STATE, environments, run_words, runtime, until, verdict
from parts import node_lock
from skill_run import run_command

SKILL = """
apiVersion: knack.dev/v1alpha1
kind: Skill
metadata: {name: %(name)s, namespace: %(namespace)s}
spec:
  source:
    inline:
      files: %(files)s
"""
SKILL_TEXT = "---\nname: %s\ndescription: Says whether it has a package.\n---\nRun scripts/say.py.\n"
SAY = """
try:
    import unused
    print("has", unused.__name__)
except ImportError as error:
    print("lacks", error.name)
"""
# A model that runs the script of the skill that its user names, and says what it got.
SCRIPT = """
models: [knack-test]
turns:
  - rounds:
      - pick: {skill: {from: user, regex: 'run ([-a-z]+)'}}
        reply:
          calls:
            - tool: run_code
              arguments: {skill: '{{skill}}', command: 'python3 skills/{{skill}}/scripts/say.py'}
      - reply: {text: '{{results}}'}
"""
# No other step declares this alone, so its environment is not there before.
WANTS = {"requirements.txt": "unused\n"}
TEXT = "spec.packages.allowed of the runtime is %s:"


def skill(name, files):
    files = {"SKILL.md": SKILL_TEXT % name, "scripts/say.py": SAY, **files}
    apply(SKILL % {"name": name, "namespace": SKILLS, "files": json.dumps(files)})


def words(name):
    return ["python3", "skills/%s/scripts/say.py" % name]


def until_says(name, lines):
    """A run of the skill says these lines; an earlier revision may run for a moment."""
    wait_until("%s says %s" % (name, lines), 30, lambda: run_words(name, words(name)) == lines)


def not_served(name):
    """`knack skill run` says that the skill is not served, and that the one without packages is, and no other."""
    part = "skill %s/%s is not served to this ServiceAccount at %s/default; served: %s/plain\n" % (SKILLS, name, SANDBOXES, SKILLS)
    told = []

    def asked():
        code, said, errors = run(run_command("%s/%s" % (SKILLS, name), SANDBOXES + "/default", NAMESPACE, words(name)), expect=None)
        told.append(said + errors)
        return code != 0 and part in errors
    wait_until("%s is not served" % name, 30, asked, lambda: told[-1][-2000:])


def model_gets(name, part):
    """What a model gets through the release's gateway when it runs the script of a skill has this part."""
    service = get("service", "-n", NAMESPACE, "knack-gateway")["spec"]
    url = "http://%s:%d/v1/chat/completions" % (service["clusterIP"], service["ports"][0]["port"])
    body = {"model": "knack-test", "messages": [{"role": "user", "content": "run " + name}]}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    told = []

    def asked():
        request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json", "authorization": "Bearer test"})
        try:
            with opener.open(request, timeout=300) as response:
                told.append(json.loads(response.read())["choices"][0]["message"]["content"] or "")
        except urllib.error.HTTPError as error:
            # Its catalog may be a moment behind; without a skill in it no tool is offered.
            told.append("%d: %s" % (error.code, error.read()[:2000]))
            return False
        except OSError as error:
            told.append(repr(error))
            return False
        return part in told[-1]
    wait_until("a model gets %r" % part, 30, asked, lambda: told[-1])


def refused():
    """No packages at all, then the standard environment alone: a list, a lock of Node and a skill that was served before are refused."""
    STATE["before"] = len(STATE["index"].asked), environments()
    runtime({"allowed": "None"})
    skill("bound", WANTS)
    skill("bound-js", {"package.json": '{"dependencies": {"greeter": "1.0.0"}}', "package-lock.json": node_lock(builder.NODE_PACKAGES[:1])})
    skill("plain", {})
    for allowed in ("None", "Standard"):
        runtime({"allowed": allowed})
        for name in ("bound", "bound-js", "greets"):
            found = until(name, "Refused", part=TEXT % allowed)
            assert_equal((found["accepted"], found["reason"], found["packages"].get("environment")), (False, "PackagesNotAllowed", None), "the verdict about " + name)
    status = get("skill", "bound", "-n", SKILLS)["status"]
    conditions = {each["type"]: each for each in status["conditions"]}
    assert_equal((conditions["Ready"]["status"], conditions["Accepted"]["status"], conditions["Accepted"]["reason"]), ("True", "False", "Rejected"), "conditions")
    if "%s/default: %s" % (SANDBOXES, TEXT % "Standard") not in conditions["Accepted"]["message"]:
        raise AssertionError("the condition does not say why: %s" % conditions["Accepted"])
    plain = wait_until("a verdict about a skill without packages", 60, lambda: verdict("plain"))
    assert_equal((plain["accepted"], plain["reason"], plain.get("packages")), (True, "Accepted", None), "the verdict about it")

    def listed():
        rejected = get("skillruntime", "default", "-n", SANDBOXES)["status"].get("rejectedSkills", [])
        return {each["name"] for each in rejected if each["reason"] == "PackagesNotAllowed" and TEXT % "Standard" in each["message"]} >= {"bound", "bound-js", "greets"}
    wait_until("the runtime lists what it refuses", 60, listed)


def not_run():
    """Neither by name nor by a model; a skill without packages runs."""
    until_says("plain", ["lacks unused"])
    not_served("bound")
    not_served("greets")
    model_gets("plain", "lacks unused")
    model_gets("bound", 'No skill "bound"')


def edited():
    """An edit that adds packages leaves the revision before it in service."""
    before = get("skill", "plain", "-n", SKILLS)["status"]["artifact"]["revision"]
    skill("plain", WANTS)
    found = until("plain", "Refused", part=TEXT % "Standard")
    assert_equal((found["accepted"], found["reason"], found.get("serves")), (True, "EarlierRevision", before), "the verdict")
    until_says("plain", ["lacks unused"])


def allowed():
    """Nothing was built until then; afterwards the one environment that was missing is, and what was built before is used again."""
    asked, known = STATE.pop("before")
    assert_equal((STATE["index"].asked[asked:], environments()), ([], known), "requests to the index, and environments")
    # The runtime's own image has no Node: allowing it is not what makes it run.
    kubectl("delete", "skill", "bound-js", "-n", SKILLS)
    runtime({"allowed": "Declared"})
    for name in ("bound", "plain", "greets"):
        found = until(name, "Ready")
        assert_equal((found["accepted"], found["reason"], found.get("serves")), (True, "Accepted", None), "the verdict about " + name)
    for name in ("bound", "plain"):
        until_says(name, ["has unused"])
    model_gets("bound", "has unused")
    assert_equal(run_words("greets", words("greets"))[:1], ["hello of 1.0 helper"], "the answer of what was served before")
    others = [path for path in STATE["index"].asked[asked:] if "unused" not in path]
    assert_equal((others, environments()), ([], known + 1), "other requests to the index, and environments")
    kubectl("delete", "skill", "bound", "plain", "-n", SKILLS)


STEPS = [
    ("a runtime refuses packages that it does not allow, and says so", refused),
    ("what it refuses is not run, by a command or by a model", not_run),
    ("an edit that adds such packages leaves the revision before it in service", edited),
    ("nothing is built until they are allowed, and then the skill runs", allowed),
]
