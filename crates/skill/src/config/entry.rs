//! What a runtime or a person gives.

use crate::model::SkillRef;
use crate::tool_env::OWN_PREFIX;

/// One value that is given: `PARAMETER`, for every tool of the skill that declares it, or `TOOL.PARAMETER`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigEntry {
    /// The parameter's name.
    pub name: String,
    /// Its value, or that a Secret has it.
    pub source: ConfigSource,
}

/// Where a value is.
#[derive(Clone, PartialEq, Eq)]
pub enum ConfigSource {
    /// Here, for everybody to read.
    Value(String),
    /// In a Secret, or in the environment of `knack`; `None`: where this process does not see it.
    Secret(Option<String>),
}

impl std::fmt::Debug for ConfigSource {
    /// Secrets are not shown. A value may be one too: its parameter's type says so.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Value(_) => "Value",
            Self::Secret(Some(_)) => "Secret",
            Self::Secret(None) => "Secret elsewhere",
        })
    }
}

/// The values of one skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillConfig {
    /// The skill that has the values.
    pub skill: ConfiguredSkill,
    /// The values.
    pub entries: Vec<ConfigEntry>,
}

/// The skill that values are given to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfiguredSkill {
    /// The one that a runtime pins.
    Pinned(SkillRef),
    /// The skills that a word of the command line means ([`SkillRef::is_meant_by`]).
    Named(String),
}

impl SkillConfig {
    fn is_of(&self, skill: &SkillRef) -> bool {
        match &self.skill {
            ConfiguredSkill::Pinned(pinned) => pinned == skill,
            ConfiguredSkill::Named(word) => skill.is_meant_by(word),
        }
    }
}

/// The values of a skill among those of many; later ones win.
pub fn entries_for(configs: &[SkillConfig], skill: &SkillRef) -> Vec<ConfigEntry> {
    let of_skill = configs.iter().filter(|config| config.is_of(skill));
    of_skill.fold(Vec::new(), |below, config| overlay(below, &config.entries))
}

/// Values laid over others, name by name. What lies over a Secret is as secret as it.
pub fn overlay(mut below: Vec<ConfigEntry>, above: &[ConfigEntry]) -> Vec<ConfigEntry> {
    for entry in above {
        match below.iter_mut().find(|known| known.name == entry.name) {
            Some(known) => {
                known.source = match (&known.source, &entry.source) {
                    (ConfigSource::Secret(_), ConfigSource::Value(value)) => ConfigSource::Secret(Some(value.clone())),
                    (_, given) => given.clone(),
                };
            }
            None => below.push(entry.clone()),
        }
    }
    below
}

/// The variable by which a run gets the value of an entry: no two entries of a skill share one.
pub fn variable(entry: &str) -> String {
    let mut name = format!("{OWN_PREFIX}CONFIG_");
    for byte in entry.bytes() {
        if byte.is_ascii_alphanumeric() {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("_{byte:02x}"));
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, source: ConfigSource) -> ConfigEntry {
        ConfigEntry {
            name: name.to_owned(),
            source,
        }
    }

    #[test]
    fn what_is_given_last_wins_and_stays_as_secret_as_what_it_replaces() {
        let value = |text: &str| ConfigSource::Value(text.to_owned());
        let below = vec![
            entry("a", value("1")),
            entry("b", value("2")),
            entry("key", ConfigSource::Secret(None)),
        ];
        let above = [
            entry("b", value("3")),
            entry("key", value("k")),
            entry("t.b", ConfigSource::Secret(Some("4".to_owned()))),
        ];
        let merged = overlay(below, &above);
        let expected = [
            entry("a", value("1")),
            entry("b", value("3")),
            entry("key", ConfigSource::Secret(Some("k".to_owned()))),
            entry("t.b", ConfigSource::Secret(Some("4".to_owned()))),
        ];
        assert_eq!(merged, expected);
        assert!(!format!("{merged:?}").contains('4'));
    }

    #[test]
    fn values_are_of_one_skill() {
        let id = |namespace: &str, name: &str| SkillRef {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let config = |skill: ConfiguredSkill, value: &str| SkillConfig {
            skill,
            entries: vec![entry("a", ConfigSource::Value(value.to_owned()))],
        };
        let named = |word: &str| ConfiguredSkill::Named(word.to_owned());
        let pinned = |namespace: &str| ConfiguredSkill::Pinned(id(namespace, "web"));
        let configs = [
            config(pinned("team"), "1"),
            config(pinned("uploads"), "2"),
            config(named("web"), "3"),
            config(named("x/web"), "4"),
            config(named("uploads/mine"), "5"),
        ];
        for (namespace, name, expected) in [
            ("default", "web", Some("3")),
            ("team", "web", Some("1")),
            ("x", "web", Some("4")),
            ("y", "web", None),
            ("team", "other", None),
            // A name of a person's choice is none of a caller's choice, and a namespace of a cluster may be called as it likes.
            ("uploads", "web", Some("2")),
            ("uploads-2", "web", None),
            ("uploads", "mine", Some("5")),
            ("uploads-2", "mine", Some("5")),
            ("team", "mine", None),
        ] {
            let expected: Vec<_> = expected
                .map(|value| entry("a", ConfigSource::Value(value.to_owned())))
                .into_iter()
                .collect();
            assert_eq!(
                entries_for(&configs, &id(namespace, name)),
                expected,
                "{namespace}/{name}"
            );
        }
    }

    #[test]
    fn variables_differ_where_names_differ() {
        let names = ["api_key", "api.key", "api-key", "apikey", "api_2ekey", "api__key"];
        let mut variables: Vec<String> = names.iter().map(|name| variable(name)).collect();
        assert_eq!(variables[0], "KNACK_CONFIG_api_5fkey");
        assert!(variables.iter().all(|name| crate::tool_env::is_env_name(name)));
        variables.sort();
        variables.dedup();
        assert_eq!(variables.len(), names.len());
    }
}
