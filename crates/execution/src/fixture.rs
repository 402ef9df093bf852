//! Values for tests.

use std::time::Duration;

use bytes::Bytes;
use knack_skill::call::ToolRun;
use knack_skill::model::SkillRef;
use knack_skill::risk::Risk;
use serde_json::Map;

use crate::{ExecutionId, ExecutionResult, Exit, LockReport, StartKind, Stream, Timings};

/// The result of a run that ended so, wrote this to standard output, and nothing else.
pub fn mk_result(id: ExecutionId, exit: Exit, stdout: impl Into<Bytes>) -> ExecutionResult {
    ExecutionResult {
        id,
        exit,
        stdout: Stream {
            bytes: stdout.into(),
            truncated: false,
        },
        stderr: Stream::default(),
        files: Vec::new(),
        file_errors: Vec::new(),
        timings: Timings {
            queue_wait: Duration::ZERO,
            total: Duration::ZERO,
            run: Duration::ZERO,
            start: StartKind::Cold,
        },
        locks: LockReport::default(),
    }
}

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
