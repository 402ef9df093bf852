//! JSON that others wrote, as values, within a bound: a list of small values takes ten times the memory of its text.

use serde_json::Value;

/// Values of one text: a hundred times as many as any body of these APIs has, and a few megabytes of memory.
const VALUES_MAX: usize = 100_000;

/// Why a text was not read.
#[derive(Debug, thiserror::Error)]
pub enum JsonBodyError {
    /// It is no JSON.
    #[error("not valid JSON: {0}")]
    Invalid(#[from] serde_json::Error),
    /// It has too many values.
    #[error("too large: it has more than {VALUES_MAX} JSON values")]
    TooMany,
}

/// Reads a text. It is weighed before a value is made.
///
/// # Errors
///
/// No JSON, or too many values.
pub fn read_json(text: &[u8]) -> Result<Value, JsonBodyError> {
    weigh_json(text)?;
    Ok(serde_json::from_slice(text)?)
}

/// Refuses a text of too many values, for those who read it themselves: one begins at each bracket and follows each comma, outside
/// of strings.
///
/// # Errors
///
/// [`JsonBodyError::TooMany`].
pub fn weigh_json(text: &[u8]) -> Result<(), JsonBodyError> {
    let (mut values, mut in_string, mut is_escaped) = (0, false, false);
    for byte in text {
        if in_string {
            in_string = is_escaped || *byte != b'"';
            is_escaped = !is_escaped && *byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' | b',' => values += 1,
            _ => {}
        }
        if values > VALUES_MAX {
            return Err(JsonBodyError::TooMany);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_of_many_values_is_refused_before_it_is_read() {
        let list = |values: usize| format!("[{}1]", "1,".repeat(values - 1));
        assert!(matches!(
            read_json(list(VALUES_MAX + 1).as_bytes()),
            Err(JsonBodyError::TooMany)
        ));
        assert!(read_json(list(VALUES_MAX - 1).as_bytes()).is_ok());
        assert!(matches!(
            read_json(&b"[".repeat(VALUES_MAX + 1)),
            Err(JsonBodyError::TooMany)
        ));
        assert!(matches!(read_json(&b"[".repeat(200)), Err(JsonBodyError::Invalid(_))));
    }

    #[test]
    fn brackets_and_commas_in_strings_are_no_values() {
        let text = "[,{\"\\".repeat(VALUES_MAX);
        let value = json!({"a": text, "b": ["\\", "\""]});
        assert_eq!(read_json(value.to_string().as_bytes()).unwrap(), value);
    }
}
