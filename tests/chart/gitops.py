"""The snippets for Argo CD, Flux and kustomize, run by the interpreters those tools have: Lua 5.1, CEL, kustomize."""

import os
import re

import celpy
import yaml
from celpy.adapter import json_to_cel
from lupa import lua51

from harness import HERE, ROOT, assert_equal, kubectl

SNIPPETS = os.path.join(ROOT, "deploy", "gitops")
# Argo CD opens no library of Lua but base, table and a safe part of os.
CLOSED = ["io", "debug", "package", "dofile", "loadfile", "coroutine", "string", "math"]


def text(name):
    with open(os.path.join(SNIPPETS, name), encoding="utf-8") as file:
        return file.read()


def fixtures():
    with open(os.path.join(HERE, "fixtures", "health.yaml"), encoding="utf-8") as file:
        return yaml.safe_load(file)


def lua_value(lua, value):
    """A JSON value as the Lua value that Argo CD makes of it."""
    if isinstance(value, dict):
        return lua.table_from({key: lua_value(lua, item) for key, item in value.items() if item is not None})
    if isinstance(value, list):
        return lua.table_from([lua_value(lua, item) for item in value])
    return value


def run_lua(script, obj):
    lua = lua51.LuaRuntime(unpack_returned_tuples=True)
    assert_equal(lua.execute("return _VERSION"), "Lua 5.1", "interpreter")
    lua.execute("local date = os.date\nlocal safe = {date = date}\nos = nil\nrequire = function(name) if name == 'os' then return safe end error(name) end")
    for name in CLOSED:
        lua.execute("%s = nil" % name)
    lua.globals().obj = lua_value(lua, obj)
    return lua.execute(script)


def kstatus(obj):
    """The rules of kstatus, in their order."""
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = obj.get("status") or {}
    if "observedGeneration" in status and status["observedGeneration"] != obj["metadata"]["generation"]:
        return "InProgress"
    conditions = status.get("conditions") or []
    for condition in conditions:
        if condition["status"] == "True" and condition["type"] in ("Reconciling", "Stalled"):
            return "InProgress" if condition["type"] == "Reconciling" else "Failed"
    for condition in conditions:
        if condition["type"] == "Ready":
            return "Current" if condition["status"] == "True" else "InProgress"
    return "Current"


def flux(checks, obj):
    """What Flux's three expressions say, in Flux's order; an expression over a missing field counts as in progress."""
    environment = celpy.Environment()
    values = {key: json_to_cel(value) for key, value in obj.items()}
    for verdict, key in (("InProgress", "inProgress"), ("Failed", "failed"), ("Current", "current")):
        program = environment.program(environment.compile(checks[key]))
        try:
            if bool(program.evaluate(values)):
                return verdict
        except celpy.CELEvalError:
            return "InProgress"
    return "InProgress"


def judged(case, kind):
    obj = {"apiVersion": "knack.dev/v1alpha1", "kind": kind}
    obj.update(case["object"])
    argo = run_lua(text("argocd-health.lua"), obj)
    assert_equal(argo.status, case["argo"], "Argo CD")
    if "message" in case:
        assert_equal(argo.message, case["message"], "message")
    assert_equal(kstatus(obj), case["kstatus"], "kstatus")
    checks = [entry for entry in yaml.safe_load(text("flux-health-checks.yaml"))["healthCheckExprs"] if entry["kind"] == kind]
    assert_equal(len(checks), 1, "expressions for " + kind)
    assert_equal(checks[0]["apiVersion"], "knack.dev/v1alpha1", "apiVersion")
    assert_equal(flux(checks[0], obj), case["flux"], "Flux")


def argo_action():
    obj = {"metadata": {"name": "a"}, "spec": {}}
    asked = run_lua(text("argocd-reconcile.lua"), obj).metadata.annotations["knack.dev/requestedAt"]
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", asked):
        raise AssertionError("requestedAt is %r" % asked)
    obj["metadata"]["annotations"] = {"kept": "yes", "knack.dev/requestedAt": "old"}
    changed = run_lua(text("argocd-reconcile.lua"), obj).metadata.annotations
    assert_equal(changed.kept, "yes", "other annotations")
    assert changed["knack.dev/requestedAt"] != "old"
    assert_equal(run_lua(text("argocd-reconcile-discovery.lua"), obj).reconcile.disabled, False, "discovery")


def kustomize_follows():
    documents = list(yaml.safe_load_all(kubectl("kustomize", os.path.join(ROOT, "examples", "kustomize"))))
    by_kind = {document["kind"]: document for document in documents}
    name = by_kind["ConfigMap"]["metadata"]["name"]
    if not re.fullmatch(r"weekday-files-[a-z0-9]{10}", name):
        raise AssertionError("no hashed name: " + name)
    source = by_kind["Skill"]["spec"]["source"]["configMap"]
    assert_equal(source["name"], name, "the Skill's source")
    assert_equal(sorted(item["key"] for item in source["items"]), sorted(by_kind["ConfigMap"]["data"]), "items and keys")


def kustomize_needs_it():
    """The positive control: without the configuration the hashed name is not followed."""
    import shutil
    import tempfile
    folder = tempfile.mkdtemp(prefix="knack-chart-")
    try:
        copy = os.path.join(folder, "kustomize")
        shutil.copytree(os.path.join(ROOT, "examples", "kustomize"), copy)
        path = os.path.join(copy, "kustomization.yaml")
        with open(path, encoding="utf-8") as file:
            lines = [line for line in file if not line.startswith("configurations:")]
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(lines)
        documents = list(yaml.safe_load_all(kubectl("kustomize", copy)))
    finally:
        shutil.rmtree(folder)
    skill = next(document for document in documents if document["kind"] == "Skill")
    assert_equal(skill["spec"]["source"]["configMap"]["name"], "weekday-files", "the name without the configuration")


def same_text(first, second):
    with open(first, encoding="utf-8") as one, open(second, encoding="utf-8") as other:
        assert_equal(one.read(), other.read(), "%s and %s" % (first, second))


def documented(name):
    """docs/gitops.md shows the snippet as it is shipped."""
    with open(os.path.join(ROOT, "docs", "gitops.md"), encoding="utf-8") as file:
        blocks = [re.sub(r"^ {0,4}", "", block, flags=re.M) for block in re.findall(r"```[a-z]+\n(.*?)```", file.read(), re.S)]
    wanted = "".join(line for line in text(name).splitlines(True) if not line.startswith(("#", "--")))
    if not any(re.sub(r"^ +", "", wanted, flags=re.M) in re.sub(r"^ +", "", block, flags=re.M) for block in blocks):
        raise AssertionError("no code block of docs/gitops.md holds " + name)


def substitution_is_off():
    """Flux replaces ${...} inside scripts: every shipped Skill with scripts says that it must not."""
    count = 0
    for base, _, names in os.walk(os.path.join(ROOT, "examples")):
        for name in names:
            if not name.endswith(".yaml"):
                continue
            with open(os.path.join(base, name), encoding="utf-8") as file:
                documents = [d for d in yaml.safe_load_all(file) if isinstance(d, dict) and d.get("kind") == "Skill"]
            for document in documents:
                source = document["spec"]["source"]
                if len(source.get("inline", {}).get("files", {})) + len(source.get("configMap", {}).get("items", [])) < 2:
                    continue
                count += 1
                annotations = document["metadata"].get("annotations", {})
                assert_equal(annotations.get("kustomize.toolkit.fluxcd.io/substitute"), "disabled", os.path.join(base, name))
    assert count >= 2, "only %d Skills with scripts found" % count
    return "%d Skills" % count


def tests(report):
    for kind in ("Skill", "SkillRuntime"):
        for case in fixtures():
            report.check("health of a %s, %s" % (kind, case["name"]), lambda case=case, kind=kind: judged(case, kind))
    report.check("Argo CD action reconcile", argo_action)
    report.check("kustomize follows the hashed name", kustomize_follows)
    report.check("kustomize without the configuration does not", kustomize_needs_it)
    report.check("examples/kustomize ships the configuration of deploy/", lambda: same_text(
        os.path.join(SNIPPETS, "kustomize-knack.yaml"), os.path.join(ROOT, "examples", "kustomize", "knack.yaml")))
    report.check("shipped Skills with scripts are kept from Flux's substitution", substitution_is_off)
    for name in sorted(os.listdir(SNIPPETS)):
        report.check("docs/gitops.md shows " + name, lambda name=name: documented(name))
