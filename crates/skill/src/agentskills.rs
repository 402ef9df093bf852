//! The agentskills.io dialect as its reference validator reads it.
//!
//! Every scalar is text, as written. Lists and mappings in brackets, tags, anchors, aliases and repeated keys are refused.

use icu_normalizer::ComposingNormalizerBorrowed;
use serde_json::{Map, Value};

use crate::finding::Finding;
use crate::names::{self, MAX_NAME_CHARS};
use crate::problem::ProblemKind;
use crate::yaml::{self, Node};

/// Longest description in characters.
pub const MAX_DESCRIPTION_CHARS: usize = 1_024;
/// Longest compatibility note in characters.
pub const MAX_COMPATIBILITY_CHARS: usize = 500;
/// The keys that the specification knows.
pub const KNOWN_KEYS: [&str; 6] = [
    "name",
    "description",
    "license",
    "compatibility",
    "allowed-tools",
    "metadata",
];

/// Why YAML is refused although it could be read, if it is.
pub fn strict_form(node: &Node, yaml: &str) -> Option<String> {
    if let Some((key, line)) = node.repeated_key() {
        return Some(format!("key '{key}' appears twice (line {line} of the frontmatter)"));
    }
    if let Some(line) = yaml::merge_key(yaml) {
        return Some(format!(
            "a merge key << is not allowed (line {line} of the frontmatter)"
        ));
    }
    node.unusual_form(yaml)
        .map(|(form, line)| format!("{form} is not allowed (line {line} of the frontmatter)"))
}

/// Keys that the specification does not have and that nothing reads under `metadata`: a skill would lose what they say without a
/// word.
const LOST_UNDER_METADATA: [(&[&str], &str); 2] = [
    (
        &["packages", "dependencies"],
        "write packages of Python into requirements.txt beside SKILL.md, those of Node into package.json and package-lock.json",
    ),
    (
        &["activation", "mode", "enabled", "disable-model-invocation"],
        "leave activation, mode, enabled and disable-model-invocation out: the operator sets a mode, by a pin of the SkillRuntime",
    ),
];

/// What to do about keys that the specification does not know.
fn cure(unexpected: &[&str]) -> String {
    let has = |keys: &[&str]| keys.iter().any(|key| unexpected.contains(key));
    let of_knack = LOST_UNDER_METADATA.iter().filter(|(keys, _)| has(keys));
    let mut cures: Vec<String> = of_knack.map(|(_, cure)| (*cure).to_owned()).collect();
    let is_lost = |key: &&&str| LOST_UNDER_METADATA.iter().any(|(keys, _)| keys.contains(*key));
    let others: Vec<&str> = unexpected.iter().filter(|key| !is_lost(key)).copied().collect();
    if others.len() == unexpected.len() {
        cures.push("move them under metadata".to_owned());
    } else if !others.is_empty() {
        cures.push(format!("move {} under metadata", others.join(", ")));
    }
    cures.push(format!("known are {}", KNOWN_KEYS.join(", ")));
    cures.join("; ")
}

/// Everything that the reference validator refuses in a parsed frontmatter. `directory` is the folder's name.
pub fn validate(metadata: &Map<String, Value>, directory: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let unexpected: Vec<&str> = metadata
        .keys()
        .map(String::as_str)
        .filter(|key| !KNOWN_KEYS.contains(key))
        .collect();
    if !unexpected.is_empty() {
        let message = format!("unexpected fields: {}", unexpected.join(", "));
        let help = cure(&unexpected);
        findings.push(Finding::refused(
            ProblemKind::UnexpectedFields,
            unexpected[0],
            message,
            help,
        ));
    }
    match required_text(metadata, "name", ProblemKind::NameMissing, ProblemKind::NameEmpty) {
        Ok(name) => findings.extend(validate_name(name, directory)),
        Err(finding) => findings.push(finding),
    }
    match required_text(
        metadata,
        "description",
        ProblemKind::DescriptionMissing,
        ProblemKind::DescriptionEmpty,
    ) {
        Ok(text) => {
            // The validator counts what is written, with blanks and line ends at both ends.
            let written = metadata.get("description").and_then(Value::as_str).unwrap_or(text);
            findings.extend(too_long(
                "description",
                written,
                MAX_DESCRIPTION_CHARS,
                ProblemKind::DescriptionTooLong,
            ));
        }
        Err(finding) => findings.push(finding),
    }
    match metadata.get("compatibility") {
        None => {}
        Some(Value::String(text)) => {
            findings.extend(too_long(
                "compatibility",
                text,
                MAX_COMPATIBILITY_CHARS,
                ProblemKind::CompatibilityTooLong,
            ));
        }
        Some(_) => findings.push(Finding::refused(
            ProblemKind::CompatibilityNotText,
            "compatibility",
            "compatibility must be text",
            "write one line",
        )),
    }
    findings
}

/// The rules for a name here: letters and digits of any script, compared after NFKC. Returns all broken rules.
fn validate_name(name: &str, directory: &str) -> Vec<Finding> {
    let name = nfkc(name.trim());
    let mut kinds = Vec::new();
    if name.chars().count() > MAX_NAME_CHARS {
        kinds.push(ProblemKind::NameTooLong);
    }
    if name != name.to_lowercase() {
        kinds.push(ProblemKind::NameUppercase);
    }
    if name.starts_with('-') || name.ends_with('-') {
        kinds.push(ProblemKind::NameEdgeHyphen);
    }
    if name.contains("--") {
        kinds.push(ProblemKind::NameDoubleHyphen);
    }
    if !name
        .chars()
        .all(|character| is_letter_or_number(character) || character == '-')
    {
        kinds.push(ProblemKind::NameInvalidChars);
    }
    let mut findings: Vec<Finding> = kinds
        .into_iter()
        .map(|kind| Finding::refused(kind, "name", names::rule(kind), names::advice(&name)))
        .collect();
    if nfkc(directory) != name {
        let message = format!("name '{name}' differs from the folder's name '{directory}'");
        findings.push(Finding::refused(
            ProblemKind::NameMismatch,
            "name",
            message,
            "make the two equal",
        ));
    }
    findings
}

/// The general categories of letters and numbers, as the reference decides it. Unlike `char::is_alphanumeric` this leaves out
/// the vowel signs of Indic scripts, which are marks.
fn is_letter_or_number(character: char) -> bool {
    use unicode_general_category::GeneralCategory as Category;
    matches!(
        unicode_general_category::get_general_category(character),
        Category::UppercaseLetter
            | Category::LowercaseLetter
            | Category::TitlecaseLetter
            | Category::ModifierLetter
            | Category::OtherLetter
            | Category::DecimalNumber
            | Category::LetterNumber
            | Category::OtherNumber
    )
}

/// Unicode normalisation form NFKC: full-width letters and ligatures equal their plain forms.
pub fn nfkc(text: &str) -> String {
    ComposingNormalizerBorrowed::new_nfkc().normalize(text).into_owned()
}

fn required_text<'a>(
    metadata: &'a Map<String, Value>,
    key: &str,
    missing: ProblemKind,
    empty: ProblemKind,
) -> Result<&'a str, Finding> {
    let Some(value) = metadata.get(key) else {
        return Err(Finding::refused(
            missing,
            key,
            format!("{key} is missing"),
            format!("add {key}: .."),
        ));
    };
    let text = value.as_str().unwrap_or_default().trim();
    if text.is_empty() {
        return Err(Finding::refused(
            empty,
            key,
            format!("{key} must be text that is not empty"),
            format!("give {key} a text"),
        ));
    }
    Ok(text)
}

fn too_long(field: &str, text: &str, limit: usize, kind: ProblemKind) -> Option<Finding> {
    let chars = text.chars().count();
    (chars > limit).then(|| {
        Finding::refused(
            kind,
            field,
            format!("{field} has {chars} characters, more than {limit}"),
            "shorten it",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_measured_with_its_line_end() {
        for (chars, end, kinds) in [
            (1_024, "", vec![]),
            (1_023, "\n", vec![]),
            (1_024, "\n", vec![ProblemKind::DescriptionTooLong]),
        ] {
            let description = format!("{}{end}", "x".repeat(chars));
            let metadata = serde_json::json!({"name": "a", "description": description});
            let found: Vec<_> = validate(metadata.as_object().unwrap(), "a")
                .into_iter()
                .map(|finding| finding.kind)
                .collect();
            assert_eq!(found, kinds, "{chars} {end:?}");
        }
    }

    #[test]
    fn the_cure_for_an_unknown_key_keeps_what_it_says() {
        let known = "known are name, description, license, compatibility, allowed-tools, metadata";
        for (unexpected, cure_of_keys) in [
            (&["author"][..], "move them under metadata".to_owned()),
            (&["packages"], LOST_UNDER_METADATA[0].1.to_owned()),
            (
                &["author", "mode", "tags"],
                format!("{}; move author, tags under metadata", LOST_UNDER_METADATA[1].1),
            ),
        ] {
            assert_eq!(cure(unexpected), format!("{cure_of_keys}; {known}"));
        }
    }

    /// What `str.isalnum` of Python says of each, which is the reference's rule.
    #[test]
    fn letters_and_numbers_of_any_script_are_valid_in_names_and_marks_are_not() {
        for (name, is_valid) in [
            ("über", true),
            ("技能", true),
            ("क", true),
            ("ไทย", true),
            ("ⅷ", true),
            ("कि", false),
            ("की", false),
            ("ไม่", false),
            ("ⓐ", true),
            ("a_b", false),
        ] {
            let found = validate_name(name, name);
            let kinds: Vec<_> = found.iter().map(|finding| finding.kind).collect();
            let expected: &[_] = if is_valid {
                &[]
            } else {
                &[ProblemKind::NameInvalidChars]
            };
            assert_eq!(kinds, expected, "{name}");
        }
    }
}
