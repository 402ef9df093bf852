//! Contradictions in a script that its types do not rule out.

use regex::Regex;

use super::script::{Block, Call, Script, ScriptError, Step};

/// Reports the first contradiction, with its position and what to do.
pub(super) fn check(script: &Script) -> Result<(), ScriptError> {
    if script.turns.is_empty() {
        return meaning("turns", "has no turn; add one with `rounds`");
    }
    for (turn_index, turn) in script.turns.iter().enumerate() {
        if turn.rounds.is_empty() {
            return meaning(
                format!("turns[{turn_index}].rounds"),
                "has no step; add one with `reply` or `fail`",
            );
        }
        for (step_index, step) in turn.rounds.iter().enumerate() {
            check_step(step, &format!("turns[{turn_index}].rounds[{step_index}]"))?;
        }
    }
    Ok(())
}

fn check_step(step: &Step, path: &str) -> Result<(), ScriptError> {
    for (name, pick) in &step.pick {
        if let Err(error) = Regex::new(&pick.regex) {
            return meaning(
                format!("{path}.pick.{name}.regex"),
                format!("does not compile: {error}"),
            );
        }
        if ["user", "tools", "results"].contains(&name.as_str()) {
            return meaning(format!("{path}.pick.{name}"), "is a built-in name; choose another");
        }
    }
    for (index, call) in step.reply.calls.iter().enumerate() {
        check_call(call, &format!("{path}.reply.calls[{index}]"))?;
    }
    for (index, block) in step.reply.blocks.iter().enumerate() {
        if let Block::Call(call) = block {
            check_call(call, &format!("{path}.reply.blocks[{index}].call"))?;
        }
    }
    if step.stream.chunk_bytes == Some(0) || step.stream.piece_chars == 0 || step.stream.ping_every == Some(0) {
        return meaning(
            format!("{path}.stream"),
            "chunk_bytes, piece_chars and ping_every are at least 1",
        );
    }
    match &step.fail {
        Some(fail) if !(400..=599).contains(&fail.status) => {
            meaning(format!("{path}.fail.status"), "is not an error status; use 400 to 599")
        }
        Some(fail) if fail.body.is_some() && fail.raw_body.is_some() => {
            meaning(format!("{path}.fail"), "has both body and raw_body; keep one")
        }
        _ => Ok(()),
    }
}

fn check_call(call: &Call, path: &str) -> Result<(), ScriptError> {
    if call.tool.is_some() == call.unlisted.is_some() {
        return meaning(
            path,
            "needs either `tool` (picked from the offered tools) or `unlisted` (a name that is used as written)",
        );
    }
    if call.arguments.is_some() && call.raw_arguments.is_some() {
        return meaning(path, "has both arguments and raw_arguments; keep one");
    }
    Ok(())
}

fn meaning<T>(path: impl Into<String>, message: impl Into<String>) -> Result<T, ScriptError> {
    Err(ScriptError::Meaning {
        path: path.into(),
        message: message.into(),
    })
}

#[cfg(test)]
mod tests {
    use crate::script::Script;

    #[test]
    fn contradictions_are_reported_with_their_place() {
        for (yaml, path) in [
            ("turns: []", "turns"),
            ("turns:\n- rounds: []", "turns[0].rounds"),
            (
                "turns:\n- rounds:\n  - reply: {calls: [{arguments: {}}]}",
                "turns[0].rounds[0].reply.calls[0]",
            ),
            (
                "turns:\n- rounds:\n  - reply: {calls: [{tool: a, arguments: {}, raw_arguments: x}]}",
                "turns[0].rounds[0].reply.calls[0]",
            ),
            (
                "turns:\n- rounds:\n  - reply: {blocks: [{call: {tool: a, unlisted: b}}]}",
                "turns[0].rounds[0].reply.blocks[0].call",
            ),
            (
                "turns:\n- rounds:\n  - fail: {status: 200}",
                "turns[0].rounds[0].fail.status",
            ),
            (
                "turns:\n- rounds:\n  - fail: {status: 500, body: {}, raw_body: x}",
                "turns[0].rounds[0].fail",
            ),
            (
                "turns:\n- rounds:\n  - stream: {chunk_bytes: 0}",
                "turns[0].rounds[0].stream",
            ),
            (
                "turns:\n- rounds:\n  - pick: {a: {from: user, regex: '('}}",
                "turns[0].rounds[0].pick.a.regex",
            ),
            (
                "turns:\n- rounds:\n  - pick: {user: {from: user, regex: 'x'}}",
                "turns[0].rounds[0].pick.user",
            ),
        ] {
            let error = Script::parse(yaml).unwrap_err().to_string();
            assert!(error.contains(path), "{yaml}: {error}");
        }
    }
}
