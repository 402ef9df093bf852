//! Schemas of tools that are valid and that providers refuse: every format takes them, and a tool gets what its author wrote.

use std::sync::LazyLock;

use super::support::{Start, start};
use super::talk::{Format, ROWS, Talk};

/// The first schema has all that some provider refuses: names outside of the pattern of Anthropic, two of which would get one name, a
/// combination at the top, arrays without items at several depths, and a list of items. Types and names of the function are Python's.
const SIZES: &str = "---
name: sizes
description: d
activation: Always
tools:
  - name: says
    description: Says what it got.
    command: [python3, says.py]
    inputSchema:
      type: object
      properties:
        größe: {type: integer, description: In cm.}
        a b: {type: string}
        a_b: {type: string}
        tags: {type: array}
        grid: {type: array, items: {type: [array, 'null']}}
        pair: {type: array, items: [{type: string}, {type: array}]}
      required: [größe]
      anyOf:
        - required: [tags]
        - required: [E-Mail an]
          properties: {E-Mail an: {type: string}}
  - python: tools.py
---
Say.
";

/// A tool whose description has 2,004 characters.
static CHATTY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "---\nname: chatty\ndescription: d\nactivation: Always\ntools:\n  - name: chatty\n    description: {}end.\n    command: [python3, say.py]\n---\nSay.\n",
        "word ".repeat(400)
    )
});

const TOOLS: &str = "def measure(größe: int, werte: list = None) -> dict:\n    \"\"\"Measures.\"\"\"\n    return {\"größe\": größe, \"werte\": werte}\n";

const SCRIPT: &str = r#"
turns:
  - rounds:
      - expect: {tool: sizes__says}
        reply:
          calls:
            - {tool: sizes__says, arguments: {gr__e: 5, a_b_2: x, a_b: w, tags: [1], grid: [[2]], pair: [z, []], E-Mail_an: ada}}
            - {tool: sizes__measure, arguments: {gr__e: 7, werte: [1, 2]}}
            - {tool: sizes__says, arguments: {größe: 9, tags: []}}
            - {tool: sizes__says, arguments: {gr__e: 9}}
      - reply: {text: "{{results}}"}
"#;

#[tokio::test]
async fn a_tool_with_a_schema_that_providers_refuse_works_with_every_format() {
    let knack = start(Start {
        skills: vec![
            ("sizes/SKILL.md", SIZES),
            (
                "sizes/says.py",
                "import json, sys\nprint(json.dumps(sys.argv[1:], ensure_ascii=False))\n",
            ),
            ("sizes/tools.py", TOOLS),
        ],
        script: SCRIPT.to_owned(),
        executor: std::sync::Arc::new(super::runner::executor(1).await),
        ..Start::default()
    })
    .await;
    for row in ROWS {
        let said = Talk::plain(row, "go").hear(&knack).await.text;
        for expected in [
            r#"["5", "--a b", "x", "--a_b", "w", "--tags", "[1]", "--grid", "[[2]]", "--pair", "[\"z\",[]]", "--E-Mail an", "ada"]"#,
            r#"{"größe": 7, "werte": [1, 2]}"#,
            r#"["9", "--tags", "[]"]"#,
            // What the provider is not told, the author's schema demands all the same.
            "anyOf",
        ] {
            assert!(said.contains(expected), "{row:?}: {expected} in {said}");
        }
    }
    // A gateway sends a request without its tools when they are refused.
    assert_eq!(knack.mock.handle.refusals(), Vec::new());
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// OpenAI refuses a request with a description over 1,024 characters; the other formats take it whole.
#[tokio::test]
async fn a_long_description_is_cut_where_the_provider_refuses_it() {
    let script = "turns:\n  - rounds:\n      - expect: {tool: chatty}\n        reply: {text: Done.}\n";
    let knack = start(Start {
        skills: vec![("chatty/SKILL.md", CHATTY.as_str()), ("chatty/say.py", "print(1)\n")],
        script: script.to_owned(),
        executor: std::sync::Arc::new(super::runner::executor(0).await),
        ..Start::default()
    })
    .await;
    for row in ROWS {
        let said = Talk::plain(row, "go").hear(&knack).await.text;
        assert_eq!(said, "Done.", "{row:?}");
        let is_whole = knack.upstream().to_string().contains(&"word ".repeat(400));
        assert_eq!(is_whole, row.0 != Format::Chat, "{row:?}");
    }
    assert_eq!(knack.mock.handle.refusals(), Vec::new());
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}
