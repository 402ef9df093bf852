//! Ids that other systems gave a skill, such as LiteLLM's `litellm_skill_<uuid>`. A request may name the skill by them.
//!
//! An id is an addition to the identity (namespace and name), and a name wins over it: see
//! [`crate::catalog::Catalog::find`].

use serde_json::Value;

use crate::finding::Finding;
use crate::inputs::{scalar_text, shortened};
use crate::problem::ProblemKind::FieldInvalid;

/// Most ids of one skill: the one of today and a few of earlier imports.
pub const MAX_IDS: usize = 8;
/// Longest id in bytes; `litellm_skill_` and a UUID have 50.
pub const MAX_ID_BYTES: usize = 128;
/// How requests mark a stored id; it is no part of the id.
pub const PREFIX: &str = "litellm:";
/// How the ids of uploaded skills begin. Ids of vendors begin otherwise, so that requests for theirs are distinguished.
pub const UPLOADED: &str = "skill_knack_";
/// How the ids of their versions begin.
pub const UPLOADED_VERSION: &str = "skver_knack_";
/// The frontmatter's field.
const FIELD: &str = "metadata.skill_id";

/// Whether a text can be an id: letters, digits, `_`, `-`, `.` and `:`, the first a letter or digit. It is used in
/// JSON, in a header with commas, and beside `namespace/name`.
pub fn is_legal(id: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&id.len())
        && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte))
}

/// Reads `metadata.skill_id`: one id, or a list of them. What cannot be used is left out and reported.
pub(crate) fn read(value: &Value) -> (Vec<String>, Vec<Finding>) {
    let items = match value {
        Value::Null => &[],
        Value::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut findings = Vec::new();
    let mut refuse = |message: String| {
        let help = format!("write up to {MAX_IDS} ids of letters, digits, `_`, `-`, `.` and `:`");
        findings.push(Finding::refused(FieldInvalid, FIELD, message, help));
    };
    if items.len() > MAX_IDS {
        refuse(format!(
            "{FIELD} has {} ids; only the first {MAX_IDS} are read",
            items.len()
        ));
    }
    let mut ids = Vec::new();
    for item in items.iter().take(MAX_IDS) {
        let id = scalar_text(item).unwrap_or_else(|| item.to_string());
        if is_legal(bare(&id)) {
            ids.push(bare(&id).to_owned());
        } else {
            refuse(format!("{:?} is not a valid id; it is left out", shortened(&id)));
        }
    }
    (ids, findings)
}

/// Whether an id of `container.skills` has a form of LiteLLM's: marked by a request, or as it is stored. LiteLLM wrote `litellm_<uuid>`
/// before it wrote `litellm_skill_<uuid>`.
pub fn is_litellm(id: &str) -> bool {
    id.starts_with(PREFIX) || id.starts_with("litellm_")
}

/// One version of an uploaded skill as an id.
pub fn versioned(id: &str, version: &str) -> String {
    format!("{id}:{version}")
}

/// A reference with a version as skill and version: `name@^1`, and of an uploaded skill's id `id:^1`, too.
pub fn with_version(reference: &str) -> Option<(&str, &str)> {
    let colon = reference.starts_with(UPLOADED);
    reference.split_once(|c| c == '@' || (colon && c == ':'))
}

/// The id that the uid of an object on a cluster gives its skill. A uid is given once, and cannot be chosen.
pub fn of_object(uid: &str) -> String {
    format!("{UPLOADED}{}", uid.replace('-', ""))
}

/// An id without the mark of requests.
pub fn bare(id: &str) -> &str {
    let id = id.trim();
    id.strip_prefix(PREFIX).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reference_may_name_a_version() {
        for (reference, expected) in [
            ("word@^1", Some(("word", "^1"))),
            ("team/word@latest", Some(("team/word", "latest"))),
            ("skill_knack_a:^1", Some(("skill_knack_a", "^1"))),
            ("skill_knack_a@1.2.0", Some(("skill_knack_a", "1.2.0"))),
            ("word@", Some(("word", ""))),
            ("litellm:word", None),
            ("word", None),
        ] {
            assert_eq!(with_version(reference), expected, "{reference}");
        }
    }

    #[test]
    fn ids_of_other_systems_are_read_and_what_is_none_is_reported() {
        let real = "litellm_skill_6e0b9a52-6a3e-4d83-b0a5-8b8c6b1f1c77";
        for (value, ids, findings) in [
            (json!(real), vec![real], 0),
            (json!("litellm:skill_abc"), vec!["skill_abc"], 0),
            (json!([real, "skill_01AbC"]), vec![real, "skill_01AbC"], 0),
            (json!(17), vec!["17"], 0),
            (Value::Null, vec![], 0),
            (json!(["a/b", "", "a,b", "-a", {"a": 1}, "x".repeat(129)]), vec![], 6),
            (json!(vec!["a"; 9]), vec!["a"; 8], 1),
        ] {
            let (read, found) = read(&value);
            assert_eq!(
                (read, found.len()),
                (ids.into_iter().map(str::to_owned).collect(), findings),
                "{value}"
            );
        }
    }
}
