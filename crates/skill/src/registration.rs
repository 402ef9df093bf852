//! Registrations of a skill registry: which are valid, and their defaults. OmniRoute's rules (docs/design/dialects.md#registry-records-and-versions).

use serde_json::{Map, Value};

const MAX_NAME_CHARS: usize = 100;
const MAX_DESCRIPTION_CHARS: usize = 500;
const MAX_HANDLER_CHARS: usize = 50_000;
/// The version of a registration that says none.
pub const DEFAULT_VERSION: &str = "1.0.0";
/// Members that a registration may have; others are refused.
const KNOWN: [&str; 11] = [
    "name",
    "version",
    "description",
    "schema",
    "handler",
    "enabled",
    "mode",
    "apiKeyId",
    "sourceProvider",
    "tags",
    "installCount",
];

/// A valid registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// 1 to 100 characters.
    pub name: String,
    /// Default 1.0.0. As it was written: `01.0.0` is the key of another record than `1.0.0`.
    pub version: String,
    /// At most 500 characters.
    pub description: String,
    /// Name of a handler; never code that is run.
    pub handler: String,
    /// Default true.
    pub enabled: bool,
}

/// Why a registration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct InvalidRegistration {
    /// The offending member, `schema.output` for a nested one, `unrecognized_keys` for unknown ones.
    pub field: String,
    /// What is wrong.
    pub message: String,
}

/// Longest version, bytes: that of `spec.version`.
pub const VERSION_MAX_BYTES: usize = 64;

/// A version as it was written. Errors: it is not three numbers, or longer than [`VERSION_MAX_BYTES`].
pub fn demand_version(text: &str) -> Result<String, InvalidRegistration> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if text.len() <= VERSION_MAX_BYTES && text.split('.').count() == 3 && text.split('.').all(is_number) {
        return Ok(text.to_owned());
    }
    Err(invalid("version", "must be three numbers such as 1.4.0"))
}

/// Checks a registration and fills in defaults. Reports the first invalid member.
pub fn check(registration: &Value) -> Result<Registration, InvalidRegistration> {
    let Value::Object(members) = registration else {
        return Err(invalid("", "must be an object"));
    };
    let name = text(members, "name", 1, MAX_NAME_CHARS)?;
    let version = match members.get("version") {
        None => DEFAULT_VERSION,
        Some(Value::String(version)) => version,
        Some(_) => return Err(invalid("version", "must be text")),
    };
    let version = demand_version(version)?;
    let description = match members.get("description") {
        None => String::new(),
        Some(_) => text(members, "description", 0, MAX_DESCRIPTION_CHARS)?,
    };
    let schema = members
        .get("schema")
        .and_then(Value::as_object)
        .ok_or_else(|| invalid("schema", "must be an object"))?;
    for part in ["input", "output"] {
        if !schema.get(part).is_some_and(Value::is_object) {
            return Err(invalid(&format!("schema.{part}"), "must be an object"));
        }
    }
    let handler = text(members, "handler", 1, MAX_HANDLER_CHARS)?;
    let enabled = match members.get("enabled") {
        None => true,
        Some(Value::Bool(enabled)) => *enabled,
        Some(_) => return Err(invalid("enabled", "must be true or false")),
    };
    if let Some(key) = members.keys().find(|key| !KNOWN.contains(&key.as_str())) {
        return Err(invalid("unrecognized_keys", &format!("unknown member {key}")));
    }
    Ok(Registration {
        name,
        version,
        description,
        handler,
        enabled,
    })
}

fn text(members: &Map<String, Value>, field: &str, min: usize, max: usize) -> Result<String, InvalidRegistration> {
    let Some(text) = members.get(field).and_then(Value::as_str) else {
        return Err(invalid(field, "must be text"));
    };
    let chars = text.chars().count();
    if (min..=max).contains(&chars) {
        return Ok(text.to_owned());
    }
    Err(invalid(
        field,
        &format!("must have {min} to {max} characters, has {chars}"),
    ))
}

fn invalid(field: &str, message: &str) -> InvalidRegistration {
    InvalidRegistration {
        field: field.to_owned(),
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_offending_member_is_named() {
        let valid = json!({"name": "s", "schema": {"input": {}, "output": {}}, "handler": "h"});
        let registered = check(&valid).unwrap();
        assert_eq!((registered.version.as_str(), registered.enabled), ("1.0.0", true));
        for version in ["01.0.0", "99999999999999999999.0.0"] {
            let mut valid = valid.clone();
            valid["version"] = version.into();
            assert_eq!(check(&valid).unwrap().version, version, "as it was written");
        }
        for (member, value) in [
            ("version", json!("1.0.0.0")),
            ("version", json!("1..0")),
            ("version", json!(format!("1.0.{}", "0".repeat(61)))),
            ("version", json!("+1.0.0")),
            ("name", json!("")),
            ("name", json!("n".repeat(101))),
            ("version", json!("1.0")),
            ("description", json!("d".repeat(501))),
            ("schema", json!(null)),
            ("handler", json!("h".repeat(50_001))),
            ("enabled", json!("yes")),
        ] {
            let mut registration = valid.clone();
            registration[member] = value;
            assert_eq!(check(&registration).unwrap_err().field, member);
        }
    }
}
