//! Names: what is legal, what a text becomes, and HUSK's slug.

use crate::problem::ProblemKind;

/// Longest legal name in characters (Agent Skills, Agent Flow).
pub const MAX_NAME_CHARS: usize = 64;

/// Checks a name by the Agent Flow rules, in their order: empty, length, lower case, characters, edges, doubled hyphens.
///
/// Only the first broken rule is reported, because the later ones follow from it.
pub fn check(name: &str) -> Result<(), ProblemKind> {
    if name.is_empty() {
        return Err(ProblemKind::NameEmpty);
    }
    if name.chars().count() > MAX_NAME_CHARS {
        return Err(ProblemKind::NameTooLong);
    }
    if name != name.to_lowercase() {
        return Err(ProblemKind::NameUppercase);
    }
    if !name.bytes().all(is_name_byte) {
        return Err(ProblemKind::NameInvalidChars);
    }
    if name.starts_with('-') || name.ends_with('-') {
        return Err(ProblemKind::NameEdgeHyphen);
    }
    if name.contains("--") {
        return Err(ProblemKind::NameDoubleHyphen);
    }
    Ok(())
}

/// What a broken name rule says, as a sentence without a full stop.
pub fn rule(kind: ProblemKind) -> &'static str {
    match kind {
        ProblemKind::NameEmpty => "Skill name is required",
        ProblemKind::NameTooLong => "Skill name must be 64 characters or less",
        ProblemKind::NameUppercase => "Skill name must be lowercase",
        ProblemKind::NameInvalidChars => "Skill name can only contain lowercase letters, numbers, and hyphens",
        ProblemKind::NameEdgeHyphen => "Skill name cannot start or end with a hyphen",
        ProblemKind::NameDoubleHyphen => "Skill name cannot contain consecutive hyphens",
        _ => "Skill name is not legal",
    }
}

/// The legal name under which a skill is kept that was installed as `written`, if any character of it can be in one.
pub fn as_installed(written: &str) -> Option<String> {
    let has_any = written.bytes().any(|byte| byte.is_ascii_alphanumeric());
    has_any.then(|| normalize(written))
}

/// Turns any text into a legal name: lower case, spaces to hyphens, other characters out (also tabs and line ends), hyphens
/// collapsed and trimmed, at most 64 characters; `skill` if nothing is left.
pub fn normalize(text: &str) -> String {
    let mut name = String::new();
    for character in text.to_lowercase().chars() {
        let character = if character == ' ' { '-' } else { character };
        let legal = u8::try_from(character).is_ok_and(is_name_byte);
        if legal && !(character == '-' && (name.is_empty() || name.ends_with('-'))) {
            name.push(character);
        }
    }
    name.truncate(MAX_NAME_CHARS);
    let name = name.trim_end_matches('-');
    if name.is_empty() {
        "skill".to_owned()
    } else {
        name.to_owned()
    }
}

/// The advice for a name that is not legal: a legal one like it, unless letters of it have no place there, so that what is left
/// (`gre` of `größe`) is a name that nobody means.
pub fn advice(text: &str) -> String {
    let mut letters = text.chars().filter(|character| character.is_alphanumeric()).peekable();
    if letters.peek().is_some() && letters.all(|letter| letter.is_ascii()) {
        format!("for example {}", normalize(text))
    } else {
        "use the letters a to z, digits and hyphens".to_owned()
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_suggested_only_where_it_has_all_letters_of_what_was_written() {
        for (written, expected) in [
            ("My Summary!", "for example my-summary"),
            ("a--b", "for example a-b"),
            ("größe", "use the letters a to z, digits and hyphens"),
            ("要約", "use the letters a to z, digits and hyphens"),
            ("!!!", "use the letters a to z, digits and hyphens"),
        ] {
            assert_eq!(advice(written), expected);
        }
    }

    #[test]
    fn the_first_broken_rule_is_reported() {
        for (name, expected) in [
            ("a1-b", Ok(())),
            ("", Err(ProblemKind::NameEmpty)),
            ("A b", Err(ProblemKind::NameUppercase)),
            ("a\n", Err(ProblemKind::NameInvalidChars)),
            ("-a--b", Err(ProblemKind::NameEdgeHyphen)),
            ("a--b", Err(ProblemKind::NameDoubleHyphen)),
        ] {
            assert_eq!(check(name), expected, "{name:?}");
        }
        assert_eq!(check(&"A".repeat(65)), Err(ProblemKind::NameTooLong));
    }

    #[test]
    fn a_normalized_name_is_legal() {
        for text in ["My Skill", "--", "x - y", "Ü", &"ab ".repeat(60), "-a-"] {
            assert_eq!(check(&normalize(text)), Ok(()), "{text:?} -> {:?}", normalize(text));
        }
        assert_eq!(normalize("My Article Summary!!!"), "my-article-summary");
        assert_eq!(normalize("tab\tand\nline end"), "tabandline-end");
    }
}
