//! Values for tests.

use knack_skill::call::ToolRun;
use knack_skill::model::SkillRef;
use knack_skill::risk::Risk;
use serde_json::Map;

/// A run of the tool `now` of a skill that asks for these environment names.
pub fn mk_tool_run(namespace: &str, skill: &str, env: &[&str]) -> ToolRun {
    ToolRun {
        skill: SkillRef {
            namespace: namespace.to_owned(),
            name: skill.to_owned(),
        },
        tool: "now".to_owned(),
        arguments: Map::new(),
        argv: vec!["python3".to_owned(), "now.py".to_owned()],
        env: env.iter().map(ToString::to_string).collect(),
        is_open: false,
        risk: Risk::Safe,
        config: Vec::new(),
    }
}
