//! Adapters of `toolcalls.json`: calls of Python functions, from the turn of the model to the message that answers it. What resolves,
//! renders and sends is the product; the functions run with `python3` of this machine and without a sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use knack_skill::call::{self, CallContext, Decision, End, Outcome as RunOutcome, Program, RunSpec};
use knack_skill::catalog::Catalog;
use knack_skill::fixture::mk_settings;
use knack_skill::model::ActivationMode;
use knack_skill::plan::{Action, Plan};
use knack_tool_schema::validate;
use knack_wire::drive::CallOutcome;
use knack_wire::{Format, ToolCall};
use serde_json::{Value, json};

use super::exchange::{ExchangeResult, play_calls};
use super::injection::tools::planned;
use super::invoke::{IMPORT, loaded, run};
use super::omniroute::{items, text};
use crate::registry::{Failure, Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("toolcalls", "tukuy_dispatch_openai", openai),
    Op::new("toolcalls", "tukuy_dispatch_anthropic", anthropic),
    Op::new("toolcalls", "cachibot_tool_result", failed),
];

/// A skill whose tools are functions.
struct Functions {
    source: String,
    catalog: Catalog,
    plan: Plan,
}

impl Functions {
    /// Functions in the words of a case, by name.
    fn told(words: &Value) -> Result<Self, Failure> {
        let mut source = IMPORT.to_owned();
        for (name, words) in words.as_object().into_iter().flatten() {
            source.push_str(&function(name, words.as_str().unwrap_or_default())?);
        }
        let mut skill = loaded(&source)?;
        skill.activation = ActivationMode::Always;
        let catalog = Catalog::compile_named(vec![Arc::new(skill)], mk_settings(), &BTreeMap::new());
        let plan = planned(&catalog, &json!({}), &[])?;
        Ok(Self { source, catalog, plan })
    }

    /// The name that the model knows a function by; another name is the client's.
    fn wire_name<'a>(&'a self, name: &'a str) -> &'a str {
        let found = self.plan.tools.iter().find(|tool| match &tool.action {
            Action::Declared { skill, tool } => skill.tools.get(*tool).is_some_and(|tool| tool.name == name),
            _ => false,
        });
        found.map_or(name, |tool| &tool.name)
    }

    /// Plays a turn of the model with one call.
    fn play(&self, format: Format, answers: &[(u16, Value)]) -> Result<ExchangeResult, Failure> {
        let names: Vec<String> = self.plan.tools.iter().map(|tool| tool.name.clone()).collect();
        play_calls(format, &names, answers, &|call| self.answered(call))
    }

    fn answered(&self, call: &ToolCall) -> Result<CallOutcome, Failure> {
        let context = CallContext {
            plan: &self.plan,
            catalog: &self.catalog,
            loaded: &[],
            validate: &validate,
        };
        let (text, is_error) = match call::resolve(&context, &call.name, &call.arguments) {
            Some(Decision::Text { text, is_error, .. }) => (text, is_error),
            Some(Decision::Run(spec)) => {
                let outcome = self.ran(&spec)?;
                (call::render(&spec, &outcome), call::is_error(&outcome))
            }
            None => return Err(Failure::of_adapter(format!("{} is no tool of ours", call.name))),
        };
        Ok(CallOutcome {
            text,
            is_error,
            ..CallOutcome::default()
        })
    }

    fn ran(&self, spec: &RunSpec) -> Result<RunOutcome, Failure> {
        let Program::Tool(tool) = &spec.program else {
            return Err(Failure::of_adapter("not a declared tool"));
        };
        let ended = run(&self.source, &tool.argv)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(RunOutcome {
            end: ended.status.code().map_or(End::Signal(9), End::Exit),
            duration_ms: 1,
            stdout: text(&ended.stdout),
            stderr: text(&ended.stderr),
            truncated: false,
            files: Vec::new(),
            file_errors: Vec::new(),
        })
    }
}

/// `PARAMETERS -> VALUE`, `returns VALUE` or `raises ERROR` as a function.
fn function(name: &str, words: &str) -> Result<String, Failure> {
    let (parameters, body) = if let Some((parameters, value)) = words.split_once(" -> ") {
        (parameters, format!("return {value}"))
    } else if let Some(value) = words.strip_prefix("returns ") {
        ("", format!("return {value}"))
    } else if let Some(error) = words.strip_prefix("raises ") {
        ("x: int = 0", format!("raise {error}"))
    } else {
        return Err(Failure::of_adapter(format!(
            "a function in words that this adapter does not know: {words}"
        )));
    };
    Ok(format!("\n@skill\ndef {name}({parameters}):\n    {body}\n"))
}

/// The last message of the request that follows the call.
fn answer(played: &ExchangeResult) -> Result<Value, Failure> {
    let [_, second] = played.sent.as_slice() else {
        return Err(Failure::new("the call is left to the client"));
    };
    let body: Value = serde_json::from_slice(second).map_err(|error| Failure::of_adapter(error.to_string()))?;
    let last = items(&body, "messages").last().cloned();
    last.ok_or_else(|| Failure::of_adapter("a request without messages"))
}

fn openai(input: &Value) -> Outcome {
    let functions = Functions::told(&input["skills"])?;
    let mut call = input["tool_call"].clone();
    call["type"] = "function".into();
    call["function"]["name"] = functions.wire_name(text(&call["function"], "name")).into();
    let choice = |message: Value, finish: &str| {
        (
            200,
            json!({"id": "r", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}),
        )
    };
    let turn = choice(
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        "tool_calls",
    );
    let last = choice(json!({"role": "assistant", "content": "done"}), "stop");
    answer(&functions.play(Format::Chat, &[turn, last])?)
}

fn anthropic(input: &Value) -> Outcome {
    let functions = Functions::told(&input["skills"])?;
    let mut call = input["tool_use"].clone();
    call["type"] = "tool_use".into();
    call["name"] = functions.wire_name(text(&call, "name")).into();
    let message = |content: Value, stop: &str| {
        (
            200,
            json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": stop, "usage": {"input_tokens": 1, "output_tokens": 1}}),
        )
    };
    let turn = message(json!([call]), "tool_use");
    let last = message(json!([{"type": "text", "text": "done"}]), "end_turn");
    let answer = answer(&functions.play(Format::Messages, &[turn, last])?)?;
    Ok(answer["content"][0].clone())
}

/// The text of a function that fails.
fn failed(input: &Value) -> Outcome {
    if !text(input, "case").contains("fail") {
        return Err(Failure::of_adapter("a case that this adapter does not know"));
    }
    let call = json!({
        "skills": {"fails": "raises RuntimeError(\"<message>\")"},
        "tool_call": {"id": "c", "function": {"name": "fails", "arguments": "{}"}},
    });
    Ok(openai(&call)?["content"].clone())
}
