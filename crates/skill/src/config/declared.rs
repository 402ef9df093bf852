//! What is wrong with a declaration, or not honoured of it.

use super::param::{ConfigParam, ParamKind};
use super::value::check;

/// Most parameters of one function: a status lists them for each tool.
pub const MAX_PARAMS: usize = 32;
/// Longest name, in bytes: it becomes a part of the name of a variable.
const NAME_MAX: usize = 64;
/// Most options of one parameter, as in a status.
const OPTIONS_MAX: usize = 64;
/// Longest option, in characters, as in a status.
const OPTION_MAX_CHARS: usize = 128;
/// Most bytes of all options of one function. A status lists those of 64 tools, and an object has room for 1.5 MiB.
const OPTIONS_MAX_BYTES: usize = 8 * 1024;
/// Most entries of a list or map that a declaration may speak of: a value comes in an environment variable, which holds 128 KiB.
const ITEMS_MAX: u64 = 65_536;

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
    let options = params.iter().flat_map(|param| param.options.iter().flatten());
    let bytes: usize = options.map(String::len).sum();
    if bytes > OPTIONS_MAX_BYTES {
        return Some(format!(
            "declares config parameters whose options have {bytes} bytes together; at most {OPTIONS_MAX_BYTES} are possible"
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
        if is_second {
            return Some(format!("declares the config parameter {name:?} twice"));
        }
        let why = beyond_status(param)?;
        Some(format!("has a config parameter {name:?} with {why}"))
    })
}

/// What of a parameter a status has no room for, if anything.
fn beyond_status(param: &ConfigParam) -> Option<String> {
    let options = param.options.as_deref().unwrap_or_default();
    if options.len() > OPTIONS_MAX {
        return Some(format!("{} options; at most {OPTIONS_MAX} are possible", options.len()));
    }
    let mut lengths = options.iter().map(|option| option.chars().count());
    if let Some(length) = lengths.find(|length| *length > OPTION_MAX_CHARS) {
        return Some(format!(
            "an option of {length} characters; at most {OPTION_MAX_CHARS} are possible"
        ));
    }
    let mut items = param.min_items.iter().chain(&param.max_items);
    let items = items.find(|items| **items > ITEMS_MAX)?;
    Some(format!("a bound of {items} entries; at most {ITEMS_MAX} are possible"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::param::fixture::param;

    #[test]
    fn what_a_status_has_no_room_for_is_refused_by_name() {
        let options = |count: usize, length: usize| -> Vec<String> {
            (0..count).map(|number| format!("{number:0length$}")).collect()
        };
        for (declared, expected) in [
            (json!({"type": "select", "options": options(64, 128)}), None),
            (
                json!({"type": "select", "options": options(65, 2)}),
                Some("\"p\" with 65 options; at most 64"),
            ),
            (
                json!({"type": "multiselect", "options": vec!["é".repeat(129)]}),
                Some("\"p\" with an option of 129 characters; at most 128"),
            ),
            (json!({"type": "select", "options": vec!["é".repeat(128)]}), None),
            (json!({"type": "list", "minItems": 1, "maxItems": 65_536}), None),
            (
                json!({"type": "list", "maxItems": u64::MAX}),
                Some("\"p\" with a bound of 18446744073709551615 entries"),
            ),
        ] {
            let refused = refusal(&[param(&declared)]);
            assert_eq!(refused.is_some(), expected.is_some(), "{declared}: {refused:?}");
            let text = refused.unwrap_or_default();
            assert!(text.contains(expected.unwrap_or_default()), "{text}");
        }
        let two = ["p", "q"].map(|name| param(&json!({"name": name, "type": "select", "options": options(64, 100)})));
        let text = refusal(&two).unwrap();
        assert!(text.contains("12800 bytes together; at most 8192"), "{text}");
    }

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
