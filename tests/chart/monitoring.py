"""Alerts by promtool, with a unit test for each in fixtures/alerts.yaml, and the dashboard as Grafana would read it."""

import functools
import json
import os
import re
import shutil
import tempfile

import yaml

from harness import HERE, ROOT, assert_equal, run
from render import documents, render

# The installation that the unit tests of alerts tell of.
NAMESPACE = "knack-system"
UNIT_TESTS = os.path.join(HERE, "fixtures", "alerts.yaml")
PAGE = os.path.join(ROOT, "docs", "kubernetes.md")
OBSERVABILITY = os.path.join(ROOT, "docs", "observability.md")

# A comparison of PromQL, and the one that takes the threshold to its other side. What stands in braces compares labels.
COMPARISON = re.compile(r"\{[^}]*\}|(?P<sign>==|>=|<=|>|<) *(?P<number>[0-9.]+)")
OTHER_SIDE = {">": ">=", ">=": ">", "<": "<=", "<=": "<"}

# What Grafana knows without a definition, with what it puts there.
BUILT_IN = {"__rate_interval": "2m0s", "__interval": "30s", "__range": "3h0m0s"}
# Columns of Grafana's grid.
COLUMNS = 24
# Ids of units and of panels that the dashboard uses; a wrong id is shown as plain text, or as an empty panel.
UNITS = {"none", "short", "s", "bytes", "reqps", "ops", "percentunit"}
KINDS = {"stat", "timeseries"}


@functools.cache
def alerts():
    """Every alert's rule by its name; those of both deliveries of sidecars, of which one rendering has one."""
    rules = {}
    for delivery in ("Policy", "Webhook"):
        made = documents(render({"crds": {"enabled": False}, "injection": {"delivery": delivery}, "registry": {"enabled": True},
                                 "monitoring": {"prometheusRule": {"enabled": True}}}, namespace=NAMESPACE))
        [spec] = [document["spec"] for document in made if document["kind"] == "PrometheusRule"]
        for rule in (rule for group in spec["groups"] for rule in group["rules"]):
            assert_equal(rules.setdefault(rule["alert"], rule), rule, "the alert by the other delivery")
    return rules


def unit_tests(alert=None):
    """The unit tests; only those of one alert, if one is named."""
    with open(UNIT_TESTS, encoding="utf-8") as file:
        groups = yaml.safe_load(file)["tests"]
    kept = [{**group, "alert_rule_test": [case for case in group["alert_rule_test"] if alert in (None, case["alertname"])]} for group in groups]
    return [group for group in kept if group["alert_rule_test"]]


def promtool_path():
    return os.environ.get("PROMTOOL") or shutil.which("promtool")


def promtool(*arguments, **options):
    return run([promtool_path(), *arguments], **options)


def put(folder, name, value):
    """Writes a value as YAML, of which JSON is a part; its path."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file)
    return file.name


def put_rules(folder, rules):
    return put(folder, "rules.yaml", {"groups": [{"name": "knack", "rules": list(rules)}]})


def put_unit_tests(folder, rules, groups):
    """Rules and their unit tests, side by side; the path of the tests."""
    put_rules(folder, rules)
    return put(folder, "tests.yaml", {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": groups})


def rules_are_accepted():
    rules = alerts()
    with tempfile.TemporaryDirectory() as folder:
        promtool("check", "rules", put_rules(folder, rules.values()))
    return "%d alerts" % len(rules)


def every_alert_has_unit_tests():
    """One that fires and one that does not, by name; and no test of an alert that is not there."""
    fires, quiet = set(), set()
    for case in (case for group in unit_tests() for case in group["alert_rule_test"]):
        (fires if case["exp_alerts"] else quiet).add(case["alertname"])
    for what, tested in (("that fire", fires), ("that do not fire", quiet)):
        assert_equal(sorted(tested), sorted(alerts()), "alerts with unit tests " + what)


def unit_tests_hold():
    groups = unit_tests()
    with tempfile.TemporaryDirectory() as folder:
        promtool("test", "rules", put_unit_tests(folder, alerts().values(), groups))
    return "%d cases" % sum(len(group["alert_rule_test"]) for group in groups)


def minutes(duration):
    return int(re.fullmatch(r"(\d+)([mh])", duration)[1]) * {"m": 1, "h": 60}[duration[-1]]


def on_the_other_side(expr, sign, number):
    """A comparison that differs at its threshold only; that of an interpolated quantile, which is never exactly there, a tenth below."""
    if "histogram_quantile" in expr:
        return "%s %s" % (sign, 0.9 * float(number))
    # Values are never below 0, so what equals 0 is at the lower end.
    return "%s %s" % (OTHER_SIDE.get(sign) or (">=" if number == "0" else "<="), number)


def changed(rule):
    """(what was changed, rule): its time by a minute in both directions, and each comparison at its threshold."""
    if "for" in rule:
        for other in (minutes(rule["for"]) - 1, minutes(rule["for"]) + 1):
            yield "for: %dm" % other, {**rule, "for": "%dm" % other}
    for found in COMPARISON.finditer(rule["expr"]):
        if found["sign"]:
            other = on_the_other_side(rule["expr"], found["sign"], found["number"])
            yield "%s instead of %s" % (other, found[0]), {**rule, "expr": rule["expr"][:found.start()] + other + rule["expr"][found.end():]}


def unit_tests_sit_at_thresholds():
    """A rule with another time or another side of a threshold fails a unit test: the cases are just above and just below."""
    with tempfile.TemporaryDirectory() as folder:
        cases = {}
        for name, rule in alerts().items():
            for number, (what, other) in enumerate(changed(rule)):
                path = put_unit_tests(os.path.join(folder, "%s-%d" % (name, number)), [other], unit_tests(name))
                cases[path] = "%s with %s" % (name, what)
        _, said, errors = promtool("test", "rules", *cases, expect=None)
    # What holds is told on standard output below its file; what does not, on standard error, with what was expected.
    results = dict(re.findall(r"^Unit Testing: +(\S+)\n( *SUCCESS)?", said, re.MULTILINE))
    assert_equal(sorted(results), sorted(cases), "results of promtool: " + errors[-1000:])
    assert_equal([cases[path] for path in cases if results[path]], [], "changed rules that no unit test notices")
    assert_equal(["exp:[" in told for told in errors.split("  FAILED:")[1:]], [True] * len(cases), "differences of alerts")
    return "%d changed rules" % len(cases)


def the_page_has_a_line_for_each_alert():
    """docs/kubernetes.md says of each alert what it means and what to type first, and of no other."""
    with open(PAGE, encoding="utf-8") as file:
        lines = re.findall(r"^\| `(Knack\w+)` \| ([^|]+) \| ([^|]+) \|$", file.read().split("## Troubleshooting", 1)[1], re.MULTILINE)
    assert_equal(sorted(name for name, _, _ in lines), sorted(alerts()), "alerts in docs/kubernetes.md, Troubleshooting")
    assert_equal([name for name, _, first in lines if "`kubectl " not in first], [], "alerts without a command to type first")


def metrics_exist():
    """Every metric of the rules and of the dashboard is registered: prefix and name, `_total` for counters, `_bucket` for histograms."""
    registered = set()
    for top in ("src", os.path.join("crates", "gateway", "src")):
        for base, _, names in os.walk(os.path.join(ROOT, top)):
            for name in names:
                if name.endswith("metrics.rs"):
                    with open(os.path.join(base, name), encoding="utf-8") as file:
                        text = file.read()
                    for prefix in re.findall(r'with_prefix\("(\w+)"\)', text):
                        registered.update(prefix + "_" + metric for metric in re.findall(r'(?:register\(|gauge\(\s*&mut registry,)\s*"(\w+)"', text))
    made = render({"monitoring": {"prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}}})
    asked = set(re.findall(r"\bknack_\w+", made))
    assert_equal(sorted(name for name in asked if name not in registered and re.sub("_(total|bucket)$", "", name) not in registered),
                 [], "metrics that nothing registers")
    assert len(asked) >= 20, asked


def dashboard():
    """The dashboard, as the release's ConfigMap has it."""
    made = [document for document in documents(render({"monitoring": {"dashboard": {"enabled": True}}}))
            if document["kind"] == "ConfigMap" and document["metadata"]["name"] == "knack-dashboard"]
    assert_equal(len(made), 1, "ConfigMaps with the dashboard")
    assert_equal(made[0]["metadata"]["labels"].get("grafana_dashboard"), "1", "the label by which Grafana finds it")
    return json.loads(made[0]["data"]["knack.json"])


def panels_of(board):
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def used(text):
    """Variables in a text, in each way of Grafana: $name, ${name}, ${name:format}, [[name]]."""
    return [first or second or third for first, second, third in re.findall(r"\$(\w+)|\$\{(\w+)(?::\w+)?\}|\[\[(\w+)(?::\w+)?\]\]", text)]


def filled(text, values):
    """A text with the values of its variables."""
    for name, value in values.items():
        text = re.sub(r"\$%s\b|\$\{%s(?::\w+)?\}|\[\[%s(?::\w+)?\]\]" % (name, name, name), lambda _, value=value: value, text)
    return text


def panels_are_read_by_a_person():
    """Every panel has a title, an explanation, a unit, a place of its own, and a legend for each query whose labels are there."""
    board = dashboard()
    panels = panels_of(board)
    for panel in panels:
        for what in (panel["title"], panel["description"]):
            assert what.strip(), panel
        assert_equal((panel["type"] in KINDS, panel["fieldConfig"]["defaults"]["unit"] in UNITS), (True, True), "kind and unit of " + panel["title"])
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            assert target["legendFormat"], panel["title"]
            labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            grouped = re.search(r"by \(([^)]*)\)", target["expr"])
            assert_equal(labels - set(re.split(r", *", grouped.group(1)) if grouped else ["pod"]), set(), "labels of the legend of " + panel["title"])
    places = [(panel["gridPos"]["x"] + column, panel["gridPos"]["y"] + line)
              for panel in board["panels"] for column in range(panel["gridPos"]["w"]) for line in range(panel["gridPos"]["h"])]
    assert_equal(len(places), len(set(places)), "panels that lie on each other")
    assert_equal([place for place in places if not 0 <= place[0] < COLUMNS], [], "places outside of the grid")
    for values, what in (([panel["id"] for panel in board["panels"]], "ids"), ([panel["title"] for panel in panels], "titles")):
        assert_equal(len(values), len(set(values)), what + " of panels")
    return "%d panels" % len(panels)


def variables_are_defined_and_used():
    """Each is defined before it is used, and used; the data source is one; those with several values are compared by =~, others by =."""
    board = dashboard()
    defined, asked = {}, []
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            assert_equal(set(used(variable["query"]["query"]) + used(variable["datasource"]["uid"])) - set(defined), set(), "variables of " + variable["name"])
            asked.append((variable["name"], variable["query"]["query"], variable["datasource"]))
        defined[variable["name"]] = variable
    assert_equal([variable["name"] for variable in defined.values() if variable["type"] == "datasource" and variable["query"] == "prometheus"],
                 ["datasource"], "data sources to choose from")
    for panel in panels_of(board):
        for target in panel["targets"]:
            asked.append((panel["title"], target["expr"], target.get("datasource", panel["datasource"])))
            assert_equal('namespace="$namespace"' in target["expr"], True, "%s asks for one installation" % panel["title"])
    seen = {"datasource"}
    for what, query, source in asked:
        assert_equal(source, {"type": "prometheus", "uid": "${datasource}"}, "data source of " + what)
        names = set(used(query))
        assert_equal(names - set(defined) - set(BUILT_IN), set(), "variables of %s that nothing defines" % what)
        for name in names & set(defined):
            sign = "=~" if defined[name].get("multi") else "="
            assert_equal(set(re.findall(r'\b\w+(=~|=|!=|!~)"\$\{?%s\b' % name, query)), {sign}, "how %s compares with $%s" % (what, name))
        seen |= names
    assert_equal(set(defined) - seen, set(), "variables that nothing uses")


def queries_of_the_dashboard_are_read_by_prometheus():
    """Every query of a panel, and every selector of a variable, with all values, one and several, as Grafana would send it."""
    board = dashboard()
    queries = [(panel["title"], target["expr"]) for panel in panels_of(board) for target in panel["targets"]]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.+), *([a-zA-Z_]\w*)\)", variable["query"]["query"])
            assert asked, "%s: %r" % (variable["name"], variable["query"]["query"])
            queries.append((variable["name"], asked[1]))
    several = [variable for variable in board["templating"]["list"] if variable.get("multi")]
    rules = []
    for chosen in ("all", "one", r"(team-a/a\\.b|team-b/c)"):
        values = {**BUILT_IN, "namespace": NAMESPACE, **{variable["name"]: variable["allValue"] if chosen == "all" else chosen for variable in several}}
        for number, (what, query) in enumerate(queries):
            expr = filled(query, values)
            assert "$" not in expr and "[[" not in expr, "%s: %s" % (what, expr)
            rules.append({"record": "query:%d" % number, "labels": {"asked_by": what, "chosen": chosen}, "expr": expr})
    with tempfile.TemporaryDirectory() as folder:
        promtool("check", "rules", put_rules(folder, rules))
    return "%d queries" % len(queries)


def the_query_for_skills_counts_the_first_use():
    """The query of docs/observability.md sees the first use of a skill whose series began with 0, and not of one whose series begins with it."""
    with open(OBSERVABILITY, encoding="utf-8") as file:
        [query] = re.findall(r"`(sum by [^`]*knack_hub_skill_uses_total[^`]*)`", file.read())
    series = 'knack_hub_skill_uses_total{skill="team/%s", use="ran"}'
    asked = {"expr": "(%s) > bool 0" % query, "eval_time": "1h", "exp_samples": [
        {"labels": '{skill="team/%s", use="ran"}' % skill, "value": value} for skill, value in (("begins-with-0", 1), ("begins-with-1", 0))]}
    group = {"interval": "1m", "promql_expr_test": [asked], "input_series": [
        {"series": series % "begins-with-0", "values": "0+0x10 1+0x60"}, {"series": series % "begins-with-1", "values": "_x11 1+0x60"}]}
    with tempfile.TemporaryDirectory() as folder:
        promtool("test", "rules", put_unit_tests(folder, [], [group]))


def grafana_reads_the_dashboard():
    """With the types that Grafana makes from its own schemas (grafana/main.go)."""
    return run([os.environ["DASHBOARD_READER"]], stdin=json.dumps(dashboard())).strip()


def tests(report):
    report.check("alerts and dashboard ask for metrics that exist", metrics_exist)
    report.check("every alert has unit tests", every_alert_has_unit_tests)
    report.check("docs/kubernetes.md has a line for each alert", the_page_has_a_line_for_each_alert)
    report.check("panels of the dashboard are complete", panels_are_read_by_a_person)
    report.check("variables of the dashboard are defined and used", variables_are_defined_and_used)
    for name, test in (("alerts are accepted by promtool", rules_are_accepted), ("unit tests of alerts hold", unit_tests_hold),
                       ("unit tests of alerts sit at thresholds", unit_tests_sit_at_thresholds),
                       ("queries of the dashboard are accepted by promtool", queries_of_the_dashboard_are_read_by_prometheus),
                       ("the query for uses of skills counts the first one", the_query_for_skills_counts_the_first_use)):
        if promtool_path():
            report.check(name, test)
        else:
            report.skip(name, "there is no promtool, tools/promtool.sh says why")
    if os.environ.get("DASHBOARD_READER"):
        report.check("the dashboard is read by Grafana's own types", grafana_reads_the_dashboard)
    else:
        report.skip("the dashboard is read by Grafana's own types", "there is no Go to build tests/chart/grafana")
