//! Environment values that a person granted to a skill. What a skill asks for is only a request.

use std::collections::{BTreeMap, BTreeSet};

use knack_skill::model::SkillRef;

/// Names that hold provider keys: never granted, whoever asks (design.md section 5).
const NEVER: [&str; 12] = [
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "XAI_API_KEY",
    "DEEPSEEK_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "MISTRAL_API_KEY",
    "COHERE_API_KEY",
    "GROQ_API_KEY",
    "OPENROUTER_API_KEY",
];

/// Values by skill and name.
#[derive(Clone, Default)]
pub struct Grants {
    values: BTreeMap<String, BTreeMap<String, String>>,
}

impl std::fmt::Debug for Grants {
    /// Values are secrets: only skills and names are shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map()
            .entries(
                self.values
                    .iter()
                    .map(|(skill, names)| (skill, names.keys().collect::<Vec<_>>())),
            )
            .finish()
    }
}

/// What a run gets, and what it asked for in vain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Granted {
    /// Name to value.
    pub env: BTreeMap<String, String>,
    /// Names without a grant.
    pub missing: BTreeSet<String>,
}

impl Grants {
    /// Reads `SKILL:NAME` words; values come from `lookup` once, now. Errors name the word.
    pub fn parse(words: &[String], lookup: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut values: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for word in words {
            let (skill, name) = word
                .rsplit_once(':')
                .ok_or_else(|| format!("--allow-env {word}: write SKILL:NAME"))?;
            if NEVER.contains(&name) {
                return Err(format!("--allow-env {word}: provider keys are never given to skills"));
            }
            let value = lookup(name)
                .ok_or_else(|| format!("--allow-env {word}: {name} is not set in the environment of knack"))?;
            values
                .entry(skill.to_owned())
                .or_default()
                .insert(name.to_owned(), value);
        }
        Ok(Self { values })
    }

    /// What a run of this skill gets of the names it asks for. Code that belongs to no skill gets nothing.
    pub fn for_run(&self, skill: Option<&SkillRef>, asked: &[String]) -> Granted {
        let mut granted = Granted::default();
        let Some(skill) = skill else {
            granted.missing.extend(asked.iter().cloned());
            return granted;
        };
        let full = format!("{}/{}", skill.namespace, skill.name);
        for name in asked {
            let value = [&skill.name, &full]
                .into_iter()
                .filter_map(|key| self.values.get(key))
                .find_map(|names| names.get(name));
            match value {
                Some(value) => drop(granted.env.insert(name.clone(), value.clone())),
                None => drop(granted.missing.insert(name.clone())),
            }
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Grants, String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        Grants::parse(&words, |name| (name != "UNSET").then(|| format!("value of {name}")))
    }

    #[test]
    fn a_grant_is_for_one_skill_and_one_name() {
        let grants = parse(&["weather:TOKEN"]).unwrap();
        let skill = |name: &str| SkillRef {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        };
        let asked = ["TOKEN".to_owned(), "OTHER".to_owned()];
        let granted = grants.for_run(Some(&skill("weather")), &asked);
        assert_eq!(granted.env["TOKEN"], "value of TOKEN");
        assert_eq!(granted.missing, BTreeSet::from(["OTHER".to_owned()]));
        assert!(grants.for_run(Some(&skill("other")), &asked).env.is_empty());
        assert!(grants.for_run(None, &asked).env.is_empty());
    }

    #[test]
    fn provider_keys_unset_names_and_bad_words_are_refused() {
        for word in ["a:OPENAI_API_KEY", "a:UNSET", "TOKEN"] {
            assert!(parse(&[word]).is_err(), "{word}");
        }
        assert!(!format!("{:?}", parse(&["a:B"]).unwrap()).contains("value of"));
    }
}
