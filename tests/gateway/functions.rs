//! Functions of a Python file as tools: a scripted model calls them, the real sandbox runs them.

use serde_json::{Value, json};

use super::support::{Running, Start, start};
use super::talk::{ROWS, Talk};

const DOCUMENT: &str =
    "---\nname: py\ndescription: d\nactivation: Always\ntools:\n  - python: tools.py\n---\nUse the tools.\n";

const TOOLS: &str = r#"
import asyncio, dataclasses, datetime, decimal, enum, json, os, pathlib, subprocess, sys, typing
from tukuy.context import SkillContext
from tukuy.skills import skill

print("imported")

@dataclasses.dataclass
class Point:
    x: int

class Color(enum.Enum):
    RED = "red"

@skill
def text(name: str, times: int = 2) -> str:
    """Greets.

    Args:
        name: Who is greeted.
    """
    print("progress")
    subprocess.run([sys.executable, "-c", "print('child')"], check=True)
    return f"hello {name} " * times

@skill
async def later(values: list[int], scale: float = 1) -> dict:
    """Adds after a while."""
    await asyncio.sleep(0.001)
    return {"sum": sum(values) * scale, "é": None}

@skill
def plain():
    """Values that JSON has other forms for."""
    return [Point(1), Color.RED, {2}, True, None]

@skill
def nothing():
    """Returns nothing."""

@skill(name="by_another_name")
def other(**more):
    """Is called by the name that its decorator gives."""
    return sorted(more)

@skill
def fails(why: str):
    """Fails."""
    print("before")
    raise ValueError(why)

@skill(idempotent=True)
def fails_safely():
    """Fails, and may be repeated."""
    return {}["key"]

@skill
def leaves(code: int):
    """Ends the program."""
    sys.exit(code)

@skill
def dies():
    """Ends the process."""
    sys.stderr.write("gone\n")
    sys.stderr.flush()
    os._exit(7)

@skill
def strange():
    """Returns what JSON does not have."""
    return object()

@skill
def infinite():
    """Returns a number that JSON does not have."""
    return float("inf")

@skill
def huge(bytes: int):
    """Returns a long text."""
    return "x" * bytes

@skill
def lacks():
    """Imports what is not there."""
    import no_such_module

@skill
def page(title: str):
    """Makes an artifact, and a file of its own."""
    with open("data.csv", "w") as file:
        file.write("a,b\n")
    return {"__artifact__": True, "type": "html", "title": title, "content": "<p>é</p>"}

@skill
def again(id: str):
    """Changes an artifact."""
    return json.dumps({"__artifact_update__": True, "id": id, "content": "new"})

class Level(enum.IntEnum):
    LOW = 1

@skill
def kinds(color: Color, colors: list[Color], day: datetime.date, at: datetime.datetime, price: decimal.Decimal,
          path: pathlib.Path, level: Level = Level.LOW, unknown: "NoSuchType" = None, limit: int = 10,
          label: typing.Optional[str] = None):
    """Takes types that JSON does not have."""
    return [color.name, [one.name for one in colors], day.year, at.utcoffset().seconds, price + 1, path.name, level.name,
            limit, label]

@skill
def by_place(a: int = 1, b: int = 2, /, c: int = 3):
    """Takes arguments by their place."""
    return [a, b, c]

@skill
async def builds(title: str, ctx: SkillContext, more: "SkillContext | None" = None):
    """Reports progress, as the guide of CachiBot's plugins does it."""
    if ctx.on_tool_output:
        from prompture.integrations.tukuy_bridge import current_tool_call_id
        tool_id = current_tool_call_id.get()
        if tool_id:
            await ctx.on_tool_output(tool_id, "Generating...")
    made = {"__artifact__": True, "type": "html", "title": title, "content": "<p>é</p>"}
    if ctx.on_artifact:
        await ctx.on_artifact(made)
    return [ctx.config, ctx.tool_configs.get("builds", {}), more is ctx, ctx.sandbox, made["title"]]

@skill
def places():
    """Tells where it runs and what it sees."""
    return [os.getcwd() == os.environ["KNACK_WORK_DIR"], os.path.basename(sys.argv[0]), __name__, sys.stdin.read()]
"#;

/// A model calls the tool `wipe` of a skill and tells what it read.
const CALL_AND_TELL: &str = "turns:\n  - rounds:\n      - reply: {calls: [{tool: run_skill_tool, arguments: {skill: SKILL, tool: wipe}}]}\n      - reply: {text: \"{{results}}\"}\n";

fn asked() -> Value {
    json!({"model": "claude-x", "max_tokens": 1000, "messages": [{"role": "user", "content": "go"}]})
}

/// Whether the console's list of what is noteworthy has this text.
fn reported(knack: &Running, text: &str) -> bool {
    let catalog = knack.gateway.catalog.current();
    catalog.reports.iter().any(|report| report.text.contains(text))
}

async fn called(tool: &str, arguments: &Value) -> (Running, String) {
    called_in(TOOLS, tool, arguments).await
}

async fn called_in(tools: &'static str, tool: &str, arguments: &Value) -> (Running, String) {
    let call = json!({"tool": tool, "arguments": arguments});
    let knack = start(Start {
        skills: vec![("py/SKILL.md", DOCUMENT), ("py/tools.py", tools)],
        script: format!("turns:\n  - rounds:\n      - reply: {{calls: [{call}]}}\n      - reply: {{text: Done.}}\n"),
        executor: std::sync::Arc::new(super::runner::executor(0).await),
        ..Start::default()
    })
    .await;
    let body = json!({"model": "claude-x", "max_tokens": 1000, "messages": [{"role": "user", "content": "go"}]});
    let answer = knack.send(knack.messages(&body)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let sent = knack.upstream();
    let messages = sent["messages"].as_array().unwrap().iter();
    let blocks = messages.filter_map(|message| message["content"].as_array()).flatten();
    let result = blocks
        .into_iter()
        .find(|block| block["type"] == "tool_result")
        .unwrap_or_else(|| panic!("{sent:#}"));
    let said = result["content"].as_str().unwrap().to_owned();
    let is_error = result["is_error"] == true;
    let begins = said.starts_with("Error");
    assert_eq!(is_error, begins, "{tool}: {result}");
    (knack, said)
}

#[tokio::test]
async fn a_model_reads_the_value_and_not_what_was_printed() {
    for (tool, arguments, expected) in [
        ("text", json!({"name": "Ada"}), "hello Ada hello Ada"),
        (
            "later",
            json!({"values": [1, 2], "scale": 2}),
            r#"{"sum": 6.0, "é": null}"#,
        ),
        ("plain", json!({}), r#"[{"x": 1}, "red", [2], true, null]"#),
        ("nothing", json!({}), "null"),
        ("by_another_name", json!({"b": 1, "a": 2}), r#"["a", "b"]"#),
        ("places", json!({}), r#"[true, "tools.py", "tools", ""]"#),
    ] {
        assert_eq!(called(&format!("py__{tool}"), &arguments).await.1, expected, "{tool}");
    }
}

/// The warning about imports that no package provides leaves these out.
#[tokio::test]
async fn modules_that_stand_in_for_packages_are_imported() {
    let imports = knack_skill::functions::STAND_INS.map(|module| format!("import {module}\n"));
    let tools = format!(
        "{}def done() -> str:\n    \"\"\"Tells.\"\"\"\n    return 'done'\n",
        imports.concat()
    );
    assert_eq!(called_in(tools.leak(), "py__done", &json!({})).await.1, "done");
}

#[tokio::test]
async fn arguments_become_what_the_function_declares() {
    let kinds = |color: &str, more: Value| {
        let mut arguments = json!({"color": color, "colors": ["red", "red"], "day": "2026-02-03", "at": "2026-02-03T04:05:06Z",
            "price": "1.50", "path": "a/b.txt"});
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        arguments
    };
    let found = |rest: &str| format!(r#"["RED", ["RED", "RED"], 2026, 0, "2.50", "b.txt", "LOW", {rest}]"#);
    for (tool, arguments, expected) in [
        ("kinds", kinds("red", json!({})), found("10, null")),
        ("kinds", kinds("red", json!({"level": 1, "limit": 5})), found("5, null")),
        // Models write null for an option that they leave out.
        (
            "kinds",
            kinds("red", json!({"limit": null, "label": null})),
            found("10, null"),
        ),
        (
            "kinds",
            kinds("red", json!({"day": "tomorrow"})),
            "Error: day: 'tomorrow' cannot be read as date: Invalid isoformat string: 'tomorrow'".to_owned(),
        ),
        (
            "kinds",
            kinds("red", json!({"price": "1,50"})),
            "Error: price: '1,50' cannot be read as Decimal".to_owned(),
        ),
        ("by_place", json!({"b": 5}), "[1, 5, 3]".to_owned()),
        ("by_place", json!({"a": 7, "c": 9}), "[7, 2, 9]".to_owned()),
    ] {
        assert_eq!(
            called(&format!("py__{tool}"), &arguments).await.1,
            expected,
            "{tool} {arguments}"
        );
    }
}

/// Functions without a decorator, whose schemas have all types.
const TYPED: &str = r#"
import dataclasses, datetime, decimal, enum
from typing import Literal, NamedTuple, TypedDict

class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"

class Auto(enum.Enum):
    ONE = enum.auto()
    TWO = enum.auto()

@dataclasses.dataclass
class Point:
    x: float
    day: "datetime.date | None" = None

    def __post_init__(self):
        if self.x < 0:
            raise ValueError("x is negative")

class Row(TypedDict, total=False):
    price: decimal.Decimal
    points: list[Point]

class Pair(NamedTuple):
    left: int
    right: "int | Color" = 2

def f(point: Point, row: Row, pair: Pair, auto: Auto, colors: set[Color], either: "int | Point | Color", mode: Literal["a", 1],
      named: dict[str, Point] = {}, when: "datetime.date | int" = 0, at: tuple[int, datetime.date] = ()) -> str:
    """Takes all kinds."""
    return repr([point, row, pair, auto, colors, either, mode, named, when, at])
"#;

#[tokio::test]
async fn classes_and_unions_reach_the_function_as_its_schema_says() {
    let with = |changes: Value| {
        let mut arguments = json!({"point": {"x": 1, "day": "2026-01-02"}, "row": {"price": "1.5", "points": [{"x": 2}]},
            "pair": {"left": 1, "right": "red"}, "auto": "TWO", "colors": ["red"], "either": "blue", "mode": 1,
            "named": {"p": {"x": 3}}, "when": "2026-01-02", "at": [1, "2026-01-02"]});
        let members = arguments.as_object_mut().unwrap();
        members.extend(changes.as_object().unwrap().clone());
        arguments
    };
    let (day, red) = ("datetime.date(2026, 1, 2)", "<Color.RED: 'red'>");
    let made = |either: &str, when: &str| {
        format!(
            "[Point(x=1.0, day={day}), {{'price': Decimal('1.5'), 'points': [Point(x=2.0, day=None)]}}, Pair(left=1, right={red}), \
             <Auto.TWO: 2>, {{{red}}}, {either}, 1, {{'p': Point(x=3.0, day=None)}}, {when}, (1, {day})]"
        )
    };
    for (changes, expected) in [
        (json!({}), made("<Color.BLUE: 'blue'>", day)),
        (json!({"either": 5, "when": 6}), made("5", "6")),
        (json!({"either": {"x": 4}}), made("Point(x=4.0, day=None)", day)),
        (
            json!({"point": {"x": -1}}),
            "Error: point: {'x': -1} cannot be read as Point: x is negative".to_owned(),
        ),
    ] {
        assert_eq!(
            called_in(TYPED, "py__f", &with(changes.clone())).await.1,
            expected,
            "{changes}"
        );
    }
    // What the schema does not say never reaches the function.
    for changes in [
        json!({"point": {"x": 1, "z": 2}}),
        json!({"point": {}}),
        json!({"auto": "THREE"}),
        json!({"either": "green"}),
        json!({"pair": {"left": 1, "right": []}}),
        json!({"mode": "b"}),
    ] {
        let said = called_in(TYPED, "py__f", &with(changes.clone())).await.1;
        assert!(said.contains("do not match its schema"), "{changes}: {said}");
    }
    let green =
        json!({"color": "green", "colors": [], "day": "2026-02-03", "at": "2026-02-03", "price": "1", "path": "a"});
    let said = called("py__kinds", &green).await.1;
    assert!(said.contains("do not match its schema"), "{said}");
}

#[tokio::test]
async fn a_model_reads_the_text_of_an_error_and_whether_it_may_call_again() {
    for (tool, arguments, expected) in [
        ("fails", json!({"why": "boom"}), "Error: boom"),
        (
            "fails_safely",
            json!({}),
            "Error: KeyError: 'key'\nCalling it again with the same arguments is safe.",
        ),
        (
            "leaves",
            json!({"code": 0}),
            "Error: the function ended the program with exit code 0, and returned nothing",
        ),
        ("dies", json!({}), "Error (exit 7): imported\ngone"),
        (
            "strange",
            json!({}),
            "Error: the result has no form as JSON: a value of the type object is no text, number, list or dict",
        ),
        (
            "infinite",
            json!({}),
            "Error: the result has no form as JSON: Out of range float values are not JSON compliant",
        ),
        (
            "later",
            json!({"values": [1], "sclae": 2}),
            "Error: later() got an unexpected keyword argument 'sclae'",
        ),
    ] {
        assert_eq!(called(&format!("py__{tool}"), &arguments).await.1, expected, "{tool}");
    }
    let (_, said) = called("py__lacks", &json!({})).await;
    assert!(said.starts_with("Error: No module named 'no_such_module'"), "{said}");
    assert!(said.contains("nothing can be installed at run time"), "{said}");
}

#[tokio::test]
async fn arguments_that_the_schema_refuses_run_nothing() {
    for (arguments, said) in [
        (json!({}), "\"name\" is required"),
        (json!({"name": 1}), "do not match its schema"),
        (json!({"name": "x", "times": "many"}), "do not match its schema"),
    ] {
        let text = called("py__text", &arguments).await.1;
        assert!(
            text.contains(said) && text.contains("nothing ran"),
            "{arguments}: {text}"
        );
    }
    let text = called("py__text", &json!({"name": "x".repeat(140_000)})).await.1;
    assert!(text.contains("at most 131071 fit"), "{text:.200}");
}

#[tokio::test]
async fn a_huge_value_is_cut_or_ended_as_every_result_is() {
    let text = called("py__huge", &json!({"bytes": 200_000})).await.1;
    assert!(text.len() <= knack_skill::texts::MAX_RESULT_BYTES, "{}", text.len());
    assert!(text.contains("bytes cut here]"), "{text:.100}");
    let text = called("py__huge", &json!({"bytes": 2 << 20})).await.1;
    assert!(text.contains("ended by the sandbox: too much output"), "{text:.200}");
}

#[tokio::test]
async fn artifacts_are_files_with_their_title_and_type() {
    let (knack, said) = called("py__page", &json!({"title": "My page / 1"})).await;
    let expected = "[Artifact: My page / 1]\n{\"type\": \"html\"}\nFiles for the user: My-page---1.html (text/html";
    assert!(said.starts_with(expected) && said.contains("data.csv"), "{said}");
    let made = knack.folder.path().join("knack-files");
    assert!(made.exists(), "{said}");
    let (_, said) = called("py__again", &json!({"id": "a1"})).await;
    assert!(
        said.starts_with("[Updated artifact: a1]\nFiles for the user: a1.txt"),
        "{said}"
    );
}

#[tokio::test]
async fn a_function_without_configuration_gets_a_context_that_reports() {
    let (_, said) = called("py__builds", &json!({"title": "Site"})).await;
    let expected = "[{}, {}, true, null, \"Site\"]\nFiles for the user: Site.html (text/html";
    assert!(said.starts_with(expected), "{said}");
}

#[tokio::test]
async fn a_granted_value_reaches_a_function_that_asks_for_it() {
    let document = DOCUMENT.replace("- python: tools.py", "- python: tools.py\n    env: [TOKEN]");
    let python = "import os\ndef show() -> str:\n    '''Shows.'''\n    open('made.txt', 'w').write('x')\n    return os.environ.get('TOKEN', 'none')\n";
    for (granted, expected) in [(false, "none"), (true, "granted")] {
        let grants: &[String] = if granted { &["py:TOKEN".to_owned()] } else { &[] };
        let knack = start(Start {
            skills: vec![("py/SKILL.md", document.clone().leak()), ("py/tools.py", python)],
            script: "turns:\n  - rounds:\n      - reply: {calls: [{tool: py__show, arguments: {}}]}\n      - reply: {text: \"{{results}}\"}\n".to_owned(),
            executor: std::sync::Arc::new(super::runner::executor(0).await),
            grants: knack_gateway::runs::grants::Grants::parse(grants, |_| Some("granted".to_owned())).unwrap(),
            ..Start::default()
        })
        .await;
        let body = json!({"model": "claude-x", "max_tokens": 1000, "messages": [{"role": "user", "content": "go"}]});
        let said = knack.send(knack.messages(&body)).await.said();
        assert!(
            said.contains(expected) && said.contains("made.txt"),
            "{granted}: {said}"
        );
    }
}

/// The examples of docs/skills.md: a tool with a command, and the SkillRuntime that limits it.
#[tokio::test]
async fn the_tool_that_the_docs_mark_is_refused_by_the_limit_that_they_show() {
    let page = include_str!("../../docs/skills.md");
    let block = |part: &str| {
        let mut blocks = page
            .split("```yaml\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next());
        blocks.find(|block| block.contains(part)).unwrap()
    };
    let (tools, runtime) = (block("risk: "), block("maxRisk: "));
    // With a tool that may run, a model has `run_skill_tool`.
    let other = "  - {name: look, description: Looks., command: [python3, look.py]}";
    let document = format!("---\nname: tables\ndescription: d\n{tools}{other}\n---\nRemove it.\n");
    let knack = start(Start {
        skills: vec![("runtime.yaml", runtime), ("tables/SKILL.md", document.leak())],
        script: CALL_AND_TELL.replace("SKILL", "tables"),
        ..Start::default()
    })
    .await;
    let said = knack.send(knack.messages(&asked())).await.said();
    assert!(
        said.contains("its risk is Dangerous, and this runtime runs tools up to Moderate"),
        "{said}"
    );
    assert!(reported(&knack, "tool \"wipe\" of skill default/tables is not offered"));
}

#[tokio::test]
async fn a_function_above_the_runtimes_limit_of_risk_is_not_offered_and_does_not_run() {
    let python = "from tukuy.skills import skill\n\
        @skill(side_effects=True)\ndef wipe():\n    'Wipes.'\n    open('gone.txt', 'w').write('x')\n    return 'all gone'\n\
        @skill\ndef look():\n    'Looks.'\n    return 'seen'\n";
    // A second skill, listed: a model has another way to its tools.
    let listed = DOCUMENT
        .replace("name: py", "name: other")
        .replace("Always", "Listed")
        .leak();
    for (limit, offered) in [("Safe", false), ("Moderate", true)] {
        let runtime = format!(
            "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {{name: r}}\nspec: {{maxActivation: Always, maxRisk: {limit}}}\n"
        );
        let knack = start(Start {
            skills: vec![
                ("runtime.yaml", runtime.leak()),
                ("py/SKILL.md", DOCUMENT),
                ("py/tools.py", python),
                ("other/SKILL.md", listed),
                ("other/tools.py", python),
            ],
            script: CALL_AND_TELL.replace("SKILL", "other"),
            executor: std::sync::Arc::new(super::runner::executor(0).await),
            ..Start::default()
        })
        .await;
        let said = knack.send(knack.messages(&asked())).await.said();
        let sent = knack.upstream();
        let tools = sent["tools"].as_array().unwrap().iter();
        let names: Vec<&str> = tools.filter_map(|tool| tool["name"].as_str()).collect();
        assert!(names.contains(&"py__look"), "{names:?}");
        assert_eq!(names.contains(&"py__wipe"), offered, "{limit}: {names:?}");
        assert_eq!(said.contains("all gone"), offered, "{limit}: {said}");
        let refused = "its risk is Moderate, and this runtime runs tools up to Safe";
        assert_eq!(said.contains(refused), !offered, "{limit}: {said}");
        assert_eq!(reported(&knack, "raise spec.maxRisk"), !offered, "{limit}");
    }
}

#[tokio::test]
async fn a_broken_edit_of_the_file_keeps_the_last_good_functions() {
    let knack = start(Start {
        skills: vec![("py/SKILL.md", DOCUMENT), ("py/tools.py", TOOLS)],
        ..Start::default()
    })
    .await;
    let file = knack.folder.path().join("skills/py/tools.py");
    let body = json!({"model": "claude-x", "max_tokens": 1000, "messages": [{"role": "user", "content": "go"}]});
    let offered = |sent: &Value| {
        let tools = sent["tools"].as_array().unwrap().clone();
        let has = |name: &str| tools.iter().any(|tool| tool["name"] == name);
        (has("py__text"), has("py__new"))
    };
    for (text, expected) in [
        ("@skill\ndef new(a: int:\n".to_owned(), (true, false)),
        ("def new(a: int):\n    '''New.'''\n".to_owned(), (false, true)),
    ] {
        std::fs::write(&file, text).unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_mins(1);
        loop {
            assert_eq!(knack.send(knack.messages(&body)).await.status, 200);
            let seen = offered(&knack.upstream());
            let reported = !knack.gateway.catalog.current().reports.is_empty();
            if seen == expected && reported == expected.0 {
                break;
            }
            assert!(std::time::Instant::now() < until, "{seen:?}");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

/// The schema of HUSK parameters says `string` of each, and models write numbers all the same.
#[tokio::test]
async fn a_declared_tool_takes_numbers_as_words_of_its_command_line() {
    let skill = "---\nname: Echo\ndescription: d\nmode: llm\nactivation: Always\ntools:\n  - name: args\n    description: d\n    command: [python3, args.py]\n    parameters:\n      - {name: q, description: d, required: true}\n      - {name: n, description: d}\n---\nx\n";
    let script = "turns:\n  - rounds:\n      - reply: {calls: [{tool: {suffix: args}, arguments: {q: 0, n: 2.5}}]}\n      - reply: {text: \"{{results}}\"}\n";
    let knack = start(Start {
        skills: vec![
            ("echo/SKILL.md", skill),
            ("echo/args.py", "import sys\nprint(sys.argv[1:])\n"),
        ],
        script: script.to_owned(),
        executor: std::sync::Arc::new(super::runner::executor(1).await),
        ..Start::default()
    })
    .await;
    for row in ROWS {
        let said = Talk::plain(row, "echo").hear(&knack).await.text;
        assert!(said.contains("['0', '--n', '2.5']"), "{row:?}: {said}");
    }
}
