//! Tool names that every provider accepts, and that the request's own table leads back from.

use std::collections::HashSet;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// The longest name that OpenAI and Anthropic accept.
pub const MAX_BYTES: usize = 64;
/// What stays of a longer name before `_` and 8 hex digits.
const KEPT_BYTES: usize = 55;

/// Names a declared tool: `<skill>__<tool>`, or `<skill>` if its only tool has that name; legal, and not one of `taken`, which it then joins.
/// The hash form is taken for names over 64 bytes and for names that are taken.
pub(crate) fn of_tool(namespace: &str, skill: &str, tool: &str, only: bool, taken: &mut HashSet<String>) -> String {
    let wanted = if only && tool == skill {
        legal(skill)
    } else {
        legal(&format!("{skill}__{tool}"))
    };
    if wanted.len() <= MAX_BYTES && taken.insert(wanted.clone()) {
        return wanted;
    }
    // A second collision would need equal hash digits as well; the counter keeps names distinct even then.
    let mut attempt = 0_u32;
    loop {
        let mut identity = format!("{namespace}/{skill}/{tool}");
        if attempt > 0 {
            let _ = write!(identity, "/{attempt}");
        }
        let hashed = with_hash(&wanted, &identity);
        if taken.insert(hashed.clone()) {
            return hashed;
        }
        attempt += 1;
    }
}

/// Makes a legal name of any text, without a limit of length: illegal bytes become `_`, `s_` is put before a first
/// character that is not a letter.
pub fn legal(text: &str) -> String {
    let mut name = String::with_capacity(text.len() + 2);
    if !text.as_bytes().first().is_some_and(u8::is_ascii_alphabetic) {
        name.push_str("s_");
    }
    name.extend(text.bytes().map(|byte| {
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
            char::from(byte)
        } else {
            '_'
        }
    }));
    name
}

/// Names a `litellm:` skill by its stored id, as LiteLLM does: hyphens and blanks become `_` as well.
pub fn of_stored_id(id: &str) -> String {
    let name = legal(&id.replace(['-', ' '], "_"));
    if name.len() <= MAX_BYTES {
        name
    } else {
        with_hash(&name, id)
    }
}

/// The first 55 bytes, `_`, and 8 hex digits of the identity's SHA-256.
fn with_hash(name: &str, identity: &str) -> String {
    let digest = Sha256::digest(identity.as_bytes());
    let mut short: String = name.chars().take(KEPT_BYTES).collect();
    short.push('_');
    short.push_str(&crate::tree::hex(&digest[..4]));
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(skill: &str, tool: &str, only: bool) -> String {
        of_tool("default", skill, tool, only, &mut HashSet::new())
    }

    #[test]
    fn joins_skill_and_tool() {
        assert_eq!(name("pdf", "extract", true), "pdf__extract");
    }

    #[test]
    fn only_tool_named_like_its_skill_takes_the_skills_name() {
        assert_eq!(name("weather", "weather", true), "weather");
        assert_eq!(name("weather", "weather", false), "weather__weather");
    }

    #[test]
    fn repairs_illegal_bytes_and_first_characters() {
        assert_eq!(name("2fa", "check it!", false), "s_2fa__check_it_");
        assert_eq!(name("a", "é", false), "a____");
    }

    #[test]
    fn shortens_long_names_to_64_bytes_with_a_stable_hash() {
        let long = name(&"n".repeat(60), "tool", true);
        assert_eq!(long.len(), 64);
        assert_eq!(long, name(&"n".repeat(60), "tool", true));
        assert_ne!(long, name(&"n".repeat(60), "tool2", true));
    }

    #[test]
    fn second_taker_of_a_name_gets_another() {
        let mut taken = HashSet::new();
        let first = of_tool("a", "x", "t", true, &mut taken);
        let second = of_tool("b", "x", "t", true, &mut taken);
        assert_eq!(first, "x__t");
        assert!(second.starts_with("x__t_"), "{second}");
    }
}
