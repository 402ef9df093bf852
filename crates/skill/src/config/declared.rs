//! What is wrong with a declaration, or not honoured of it.

use super::param::{ConfigParam, ParamKind};
use super::value::check;

/// Most parameters of one function: a status lists them for each tool.
pub const MAX_PARAMS: usize = 32;
/// Longest name, in bytes: it becomes a part of the name of a variable.
const NAME_MAX: usize = 64;

/// What of the declaration is not honoured or not known; each one clause, without the name.
pub(crate) fn notes(param: &ConfigParam) -> Vec<String> {
    let mut notes = Vec::new();
    if !param.has_known_kind() {
        notes.push(format!("its type {:?} is unknown, so its value is a text", param.kind));
    }
    if param.scope.as_deref() == Some("per_call") {
        notes.push("its scope is per_call, and the value that a runtime gives holds for every call".to_owned());
    }
    if matches!(param.value_kind(), ParamKind::Select | ParamKind::MultiSelect) && param.options.is_none() {
        notes.push(format!(
            "its type is {}, and it has no options, so no value fits",
            param.kind
        ));
    }
    // What a declaration gives by itself is the author's word: it holds, and only the author can mend it.
    if let Some(default) = &param.default
        && let Err(rule) = check(param, default)
    {
        notes.push(format!("its default {rule}"));
    }
    notes
}

/// Why the parameters of a function cannot be given values, if they cannot: one clause.
pub(crate) fn refusal(params: &[ConfigParam]) -> Option<String> {
    if params.len() > MAX_PARAMS {
        return Some(format!(
            "declares {} config parameters; at most {MAX_PARAMS} are possible",
            params.len()
        ));
    }
    params.iter().enumerate().find_map(|(at, param)| {
        let name = crate::inputs::shortened(&param.name);
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if param.name.is_empty() || param.name.len() > NAME_MAX || !param.name.bytes().all(is_legal) {
            return Some(format!(
                "has a config parameter {name:?}; a name has 1 to {NAME_MAX} letters, digits, \"_\", \"-\" and \".\""
            ));
        }
        let is_second = params[..at].iter().any(|before| before.name == param.name);
        is_second.then(|| format!("declares the config parameter {name:?} twice"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::param::fixture::param;
    use super::*;

    #[test]
    fn what_is_not_honoured_in_a_declaration_is_reported() {
        for (declared, expected) in [
            (json!({"default": "x"}), None),
            (json!({"type": "number", "default": 0, "min": 0}), None),
            (json!({"type": "banana"}), Some("\"banana\" is unknown")),
            (json!({"scope": "per_bot"}), None),
            (json!({"scope": "per_call"}), Some("per_call")),
            (json!({"type": "select"}), Some("no options")),
            (
                json!({"type": "number", "default": 9, "max": 5}),
                Some("its default must be at most 5"),
            ),
        ] {
            let notes = notes(&param(&declared));
            assert_eq!(notes.len(), usize::from(expected.is_some()), "{declared}: {notes:?}");
            assert!(
                notes.iter().all(|note| note.contains(expected.unwrap_or_default())),
                "{notes:?}"
            );
        }
    }
}
