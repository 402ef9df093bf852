//! Which environment names reach a tool. HUSK's rules (docs/design/dialects.md#environment-of-tools): an allow-list, plus exact names that the skill asks for.
//!
//! In Knack a name that a skill asks for is a request; the value comes from a grant or not at all.

/// Names that carry no secret and that programs expect.
const ALLOWED: [&str; 13] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "TMP", "TEMP", "TERM", "LANG", "LANGUAGE", "TZ",
];
/// The locale family.
const ALLOWED_PREFIX: &str = "LC_";
/// Keys of model providers: never passed on. Every executor and the CRD's rule use this list.
pub const PROVIDER_KEYS: [&str; 16] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "AZURE_OPENAI_API_KEY",
    "CEREBRAS_API_KEY",
    "COHERE_API_KEY",
    "DEEPSEEK_API_KEY",
    "FIREWORKS_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "PERPLEXITY_API_KEY",
    "TOGETHER_API_KEY",
    "XAI_API_KEY",
];
/// Names that the sandbox sets, or that belong to Knack: among them `KNACK_UPSTREAM_*_KEY`, the operator's provider keys.
pub const OWN_NAMES: [&str; 4] = ["HOME", "LANG", "PATH", "TMPDIR"];
/// See [`OWN_NAMES`].
pub const OWN_PREFIX: &str = "KNACK_";
/// Names that control which code the dynamic linker, an interpreter or a shell loads or executes. A value that is
/// granted to a tool must not decide which code the tool is.
pub const LOADER_NAMES: [&str; 9] = [
    "CLASSPATH",
    "ENV",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "LOCPATH",
    "PS4",
    "SHELLOPTS",
];
/// Beginnings of such names.
pub const LOADER_PREFIXES: [&str; 10] = [
    "BASH_",
    "DYLD_",
    "GIT_",
    "LD_",
    "LUA_",
    "NODE_",
    "NPM_CONFIG_",
    "PERL5",
    "PYTHON",
    "RUBY",
];

/// Whether a name is passed without being asked for.
pub fn is_operational(name: &str) -> bool {
    ALLOWED.contains(&name) || name.starts_with(ALLOWED_PREFIX)
}

/// Whether a name is no provider's key. HUSK's rule; what Knack grants is narrower, see [`grantable`].
pub fn may_request(name: &str) -> bool {
    !PROVIDER_KEYS.contains(&name)
}

/// Whether a value of this name may be granted to a skill's tool at all.
///
/// Errors: why not, as a clause behind the name.
pub fn grantable(name: &str) -> Result<(), &'static str> {
    if !is_env_name(name) {
        Err("is not a name of an environment variable")
    } else if !may_request(name) {
        Err("is a key of a model provider")
    } else if OWN_NAMES.contains(&name) || name.starts_with(OWN_PREFIX) {
        Err("is set by the sandbox itself or reserved for Knack")
    } else if LOADER_NAMES.contains(&name) || LOADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        Err("configures an interpreter, a shell or the dynamic linker")
    } else {
        Ok(())
    }
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
    fn keys_own_names_and_loaders_are_never_granted() {
        for (name, refusal) in [
            ("WEATHER_TOKEN", None),
            ("GITHUB_TOKEN", None),
            ("LDAP_PASSWORD", None),
            ("TZ", None),
            ("GROQ_API_KEY", Some("model provider")),
            ("KNACK_UPSTREAM_OPENAI_KEY", Some("reserved for Knack")),
            ("PATH", Some("sandbox itself")),
            ("LD_PRELOAD", Some("dynamic linker")),
            ("PYTHONPATH", Some("an interpreter")),
            ("NODE_OPTIONS", Some("an interpreter")),
            ("BASH_ENV", Some("a shell")),
            ("ENV", Some("a shell")),
            ("A=B", Some("not a name")),
        ] {
            let judged = grantable(name).err();
            assert_eq!(judged.is_some(), refusal.is_some(), "{name}: {judged:?}");
            assert!(
                judged.unwrap_or_default().contains(refusal.unwrap_or_default()),
                "{name}: {judged:?}"
            );
        }
    }

    #[test]
    fn env_names_are_words() {
        assert!(is_env_name("_A1") && is_env_name("path"));
        assert!(!is_env_name("") && !is_env_name("1A") && !is_env_name("A=B") && !is_env_name("A B"));
    }
}
