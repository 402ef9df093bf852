//! Environment values that a person granted to a skill. What a skill asks for is only a request.

use std::collections::{BTreeMap, BTreeSet};

use knack_skill::call::ToolRun;
use knack_skill::tool_env::grantable;

/// Values by the word for their skill ([`SkillRef::is_meant_by`](knack_skill::model::SkillRef::is_meant_by)), and name.
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

/// The values of a run, and the names that it was not granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrantedEnv {
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
            grantable(name)
                .map_err(|reason| format!("--allow-env {word}: {name} {reason}; it is never given to skills"))?;
            let value = lookup(name)
                .ok_or_else(|| format!("--allow-env {word}: {name} is not set in the environment of knack"))?;
            values
                .entry(skill.to_owned())
                .or_default()
                .insert(name.to_owned(), value);
        }
        Ok(Self { values })
    }

    /// The values of a run of a declared tool, for the names that it asks for. This is the only path to a value:
    /// model-written code has no [`ToolRun`].
    pub fn for_tool(&self, tool: &ToolRun) -> GrantedEnv {
        let mut granted = GrantedEnv::default();
        let for_skill = self.values.iter().filter(|(word, _)| tool.skill.is_meant_by(word));
        for name in &tool.env {
            let value = for_skill.clone().find_map(|(_, names)| names.get(name));
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
    use knack_execution::fixture::mk_tool_run;

    fn parse(words: &[&str]) -> Result<Grants, String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        Grants::parse(&words, |name| (name != "UNSET").then(|| format!("value of {name}")))
    }

    #[test]
    fn a_grant_is_for_one_skill_and_one_name_and_only_if_its_tool_asks() {
        let grants = parse(&["weather:TOKEN", "team/pdf:KEY", "uploads/rainy:TOKEN"]).unwrap();
        let granted = grants.for_tool(&mk_tool_run("default", "weather", &["OTHER", "TOKEN"]));
        assert_eq!(granted.env["TOKEN"], "value of TOKEN");
        assert_eq!(granted.missing, BTreeSet::from(["OTHER".to_owned()]));
        for (namespace, skill, env, count) in [
            ("default", "other", &["TOKEN"][..], 0),
            ("default", "weather", &[], 0),
            ("team", "pdf", &["KEY"], 1),
            ("other", "pdf", &["KEY"], 0),
            // A manifest has a namespace and a name of its author's choice, and what a caller uploads a name of the caller's.
            ("x", "weather", &["TOKEN"], 0),
            ("uploads", "weather", &["TOKEN"], 0),
            ("uploads-2", "weather", &["TOKEN"], 0),
            ("uploads", "rainy", &["TOKEN"], 1),
            ("uploads-2", "rainy", &["TOKEN"], 1),
            ("default", "rainy", &["TOKEN"], 0),
        ] {
            let granted = grants.for_tool(&mk_tool_run(namespace, skill, env));
            assert_eq!(granted.env.len(), count, "{namespace}/{skill} {env:?}");
        }
    }

    #[test]
    fn names_that_are_never_granted_unset_names_and_bad_words_are_refused() {
        for (word, text) in [
            ("a:OPENAI_API_KEY", "is a key of a model provider"),
            ("a:KNACK_UPSTREAM_OPENAI_KEY", "reserved for Knack"),
            ("a:LD_PRELOAD", "dynamic linker"),
            ("a:UNSET", "is not set"),
            ("TOKEN", "write SKILL:NAME"),
        ] {
            let refused = parse(&[word]).unwrap_err();
            assert!(refused.contains(word) && refused.contains(text), "{refused}");
        }
        assert!(!format!("{:?}", parse(&["a:B"]).unwrap()).contains("value of"));
    }
}
