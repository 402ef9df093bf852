//! Which environment names reach a tool. Source: `seeds/4`: an allow-list, plus exact names that the skill asks for.
//!
//! In Knack a name that a skill asks for is a request; the value comes from a grant or not at all.

use std::collections::BTreeSet;

/// Names that carry no secret and that programs expect.
const ALLOWED: [&str; 13] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "TMP", "TEMP", "TERM", "LANG", "LANGUAGE", "TZ",
];
/// The locale family.
const ALLOWED_PREFIX: &str = "LC_";
/// Keys of model providers: never passed on, whoever asks.
const PROVIDER_KEYS: [&str; 6] = [
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "XAI_API_KEY",
    "GOOGLE_API_KEY",
    "GEMINI_API_KEY",
    "DEEPSEEK_API_KEY",
];

/// The names among `present` that a tool gets: allowed ones, and those in `requested`, but no provider key.
pub fn allowed<'a>(present: impl IntoIterator<Item = &'a str>, requested: &[String]) -> BTreeSet<&'a str> {
    let passes =
        |name: &&str| is_operational(name) || (requested.iter().any(|wanted| wanted == name) && may_request(name));
    present.into_iter().filter(passes).collect()
}

/// Whether a name is passed without being asked for.
pub fn is_operational(name: &str) -> bool {
    ALLOWED.contains(&name) || name.starts_with(ALLOWED_PREFIX)
}

/// Whether a skill may ask for a name at all: anything but a provider's key.
pub fn may_request(name: &str) -> bool {
    !PROVIDER_KEYS.contains(&name)
}

/// Whether a text can be the name of an environment variable: letters, digits and `_`, no digit first.
pub fn is_env_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_keys_are_never_passed() {
        let requested = ["OPENAI_API_KEY".to_owned(), "WEATHER".to_owned(), "ABSENT".to_owned()];
        let names = allowed(
            ["PATH", "path", "LC_ALL", "LCX", "OPENAI_API_KEY", "WEATHER", "TOKEN"],
            &requested,
        );
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["LC_ALL", "PATH", "WEATHER"]);
    }

    #[test]
    fn env_names_are_words() {
        assert!(is_env_name("_A1") && is_env_name("path"));
        assert!(!is_env_name("") && !is_env_name("1A") && !is_env_name("A=B") && !is_env_name("A B"));
    }
}
