//! Configuration of functions: who gets the values of pins, `--set` and `--set-env`, and who never does.

use serde_json::{Value, json};

use super::program::{Program, folder, knack};
use super::{err, out};

/// Given by `--set-env`. Only the function may print it.
const SECRET: &str = "configured-4711";

const SKILL: &str = "---
name: prices
description: Quotes prices.
activation: Listed
tools: [{python: tools.py}]
---
x
";
const TOOLS: &str = "import json, os
from tukuy.skills import ConfigParam, SkillContext, skill

@skill(config_params=[
    ConfigParam(name='currency', type='select', options=['EUR', 'USD'], default='EUR'),
    ConfigParam(name='maxCost', type='number', min=0, max=50),
    ConfigParam(name='apiKey', type='secret', default=''),
])
def quote(amount: float, context: SkillContext) -> str:
    'Quotes.'
    left = sorted(name for name in os.environ if name.startswith('KNACK_CONFIG'))
    assert context.tool_configs == {'quote': context.config}
    assert callable(context.on_tool_output) and callable(context.on_artifact) and context.sandbox is None
    assert context.bot_id is None and context.chat_id is None and context.bot_models is None
    assert not hasattr(context, 'on_tool_outputs')
    return json.dumps([amount, context.config, left])
";
const RUNTIME: &str = "apiVersion: knack.dev/v1alpha1
kind: SkillRuntime
metadata: {name: main}
spec:
  skillSelector:
    skills:
      - name: prices
        config:
          - {name: currency, value: USD}
          - {name: apiKey, valueFrom: {secretKeyRef: {name: prices, key: key}}}
          - {name: quote.maxCost, value: '7'}
";
const FILES: &[(&str, &str)] = &[
    ("skills/prices/SKILL.md", SKILL),
    ("skills/prices/tools.py", TOOLS),
    ("skills/runtime.yaml", RUNTIME),
];

fn script() -> String {
    let reply = |calls: Value| json!({"reply": {"calls": [calls]}});
    let say = || json!({"reply": {"text": "{{results}}"}});
    let code = "import os; print('code has', dict(os.environ))";
    let tool = json!({"tool": "run_skill_tool", "arguments": {"skill": "prices", "tool": "quote", "arguments": {"amount": 3}}});
    json!({"turns": [
        {"user": "code", "rounds": [reply(json!({"tool": "run_code", "arguments": {"skill": "prices", "code": code}})), say()]},
        {"user": "tool", "rounds": [reply(tool), say()]},
    ]})
    .to_string()
}

#[tokio::test]
async fn the_function_gets_its_values_and_code_of_the_model_gets_none() {
    let folder = folder(FILES);
    std::fs::write(folder.path().join("script.yaml"), script()).unwrap();
    let arguments = ["--upstream", "mock=script.yaml", "--set-env", "prices.apiKey=KEY"];
    let program = Program::start(folder, &arguments, &[("KEY", SECRET)]).await;
    let ask = |user: &'static str| json!({"model": "gpt-x", "messages": [{"role": "user", "content": user}]});
    let said = program.post("/v1/chat/completions", &ask("code"), &[]).await;
    assert!(said.contains("code has"), "it ran: {said}");
    assert!(!said.contains(SECRET) && !said.contains("KNACK_CONFIG"), "{said}");
    let said = program.post("/v1/chat/completions", &ask("tool"), &[]).await;
    let said = said.replace('\\', "");
    for part in [
        "[3.0, ",
        "\"currency\": \"USD\"",
        "\"maxCost\": 7",
        &format!("\"apiKey\": \"{SECRET}\""),
        ", []]",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[tokio::test]
async fn a_run_from_the_command_line_has_the_same_rules() {
    let folder = folder(FILES);
    let call = [
        "skill",
        "run",
        "skills/prices",
        "--tool",
        "quote",
        "--arguments",
        "{\"amount\": 1}",
    ];
    for (set, code, said) in [
        (&[][..], 1, "maxCost has no value"),
        (&["--set", "prices.maxCost=99"], 1, "maxCost must be at most 50"),
        (
            &["--set", "price.maxCost=1"],
            1,
            "--set price.maxCost: the skill is prices, not price",
        ),
        (
            &["--set", "prices.maxCost=1", "--set", "prices.maxcost=1"],
            1,
            "--set prices.maxcost: no tool of this skill has that parameter; they have apiKey, currency, maxCost",
        ),
        (&["--set", "prices.maxCost=0.5"], 0, "\"maxCost\": 0.5"),
        (
            &["--set", "prices.maxCost=1", "--set", "prices.quote.maxCost=2"],
            0,
            "\"maxCost\": 2",
        ),
    ] {
        let output = knack(folder.path(), &[&call[..], set].concat(), &[]).await;
        let text = out(&output) + &err(&output);
        assert_eq!(output.status.code(), Some(code), "{set:?}: {text}");
        assert!(text.contains(said), "{set:?}: {text}");
    }
}

/// On a laptop there are no Secrets, and a secret in plain text is read by everybody who reads the file.
#[tokio::test]
async fn values_that_are_not_here_and_secrets_in_plain_text_are_reported_before_anything_runs() {
    let (not_here, in_plain_text) = (
        "--set-env prices.apiKey=VARIABLE",
        "is a secret and is given in plain text",
    );
    let given = format!("value: {SECRET}");
    let plain = RUNTIME.replace("valueFrom: {secretKeyRef: {name: prices, key: key}}", &given);
    for (runtime, arguments, said) in [
        (RUNTIME, &[][..], &[not_here][..]),
        (RUNTIME, &["--set-env", "prices.apiKey=KEY"], &[]),
        (&plain, &[], &[in_plain_text]),
    ] {
        let folder = folder(FILES);
        std::fs::write(folder.path().join("skills/runtime.yaml"), runtime).unwrap();
        std::fs::write(folder.path().join("script.yaml"), script()).unwrap();
        let validated = knack(folder.path(), &["skill", "validate", "skills"], &[]).await;
        let told = out(&validated);
        assert_eq!(told.contains(in_plain_text), said.contains(&in_plain_text), "{told}");
        let arguments = [&["--upstream", "mock=script.yaml"], arguments].concat();
        let program = Program::start(folder, &arguments, &[("KEY", SECRET)]).await;
        let greeting = program.greeting.join("\n");
        for text in [not_here, in_plain_text] {
            assert_eq!(
                greeting.contains(text),
                said.contains(&text),
                "{arguments:?}: {greeting}"
            );
        }
        assert!(!greeting.contains(SECRET) && !told.contains(SECRET));
    }
}
