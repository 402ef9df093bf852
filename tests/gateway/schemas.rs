//! Schemas of tools that are valid and that providers refuse: every format takes them, and a tool gets what its author wrote.

use super::support::{Start, start};
use super::talk::{ROWS, Talk};

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

const TOOLS: &str = "def measure(größe: int, werte: list = None) -> dict:\n    \"\"\"Measures.\"\"\"\n    return {\"größe\": größe, \"werte\": werte}\n";

const SCRIPT: &str = r#"
turns:
  - rounds:
      - expect: {tool: sizes__says}
        reply:
          calls:
            - {tool: sizes__says, arguments: {gr__e: 5, a_b_2: x, a_b: y, tags: [1], grid: [[2]], pair: [z, []], E-Mail_an: ada}}
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
            r#"["5", "--a b", "x", "--a_b", "y", "--tags", "[1]", "--grid", "[[2]]", "--pair", "[\"z\",[]]", "--E-Mail an", "ada"]"#,
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
