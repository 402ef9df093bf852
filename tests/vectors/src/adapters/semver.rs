//! Adapters of `semver.json`: versions, constraints and registration.

use knack_skill::{ids, registration, semver};
use serde_json::{Value, json};

use crate::registry::{Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("semver", "resolve", resolve),
    Op::new("semver", "lookup", lookup),
    Op::new("semver", "versions", versions),
    Op::new("semver", "register", register),
];

/// The name of the skill where a case names none.
const FIXTURE_NAME: &str = "echo";

fn resolve(input: &Value) -> Outcome {
    let constraint = input["constraint"].as_str().unwrap_or_default();
    let name = input["name"].as_str().unwrap_or(FIXTURE_NAME);
    // An absent or empty key is no scope: every owner is searched.
    let scope = input["apiKeyId"].as_str().filter(|key| !key.is_empty());
    let found = match input["skills"].as_array() {
        Some(skills) => {
            let visible = skills
                .iter()
                .filter(|skill| skill["name"] == name && scope.is_none_or(|key| skill["apiKeyId"] == key));
            semver::resolve(visible.filter_map(|skill| skill["version"].as_str()), constraint)
        }
        None => semver::resolve(listed(input), constraint),
    };
    Ok(json!(found))
}

fn lookup(input: &Value) -> Outcome {
    let identifier = input["identifier"].as_str().unwrap_or_default();
    // A name alone is the newest version.
    let (name, wanted) = ids::with_version(identifier).unwrap_or((identifier, "latest"));
    let versions: Vec<&str> = listed(input).collect();
    let found = Some(name).filter(|name| *name == FIXTURE_NAME);
    let found = found.and_then(|_| versions.get(semver::choose(&versions, wanted)?));
    Ok(json!(found.map(|version| format!("{FIXTURE_NAME}@{version}"))))
}

fn versions(input: &Value) -> Outcome {
    let mut versions: Vec<&str> = listed(input).collect();
    semver::newest_first(&mut versions);
    Ok(json!(versions))
}

fn register(input: &Value) -> Outcome {
    Ok(match registration::check(&input["skill"]) {
        Ok(record) => json!({"valid": true, "version": record.version, "enabled": record.enabled}),
        Err(invalid) => json!({"valid": false, "field": invalid.field}),
    })
}

fn listed(input: &Value) -> impl Iterator<Item = &str> {
    input["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}
