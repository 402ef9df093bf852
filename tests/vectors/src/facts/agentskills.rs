//! What the reference library of agentskills.io makes of a document: its properties, and the list for a prompt. The product loads
//! documents of all dialects by one function, and its list has a text of its own.

use knack_skill::agentskills::{KNOWN_KEYS, validate};
use knack_skill::finding::Finding;
use knack_skill::problem::ProblemKind;
use serde_json::{Map, Value};

/// The properties of a skill: name, description and the optional ones that are set.
pub(crate) fn properties(metadata: &Map<String, Value>) -> Result<Map<String, Value>, Finding> {
    use ProblemKind::{DescriptionEmpty, DescriptionMissing, NameEmpty, NameMissing};
    // That both keys are there is looked for before what they hold. Of everything else that the validator refuses the library
    // says nothing here.
    let findings = validate(metadata, "");
    for kind in [NameMissing, DescriptionMissing, NameEmpty, DescriptionEmpty] {
        if let Some(finding) = findings.iter().find(|finding| finding.kind == kind) {
            return Err(finding.clone());
        }
    }
    let mut properties = Map::new();
    for key in KNOWN_KEYS {
        let Some(value) = metadata.get(key) else {
            continue;
        };
        let is_blank = key == "metadata" && value.as_str().is_some_and(|text| text.trim().is_empty());
        let is_nothing = value.is_null() || is_blank || value.as_object().is_some_and(Map::is_empty);
        if ["name", "description"].contains(&key) {
            properties.insert(key.to_owned(), value.as_str().unwrap_or_default().trim().into());
        } else if !is_nothing {
            properties.insert(key.to_owned(), value.clone());
        }
    }
    Ok(properties)
}

/// The `<available_skills>` text: per skill its name, description and the path of its SKILL.md, one per line.
pub(crate) fn to_prompt<'a>(skills: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>) -> String {
    let mut lines = vec!["<available_skills>".to_owned()];
    for (name, description, location) in skills {
        lines.push("<skill>".to_owned());
        // The path is written as it is.
        for (tag, text) in [
            ("name", escape(name)),
            ("description", escape(description)),
            ("location", location.to_owned()),
        ] {
            lines.extend([format!("<{tag}>"), text, format!("</{tag}>")]);
        }
        lines.push("</skill>".to_owned());
    }
    lines.push("</available_skills>".to_owned());
    lines.join("\n")
}

/// Escapes markup, both kinds of quotes included.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#x27;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_missing_key_is_told_before_an_empty_one() {
        use ProblemKind::{DescriptionEmpty, DescriptionMissing, NameEmpty, NameMissing};
        for (metadata, expected) in [
            (json!({"name": ""}), DescriptionMissing),
            (json!({"description": ""}), NameMissing),
            (json!({"name": "", "description": ""}), NameEmpty),
            (json!({"name": "a", "description": ""}), DescriptionEmpty),
        ] {
            let found = properties(metadata.as_object().unwrap());
            assert_eq!(found.unwrap_err().kind, expected, "{metadata}");
        }
    }

    #[test]
    fn blank_metadata_is_not_set() {
        let metadata = json!({"name": "a", "description": "d", "metadata": "", "license": ""});
        let expected = json!({"name": "a", "description": "d", "license": ""});
        assert_eq!(
            Value::Object(properties(metadata.as_object().unwrap()).unwrap()),
            expected
        );
    }
}
