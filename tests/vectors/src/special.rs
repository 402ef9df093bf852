//! Special values of the cases: `{"$repeat": [s, n]}`, `{"$concat": [..]}` and `{"$base64": s}`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Replaces `$repeat` and `$concat` by their text, everywhere inside `value`.
///
/// `$base64` becomes text where its bytes are UTF-8, otherwise it stays: [`bytes`] reads both.
pub(crate) fn expand(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(expand),
        Value::Object(members) => {
            members.values_mut().for_each(expand);
            if members.len() == 1
                && let Some(text) = text_of(members)
            {
                *value = Value::String(text);
            }
        }
        _ => {}
    }
}

fn text_of(members: &serde_json::Map<String, Value>) -> Option<String> {
    let (key, argument) = members.iter().next()?;
    match (key.as_str(), argument) {
        ("$repeat", Value::Array(pair)) => {
            let count = usize::try_from(pair.get(1)?.as_u64()?).ok()?;
            Some(pair.first()?.as_str()?.repeat(count))
        }
        ("$concat", Value::Array(parts)) => parts.iter().map(Value::as_str).collect(),
        ("$base64", Value::String(text)) => String::from_utf8(STANDARD.decode(text).ok()?).ok(),
        _ => None,
    }
}

/// The bytes of a string or of a `$base64` object; `None` for anything else.
pub(crate) fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.clone().into_bytes()),
        Value::Object(members) => STANDARD.decode(members.get("$base64")?.as_str()?).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn repeat_and_concat_become_text() {
        let mut value = json!({"a": {"$concat": ["x", {"$repeat": ["ab", 2]}, {"$base64": "eQ=="}]}});
        expand(&mut value);
        assert_eq!(value, json!({"a": "xababy"}));
    }

    #[test]
    fn base64_that_is_not_utf8_stays_and_is_read_as_bytes() {
        let mut value = json!({"$base64": "/w=="});
        expand(&mut value);
        assert_eq!(bytes(&value), Some(vec![0xff]));
    }
}
