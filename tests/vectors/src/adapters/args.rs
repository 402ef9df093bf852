//! Adapters of `args.json`: HUSK tool declarations, argv and result texts.

use knack_skill::model::Tool;
use knack_skill::tool_result::{self, ToolOutcome};
use knack_skill::tools::ToolDeclaration;
use knack_skill::{argv, tools, yaml};
use serde_json::{Value, json};

use crate::facts::tool_env;
use crate::registry::{Failure, Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("args", "argv", build_argv),
    Op::new("args", "parse_tools", parse_tools),
    Op::new("args", "tool_result_text", tool_result_text),
    Op::new("args", "tool_env", tool_env_names),
];

fn build_argv(input: &Value) -> Outcome {
    let mut declaration = input["tool"].clone();
    if declaration["description"].is_null() {
        // The cases leave it out; a declaration needs one.
        declaration["description"] = "d".into();
    }
    let tool = Tool::from(one_tool(&declaration)?);
    match argv::build(&tool, &input["arguments"]) {
        Ok(argv) => Ok(json!({"argv": argv})),
        Err(error) => Err(Failure::new(error.to_string())),
    }
}

fn one_tool(declaration: &Value) -> Result<ToolDeclaration, Failure> {
    let (tools, findings) = tools::read(&json!([declaration]));
    match tools.into_iter().next() {
        Some(tool) if findings.is_empty() => Ok(tool),
        _ => Err(Failure::new(
            findings
                .first()
                .map(|finding| finding.message.clone())
                .unwrap_or_default(),
        )),
    }
}

fn parse_tools(input: &Value) -> Outcome {
    let text = input["frontmatter_tools_yaml"].as_str().unwrap_or_default();
    let node = yaml::parse(&format!("tools:\n{text}\n")).map_err(|error| Failure::new(error.message))?;
    if let Some((key, _)) = node.repeated_key() {
        return Err(Failure::new(format!("SKILL.md: key `{key}` appears twice")));
    }
    let (tools, mut findings) = tools::read(&node.to_json()["tools"]);
    findings.extend(tools::check(&tools));
    if let Some(finding) = findings.into_iter().find(knack_skill::finding::Finding::is_refused) {
        return Err(Failure::new(format!("SKILL.md: {}", finding.message)));
    }
    Ok(json!({"tools": tools.iter().map(tool_json).collect::<Vec<_>>()}))
}

/// A declaration with its defaults, as HUSK shows it.
pub(super) fn tool_json(tool: &ToolDeclaration) -> Value {
    let parameters = tool.parameters.iter().map(|parameter| {
        json!({"name": parameter.name, "description": parameter.description, "required": parameter.required})
    });
    json!({
        "name": tool.name, "description": tool.description, "command": tool.command,
        "parameters": parameters.collect::<Vec<_>>(),
    })
}

fn tool_result_text(input: &Value) -> Outcome {
    let text = |key: &str| input[key].as_str().unwrap_or_default();
    let (stdout, stderr) = (text("stdout"), text("stderr"));
    let outcome = if input["timed_out"] == true {
        ToolOutcome::TimedOut { seconds: None }
    } else if let Some(reason) = input["spawn_error"].as_str() {
        ToolOutcome::NotStarted { reason }
    } else if let Some(name) = input["unknown_tool"].as_str() {
        ToolOutcome::UnknownTool { name }
    } else if let Some(reason) = input["rejected"].as_str() {
        ToolOutcome::Rejected { reason }
    } else if let Some(name) = input["signal"].as_str() {
        ToolOutcome::Signal { name, stdout, stderr }
    } else {
        let code = input["exit"]
            .as_i64()
            .and_then(|code| i32::try_from(code).ok())
            .unwrap_or_default();
        ToolOutcome::Exit { code, stdout, stderr }
    };
    Ok(tool_result::text(outcome).into())
}

fn tool_env_names(input: &Value) -> Outcome {
    let present = input["server_env"]
        .as_object()
        .into_iter()
        .flat_map(|members| members.keys().map(String::as_str));
    let requested: Vec<String> = input["tool_env"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    Ok(json!(tool_env::allowed(present, &requested)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_key_of_a_declaration_is_refused() {
        let declared = |yaml: &str| parse_tools(&json!({"frontmatter_tools_yaml": yaml}));
        assert!(declared("  - name: t\n    description: d\n    command: [x]").is_ok());
        for repeated in [
            "  - name: t\n    description: d\n    command: [x]\n    command: [y]",
            "  - name: t\n    description: d\n    command: [x]\n    parameters: [{name: a, name: b}]",
        ] {
            let refused = declared(repeated).unwrap_err();
            assert!(
                refused.message.contains("appears twice"),
                "{repeated}: {}",
                refused.message
            );
        }
    }
}
