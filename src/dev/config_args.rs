//! Values of the configuration of functions on the command line.

use anyhow::{Context, bail};
use clap::Args;
use knack_skill::config::{ConfigEntry, ConfigSource, ConfiguredSkill, SkillConfig};

use super::search_settings::SkillFlag;

/// `--set` and `--set-env`.
#[derive(Debug, Default, Args)]
pub(crate) struct ConfigArgs {
    /// Set a configuration parameter of a skill's functions; PARAMETER may be TOOL.PARAMETER, and SKILL is as in --allow-env
    #[arg(long, value_name = "SKILL.PARAMETER=VALUE")]
    set: Vec<String>,
    /// Set a parameter as --set does, to the value of an environment variable, which keeps secrets off the command line
    #[arg(long, value_name = "SKILL.PARAMETER=NAME")]
    set_env: Vec<String>,
}

impl ConfigArgs {
    /// Whether nothing is given.
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.set_env.is_empty()
    }

    /// The flags with their skills, without the values.
    pub(crate) fn given_to(&self) -> impl Iterator<Item = SkillFlag> {
        let words = [("--set", &self.set), ("--set-env", &self.set_env)];
        words.into_iter().flat_map(|(flag, words)| {
            // An invalid word is reported where the values are read.
            let parsed = words.iter().filter_map(move |word| parts(flag, word).ok());
            parsed.map(move |(skill, name, _)| SkillFlag {
                flag: format!("{flag} {skill}.{name}"),
                skill: skill.to_owned(),
            })
        })
    }

    /// The values, one skill's each; `lookup` finds variables. Errors name the word, without its value.
    pub(crate) fn read(&self, lookup: impl Fn(&str) -> Option<String>) -> anyhow::Result<Vec<SkillConfig>> {
        let plain = self.set.iter().map(|word| {
            let (skill, name, value) = parts("--set", word)?;
            Ok(config(skill, name, ConfigSource::Value(value.to_owned())))
        });
        let secret = self.set_env.iter().map(|word| {
            let (skill, name, variable) = parts("--set-env", word)?;
            let value = lookup(variable)
                .with_context(|| format!("--set-env {word}: {variable} is not set in the environment of knack"))?;
            Ok(config(skill, name, ConfigSource::Secret(Some(value))))
        });
        plain.chain(secret).collect()
    }
}

fn parts<'w>(flag: &str, word: &'w str) -> anyhow::Result<(&'w str, &'w str, &'w str)> {
    let (path, value) = word.split_once('=').unwrap_or((word, ""));
    match path.split_once('.') {
        Some((skill, name)) if word.contains('=') && !skill.is_empty() && !name.is_empty() => Ok((skill, name, value)),
        _ => bail!("{flag} {path}: write SKILL.PARAMETER=VALUE"),
    }
}

fn config(skill: &str, name: &str, source: ConfigSource) -> SkillConfig {
    SkillConfig {
        skill: ConfiguredSkill::Named(skill.to_owned()),
        entries: vec![ConfigEntry {
            name: name.to_owned(),
            source,
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[&str], set_env: &[&str]) -> anyhow::Result<Vec<SkillConfig>> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let args = ConfigArgs {
            set: words(set),
            set_env: words(set_env),
        };
        args.read(|name| (name == "KEY").then(|| "top-secret".to_owned()))
    }

    #[test]
    fn a_word_names_skill_and_parameter_and_gives_a_value() {
        let found = read(
            &["web.maxCost=5", "team/web.build.title=a=b", "web.empty="],
            &["web.key=KEY"],
        )
        .unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|config| {
                let entry = &config.entries[0];
                (config.skill.clone(), entry.name.as_str(), entry.source.clone())
            })
            .collect();
        let named = |word: &str| ConfiguredSkill::Named(word.to_owned());
        let value = |text: &str| ConfigSource::Value(text.to_owned());
        let secret = ConfigSource::Secret(Some("top-secret".to_owned()));
        let expected = [
            (named("web"), "maxCost", value("5")),
            (named("team/web"), "build.title", value("a=b")),
            (named("web"), "empty", value("")),
            (named("web"), "key", secret),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_word_that_is_none_is_refused_without_its_value() {
        for (set, set_env, part) in [
            ("web=top-secret", "", "--set web: write"),
            ("web.key", "", "--set web.key: write"),
            (".key=top-secret", "", "--set .key: write"),
            ("", "web.key=OTHER", "OTHER is not set"),
        ] {
            let some = |word: &'static str| if word.is_empty() { vec![] } else { vec![word] };
            let message = read(&some(set), &some(set_env)).unwrap_err().to_string();
            assert!(message.contains(part) && !message.contains("top-secret"), "{message}");
        }
    }
}
