"""Programs upload skills to a cluster, shown: the official OpenAI SDK, unchanged, with the address of the gateway; an MCP client runs the
tool of an uploaded skill, and the history has it; files that are uploaded are inputs of runs.

    tests/registry_demo/run.sh           from nothing: brings a cluster up, and down again at the end

Runs with that SDK, inside a shell whose kubectl and helm reach the cluster; nothing of Knack may be on it. Exit code 0 means that every check held.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tests", part) for part in ("chart", "cluster_demo", "sdk")]

import openai  # noqa: E402
from bed import apply, get, wait_until  # noqa: E402
from forward import Forward  # noqa: E402
from harness import assert_equal, helm, kubectl  # noqa: E402
from steps import diagnosis, step  # noqa: E402
from uploads import folder, unzipped  # noqa: E402

# Where the shared gateway works, and so where what its callers upload is.
NAMESPACE = "knack-system"
# How long a step may take on an idle machine; `wait_until` has patience with loaded ones.
SECONDS = 120
APPLIED = """
apiVersion: knack.dev/v1alpha1
kind: Skill
metadata: {name: applied, namespace: %s}
spec:
  source: {inline: {files: {SKILL.md: "---\\nname: applied\\ndescription: From a manifest.\\n---\\nNothing.\\n"}}}
""" % NAMESPACE


def edition(number):
    """The files of the skill in an edition, as the SDK takes them."""
    script = b"import sys\nprint(int(sys.argv[1]) + int(sys.argv[2]))\n"
    body = "This is edition-%d. Run scripts/add.py A B." % number
    return folder("adder", "Adds two numbers.", body, [("scripts/add.py", script)], "%d.0.0" % number)


def install():
    step("helm install with registry.enabled and gateway.registry; a provider in the cluster")
    helm("install", "knack", os.path.join(ROOT, "charts", "knack"), "--namespace", NAMESPACE, "--create-namespace",
         "--values", os.path.join(ROOT, "tests", "cluster_demo", "values.yaml"),
         "--set", "registry.enabled=true,registry.history.enabled=true,registry.files.enabled=true",
         "--set", "gateway.registry=true,gateway.mcp.enabled=true", "--wait", "--timeout", "900s")
    script = kubectl("create", "configmap", "scripted-model", "-n", "default", "--dry-run=client", "-o", "yaml",
                     "--from-file=script.yaml=" + os.path.join(HERE, "model.yaml"))
    with open(os.path.join(ROOT, "tests", "cluster_demo", "model.yaml"), encoding="utf-8") as file:
        apply(script + "\n---\n" + file.read(), "-n", "default")
    kubectl("rollout", "status", "-n", "default", "deployment/scripted-model", "--timeout=600s")
    print(kubectl("get", "deployments", "-n", NAMESPACE))


def refused(kind, ask):
    try:
        ask()
    except kind as error:
        return str(error)
    raise AssertionError("not refused with %s" % kind.__name__)


class Application:
    """What knows nothing of a cluster but the address of the gateway."""

    def __init__(self, port, key="demo-key"):
        self.port, self.key = port, key
        self.client = openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % port, api_key=key, max_retries=0)

    def send(self, path, body):
        """The JSON that an address answers."""
        headers = {"Authorization": "Bearer " + self.key, "Content-Type": "application/json",
                   "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
        request = urllib.request.Request("http://127.0.0.1:%d%s" % (self.port, path), headers=headers,
                                         data=None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError("%s: %s %s" % (path, error.code, error.read().decode())) from error

    def get(self, path):
        return self.send(path, None)

    def post(self, path, body):
        return self.send(path, body)

    def mcp(self, method, params):
        """The result of one request of MCP."""
        answer = self.send("/mcp", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        if "result" not in answer:
            raise AssertionError("%s: %s" % (method, answer))
        return answer["result"]

    def ask(self, words, skill):
        """The model's text, of a request that names a skill."""
        answer = self.client.chat.completions.create(model="knack-demo", messages=[{"role": "user", "content": words}],
                                                     extra_headers={"x-knack-skills": skill})
        return answer.choices[0].message.content

    def reaches(self, what, words, skill, expected):
        """Waits for an answer, as a person would who asks again."""
        begun = time.monotonic()

        def asked():
            try:
                return self.ask(words, skill) == expected
            except openai.APIStatusError:
                return False
        wait_until(what, SECONDS, asked)
        print("   %s: %r after %.0f ms" % (what, expected, (time.monotonic() - begun) * 1000))


def rights(application):
    step("Who may upload is a matter of RBAC")
    error = refused(openai.PermissionDeniedError, lambda: application.client.skills.create(files=edition(1)))
    print("   before: " + error)
    # As docs/registry.md says.
    kubectl("create", "role", "skills", "-n", NAMESPACE, "--verb=get,list,create,update,delete", "--resource=skills.knack.dev")
    kubectl("create", "rolebinding", "knack-gateway-skills", "-n", NAMESPACE, "--role=skills",
            "--serviceaccount=%s:knack-gateway" % NAMESPACE)


def create(application):
    step("The SDK uploads a skill: the next request has it, and its code runs in a Job")
    created = []

    def made():
        try:
            created.append(application.client.skills.create(files=edition(1)))
            return True
        except openai.PermissionDeniedError:
            # An answer of RBAC is used for some seconds; asked more often than once in two, the registry counts too many changes.
            time.sleep(2)
            return False
    wait_until("the upload is allowed", SECONDS, made)
    skill = created[0]
    application.reaches("edition 1", "which edition", "adder", "edition 1")
    application.reaches("its code", "please add", skill.id, "The sum is 42.")
    wait_until("a Job of the skill", SECONDS, lambda: get("jobs", "-n", "knack-sandboxes", "-l", "knack.dev/skill=adder")["items"])
    return skill


def update(application, skill):
    step("A new version is served; a conversation that names the old one stays with it")
    version = application.client.skills.versions.create(skill.id, files=edition(2))
    application.client.skills.update(skill.id, default_version=version.version)
    application.reaches("by its name", "which edition", "adder", "edition 2")
    application.reaches("by its name and ^1", "which edition", "adder@^1", "edition 1")
    application.reaches("by its id and number", "which edition", skill.id + ":1", "edition 1")
    assert_equal(unzipped(application.client.skills.content.retrieve(skill.id).read()), dict(edition(2)), "the files that come back")


def agree(application, skill):
    step("kubectl and the API show the same; what others apply is read and never written")
    apply(APPLIED)
    kubectl("wait", "-n", NAMESPACE, "skill/applied", "--for=condition=Ready", "--timeout=300s")
    print(kubectl("get", "skills", "-n", NAMESPACE))
    objects = {one["metadata"]["name"]: one for one in get("skills", "-n", NAMESPACE)["items"]}
    assert_equal(sorted(objects), ["adder", "adder-v1", "applied"], "the objects")
    listed = wait_until("both are listed", SECONDS, lambda: [one for one in [{one.name: one.id for one in application.client.skills.list()}] if len(one) == 2])[0]
    assert_equal(listed, {"adder": skill.id, "applied": "skill_knack_" + objects["applied"]["metadata"]["uid"].replace("-", "")}, "the list")
    print("   a change: " + refused(openai.ConflictError, lambda: application.client.skills.delete(listed["applied"])))


def delete(application, skill):
    step("The skill is deleted: it is in no request, and its objects are gone")
    application.client.skills.delete(skill.id)
    refused(openai.NotFoundError, lambda: application.client.skills.retrieve(skill.id))
    wait_until("no object is left", SECONDS, lambda: [one["metadata"]["name"] for one in get("skills", "-n", NAMESPACE)["items"]] == ["applied"])
    wait_until("no file is left", SECONDS, lambda: not get("configmaps", "-n", NAMESPACE, "-l", "knack.dev/upload")["items"])

    def unknown():
        try:
            application.ask("which edition", "adder")
            return False
        except openai.NotFoundError:
            return True
    wait_until("a request that names it is refused", SECONDS, unknown)


def tools(application):
    step("An MCP client runs the tool of an uploaded skill, in a Job, and the history has the run")
    made = application.post("/api/skills/install", {
        "name": "reverse-text", "version": "1.0.0", "description": "Reverses a text.",
        "schema": {"input": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
        "handlerCode": "def handler(text):\n    return {\"reversed\": text[::-1]}\n"})
    tool = wait_until("the tool is offered", SECONDS, lambda: [
        one["name"] for one in application.mcp("tools/list", {})["tools"] if one["name"] == "reverse-text"])[0]
    result = application.mcp("tools/call", {"name": tool, "arguments": {"text": "abc"}})
    assert_equal((result["isError"], "cba" in result["content"][0]["text"]), (False, True), "the result %r" % result)
    print("   %s: %s" % (tool, result["content"][0]["text"].strip()))
    ran = application.post("/api/skills/executions", {"skillId": made["id"], "input": {"text": "xyz"}})["execution"]
    assert_equal((ran["status"], ran["output"]), ("success", {"reversed": "zyx"}), "the run for a program")

    def kept():
        rows = application.get("/api/skills/executions?skillId=reverse-text&status=success")["data"]
        return rows if len(rows) == 2 else []
    rows = wait_until("both runs are in the history", SECONDS, kept)
    assert_equal([row["output"] for row in rows], [{"reversed": "zyx"}, {"reversed": "cba"}], "the history, the newest first")
    assert_equal(rows[0]["id"], ran["id"], "the id of the run for a program")
    assert_equal(Application(application.port, "another-key").get("/api/skills/executions")["total"], 0, "runs of another client")
    listed = application.mcp("tools/call", {"name": "omniroute_skills_executions", "arguments": {"skillId": "reverse-text"}})
    assert_equal(json.loads(listed["content"][0]["text"])["total"], 2, "the history by MCP")
    print("   %d runs: %s" % (len(rows), ", ".join("%(tool)s %(durationMs)s ms" % row for row in rows)))


def files(application):
    step("The SDK uploads a file: a run reads it as an input, and a container has it")
    content = b"19\n23\n19\n"
    upload = application.client.files.create(file=("numbers.txt", content), purpose="user_data")
    words = [{"type": "text", "text": "sum of the file"}, {"type": "file", "file": {"file_id": upload.id}}]
    assert_equal(application.ask(words, "adder"), "The file adds up to 61.", "the answer to a request that names the file")
    box = application.client.containers.create(name="demo", file_ids=[upload.id])
    inside = [(file.path, application.client.containers.files.content.retrieve(file.id, container_id=box.id).read())
              for file in application.client.containers.files.list(box.id)]
    assert_equal([(path.rsplit("/", 1)[-1], data) for path, data in inside], [("numbers.txt", content)], "the files of the container")
    stranger = Application(application.port, "another-key")
    refused(openai.NotFoundError, lambda: stranger.client.files.retrieve(upload.id))
    assert_equal(list(stranger.client.files.list()), [], "files of another client")
    print("   %s in %s: %s" % (upload.id, box.id, inside[0][0]))
    return upload, content


def files_after_a_restart(application, upload, content):
    step("Another pod of the gateway has the file: the registry keeps it")
    assert_equal([one.id for one in application.client.files.list()], [upload.id], "the list")
    assert_equal(application.client.files.content(upload.id).read(), content, "the content")
    application.client.files.delete(upload.id)
    refused(openai.NotFoundError, lambda: application.client.files.retrieve(upload.id))


def main():
    begun = time.monotonic()
    try:
        install()
        with Forward(NAMESPACE, "service/knack-gateway", 80) as port:
            application = Application(port)
            wait_until("the gateway reaches the model's Service", SECONDS, lambda: reachable(application))
            rights(application)
            skill = create(application)
            update(application, skill)
            agree(application, skill)
            upload, content = files(application)
            delete(application, skill)
            tools(application)
        kubectl("rollout", "restart", "-n", NAMESPACE, "deployment/knack-gateway")
        kubectl("rollout", "status", "-n", NAMESPACE, "deployment/knack-gateway", "--timeout=300s")
        with Forward(NAMESPACE, "service/knack-gateway", 80) as port:
            files_after_a_restart(Application(port), upload, content)
    except Exception as error:  # Whatever went wrong, the cluster's state is shown before the exit code says so.
        print("\nDEMO FAILED: %s: %s" % (type(error).__name__, error))
        diagnosis(*(["-n", NAMESPACE, "deployment/knack-" + part, "--tail=30"] for part in ("registry", "gateway", "controller", "hub")))
        sys.exit(1)
    print("\nregistry demo ok: %.0f s" % (time.monotonic() - begun))


def reachable(application):
    """A Service that is seconds old has a route on the node a little after its pods are ready."""
    try:
        return application.client.models.list() is not None
    except openai.APIError:
        return False


if __name__ == "__main__":
    main()
