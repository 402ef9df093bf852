//! The values of one tool: those that are given over its defaults.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::entry::{ConfigEntry, ConfigSource, variable};
use super::param::ConfigParam;
use super::value::read;

/// The variable with the values of a run, as JSON. A run that has none was not configured.
pub const CONFIG_VARIABLE: &str = "KNACK_CONFIG";
/// Most bytes of them: a variable has at most 131,071 of Linux, and a rule that is passed on with a value takes some.
const VALUES_MAX_BYTES: usize = 96 << 10;

/// The values of one tool.
#[derive(Clone, Default, PartialEq)]
pub struct ToolConfig {
    tool: String,
    values: Map<String, Value>,
    secrets: Vec<SecretValue>,
}

/// A value that is handed over by a variable of its own.
#[derive(Clone, PartialEq)]
struct SecretValue {
    param: ConfigParam,
    variable: String,
    /// `None`: the cluster fills the variable.
    value: Option<String>,
}

impl std::fmt::Debug for ToolConfig {
    /// Values may be secrets: only names are shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let secrets = self.secrets.iter().map(|secret| &secret.param.name);
        f.debug_struct("ToolConfig")
            .field("tool", &self.tool)
            .field("names", &self.values.keys().chain(secrets).collect::<Vec<_>>())
            .finish()
    }
}

impl ToolConfig {
    /// The environment of a run, as far as it is known here: the values, and the variables of secrets that are.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let mut environment: BTreeMap<String, String> = self
            .secrets
            .iter()
            .filter_map(|secret| Some((secret.variable.clone(), secret.value.clone()?)))
            .collect();
        environment.insert(CONFIG_VARIABLE.to_owned(), self.text());
        environment
    }

    /// The variables that the cluster has to fill.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let elsewhere = self.secrets.iter().filter(|secret| secret.value.is_none());
        elsewhere.map(|secret| secret.variable.as_str())
    }

    /// What the program that calls functions reads.
    fn text(&self) -> String {
        let secrets: Map<String, Value> = self
            .secrets
            .iter()
            .map(|secret| {
                let rules = json!({"variable": secret.variable, "param": secret.param});
                (secret.param.name.clone(), rules)
            })
            .collect();
        json!({"tool": self.tool, "values": self.values, "secrets": secrets}).to_string()
    }
}

/// The entry that gives a parameter of a tool its value: the one that names the tool, before the one that does not.
fn entry_of<'e>(tool: &str, param: &ConfigParam, entries: &'e [ConfigEntry]) -> Option<&'e ConfigEntry> {
    let full = format!("{tool}.{}", param.name);
    let named = |name: &str| entries.iter().find(|entry| entry.name == name);
    named(&full).or_else(|| named(&param.name))
}

/// The values of a tool with these parameters.
///
/// Errors: what is missing or does not fit, one clause each, with the parameter's name and without values.
pub fn resolve(tool: &str, params: &[ConfigParam], entries: &[ConfigEntry]) -> Result<ToolConfig, Vec<String>> {
    let mut config = ToolConfig {
        tool: tool.to_owned(),
        ..ToolConfig::default()
    };
    let mut problems = Vec::new();
    for param in params {
        let name = &param.name;
        let Some(entry) = entry_of(tool, param, entries) else {
            match &param.default {
                Some(default) => drop(config.values.insert(name.clone(), default.clone())),
                None => problems.push(format!("{name} has no value")),
            }
            continue;
        };
        let text = match &entry.source {
            ConfigSource::Value(text) | ConfigSource::Secret(Some(text)) => Some(text),
            ConfigSource::Secret(None) => None,
        };
        let value = match text.map(|text| read(param, text)).transpose() {
            Ok(value) => value,
            Err(rule) => {
                problems.push(format!("{} {rule}", entry.name));
                continue;
            }
        };
        match (value, &entry.source) {
            (Some(value), ConfigSource::Value(_)) if !param.is_secret() => {
                config.values.insert(name.clone(), value);
            }
            _ => config.secrets.push(SecretValue {
                // Texts of people are of no use in a run.
                param: ConfigParam {
                    display_name: None,
                    description: None,
                    default: None,
                    ..param.clone()
                },
                variable: variable(&entry.name),
                value: text.cloned(),
            }),
        }
    }
    let longest = config.secrets.iter().filter_map(|secret| secret.value.as_ref());
    let bytes = longest.map(String::len).fold(config.text().len(), usize::max);
    if bytes > VALUES_MAX_BYTES {
        problems.push(format!(
            "its values have {bytes} bytes; at most {VALUES_MAX_BYTES} are possible"
        ));
    }
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

/// What keeps a tool from being offered: `resolve` without its values.
pub fn problems(tool: &str, params: &[ConfigParam], entries: &[ConfigEntry]) -> Option<String> {
    let problems = resolve(tool, params, entries).err()?;
    Some(problems.join(", "))
}

/// The names of entries that no tool declares.
pub fn undeclared<'t, 'e>(
    tools: &(impl Iterator<Item = (&'t str, &'t [ConfigParam])> + Clone),
    entries: &'e [ConfigEntry],
) -> Vec<&'e str> {
    let is_declared = |entry: &&ConfigEntry| {
        tools.clone().any(|(tool, params)| {
            let of_tool = entry.name.strip_prefix(tool).and_then(|rest| rest.strip_prefix('.'));
            params
                .iter()
                .any(|param| param.name == entry.name || of_tool == Some(&param.name))
        })
    };
    let unknown = entries.iter().filter(|entry| !is_declared(entry));
    unknown.map(|entry| entry.name.as_str()).collect()
}

/// The names of entries that give a parameter of type `secret` its value in plain text.
pub fn plain_secrets<'t, 'e>(
    tools: &(impl Iterator<Item = (&'t str, &'t [ConfigParam])> + Clone),
    entries: &'e [ConfigEntry],
) -> Vec<&'e str> {
    used(tools, entries, |param, entry| {
        param.is_secret() && matches!(entry.source, ConfigSource::Value(_))
    })
}

/// The names of entries that give a parameter a value which this process does not see.
pub fn elsewhere<'t, 'e>(
    tools: &(impl Iterator<Item = (&'t str, &'t [ConfigParam])> + Clone),
    entries: &'e [ConfigEntry],
) -> Vec<&'e str> {
    used(tools, entries, |_, entry| entry.source == ConfigSource::Secret(None))
}

/// The names of the entries that give a tool's parameter its value and are of a kind; each once.
fn used<'t, 'e>(
    tools: &(impl Iterator<Item = (&'t str, &'t [ConfigParam])> + Clone),
    entries: &'e [ConfigEntry],
    is_meant: impl Fn(&ConfigParam, &ConfigEntry) -> bool,
) -> Vec<&'e str> {
    let mut names: Vec<&str> = Vec::new();
    for (tool, params) in tools.clone() {
        for param in params {
            let meant = entry_of(tool, param, entries).filter(|entry| is_meant(param, entry));
            if let Some(entry) = meant.filter(|entry| !names.contains(&entry.name.as_str())) {
                names.push(&entry.name);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params() -> Vec<ConfigParam> {
        serde_json::from_value(json!([
            {"name": "quality", "type": "select", "options": ["draft", "high"], "default": "draft"},
            {"name": "maxCost", "type": "number", "min": 0, "max": 50},
            {"name": "key", "type": "secret", "default": ""},
        ]))
        .unwrap()
    }

    fn value(name: &str, text: &str) -> ConfigEntry {
        ConfigEntry {
            name: name.to_owned(),
            source: ConfigSource::Value(text.to_owned()),
        }
    }

    fn secret(name: &str, text: Option<&str>) -> ConfigEntry {
        ConfigEntry {
            name: name.to_owned(),
            source: ConfigSource::Secret(text.map(str::to_owned)),
        }
    }

    #[test]
    fn defaults_lie_below_values_of_the_skill_and_those_below_values_of_the_tool() {
        let entries = [
            value("maxCost", "5"),
            value("build.maxCost", "7"),
            value("other.quality", "high"),
        ];
        let values = |tool: &str| resolve(tool, &params(), &entries).unwrap().values;
        assert_eq!(
            json!(values("build")),
            json!({"quality": "draft", "maxCost": 7, "key": ""})
        );
        assert_eq!(
            json!(values("other")),
            json!({"quality": "high", "maxCost": 5, "key": ""})
        );
    }

    #[test]
    fn what_is_missing_or_does_not_fit_is_reported_by_name_without_a_value() {
        for (entries, expected) in [
            (vec![], Some("maxCost has no value")),
            (vec![value("maxCost", "99")], Some("maxCost must be at most 50")),
            (
                vec![value("t.maxCost", "x"), value("quality", "best")],
                Some("quality must be one of draft, high, t.maxCost must be a number"),
            ),
            (vec![secret("maxCost", Some("99"))], Some("maxCost must be at most 50")),
            // Where its Secret is not seen, it is checked in the run.
            (vec![secret("maxCost", None)], None),
            (vec![value("maxCost", "0")], None),
            (
                vec![value("maxCost", "0"), value("key", &"k".repeat(VALUES_MAX_BYTES))],
                None,
            ),
        ] {
            assert_eq!(problems("t", &params(), &entries).as_deref(), expected);
        }
        let long: Vec<ConfigParam> = serde_json::from_value(json!([{"name": "a", "type": "text"}])).unwrap();
        let text = problems("t", &long, &[value("a", &"k".repeat(VALUES_MAX_BYTES))]).unwrap();
        assert!(text.contains("98304 are possible"), "{text}");
    }

    #[test]
    fn secrets_have_variables_of_their_own() {
        let entries = [secret("maxCost", None), value("key", "top-secret")];
        let config = resolve("t", &params(), &entries).unwrap();
        assert_eq!(config.variables().collect::<Vec<_>>(), ["KNACK_CONFIG_maxCost"]);
        let environment = config.environment();
        let names: Vec<&str> = environment.keys().map(String::as_str).collect();
        assert_eq!(names, ["KNACK_CONFIG", "KNACK_CONFIG_key"]);
        assert_eq!(environment["KNACK_CONFIG_key"], "top-secret");
        assert!(!environment[CONFIG_VARIABLE].contains("top-secret"));
        assert!(!format!("{config:?}").contains("top-secret"));
        let text: Value = serde_json::from_str(&environment[CONFIG_VARIABLE]).unwrap();
        assert_eq!(text["values"], json!({"quality": "draft"}));
        assert_eq!(text["secrets"]["maxCost"]["variable"], "KNACK_CONFIG_maxCost");
        assert_eq!(text["secrets"]["maxCost"]["param"]["max"], 50);
    }

    #[test]
    fn values_that_no_tool_declares_are_named() {
        let params = params();
        let tools = || [("build", params.as_slice()), ("a.b", params.as_slice())].into_iter();
        let entries: Vec<ConfigEntry> = ["key", "build.key", "a.b.key", "build.nokey", "Key", "a.key", "build"]
            .iter()
            .map(|name| value(name, ""))
            .collect();
        assert_eq!(undeclared(&tools(), &entries), ["build.nokey", "Key", "a.key", "build"]);
    }

    #[test]
    fn secrets_in_plain_text_and_values_that_are_not_here_are_named_where_a_tool_uses_them() {
        let params = params();
        let tools = || [("build", params.as_slice()), ("look", params.as_slice())].into_iter();
        let (plain, hidden) = (|name| value(name, "k"), |name| secret(name, Some("k")));
        for (entries, in_plain_text, not_here) in [
            (vec![], &[][..], &[][..]),
            (vec![plain("key"), value("maxCost", "1")], &["key"], &[]),
            (vec![hidden("key"), secret("maxCost", None)], &[], &["maxCost"]),
            // Each tool gets the entry that names it.
            (vec![secret("key", None), plain("look.key")], &["look.key"], &["key"]),
            (vec![plain("key"), hidden("build.key"), hidden("look.key")], &[], &[]),
            (vec![plain("nokey"), secret("other.key", None)], &[], &[]),
        ] {
            assert_eq!(plain_secrets(&tools(), &entries), in_plain_text, "{entries:?}");
            assert_eq!(elsewhere(&tools(), &entries), not_here, "{entries:?}");
        }
    }
}
