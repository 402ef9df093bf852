//! OmniRoute's skills and requests, as its cases write them, in the product's types. Shared by `autoscore` and `injection`.

use std::collections::BTreeMap;
use std::sync::Arc;

use knack_registry::{Row, visible};
use knack_skill::autoscore::{AutoContext, AutoMessage};
use knack_skill::catalog::Catalog;
use knack_skill::fixture::{mk_empty_skill, mk_settings};
use knack_skill::model::{ActivationMode, CallForm, Input, InputKind, Skill, Tool};
use knack_skill::risk::Risk;
use knack_skill::{schema, semver};
use serde_json::Value;

/// A text member, or an empty text.
pub(crate) fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}

/// The items of a list member, or none.
pub(crate) fn items<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    value[member].as_array().map_or(&[], Vec::as_slice)
}

/// The activation that OmniRoute's `mode` and `enabled` mean: on, auto and off are Always, Auto and Never.
pub(crate) fn mode(skill: &Value) -> ActivationMode {
    let enabled = skill["enabled"].as_bool().unwrap_or(true);
    match skill["mode"].as_str() {
        _ if !enabled => ActivationMode::Never,
        Some("off") => ActivationMode::Never,
        Some("auto") => ActivationMode::Auto,
        _ => ActivationMode::Always,
    }
}

/// An OmniRoute skill: one tool that has the skill's own name.
pub(crate) fn skill(case: &Value) -> Skill {
    let name = text(case, "name");
    let tool = Tool {
        name: name.to_owned(),
        description: text(case, "description").to_owned(),
        command: vec!["python3".to_owned(), "handler.py".to_owned()],
        parameters: Vec::new(),
        input_schema: schema::normalize(&case["schema"]["input"]),
        env: Vec::new(),
        hidden: false,
        call: CallForm::Words,
        risk: Risk::Safe,
        config: Vec::new(),
    };
    let tags = items(case, "tags").iter().filter_map(Value::as_str);
    Skill {
        description: text(case, "description").to_owned(),
        version: case["version"].as_str().map(str::to_owned),
        tags: tags.map(str::to_owned).collect(),
        install_count: case["installCount"].as_u64().unwrap_or(0),
        tools: vec![tool],
        ..mk_empty_skill(name, mode(case))
    }
}

/// Who owns what everybody sees beside the operator: OmniRoute's catalogs, as one group. What is installed from a catalog in Knack belongs
/// to the caller who installs it.
const CATALOGS: [&str; 2] = ["skillsmp", "skillssh"];

/// A row and its owner.
pub(crate) struct OwnedRow<T> {
    pub(crate) owner: String,
    pub(crate) row: Row<T>,
}

/// What a key sees of stored rows: its own first, then the operator's, then those of all catalogs, each in the order given.
pub(crate) fn seen<T>(stored: Vec<OwnedRow<T>>, key: &str) -> Vec<Row<T>> {
    let rank = |owner: &str| match owner {
        owner if owner == key => Some(0),
        "system" => Some(1),
        owner => CATALOGS.contains(&owner).then_some(2),
    };
    let ranked = stored
        .into_iter()
        .filter_map(|owned| Some((rank(&owned.owner)?, owned.row)));
    let mut ranked: Vec<(usize, Row<T>)> = ranked.collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    visible(ranked.into_iter().map(|(_, row)| row))
}

/// A catalog of the skills that the request's key sees: of each name the highest version that is enabled.
pub(crate) fn catalog(input: &Value) -> Catalog {
    let key = text(&input["request"], "apiKeyId");
    let rows = items(input, "skills").iter().map(|case| OwnedRow {
        // A skill without an owner is the key's own.
        owner: case["apiKeyId"].as_str().unwrap_or(key).to_owned(),
        row: Row {
            name: text(case, "name").to_owned(),
            version: case["version"].as_str().map(str::to_owned),
            item: case,
        },
    });
    let seen = seen(rows.collect(), key);
    let mut by_name: BTreeMap<&str, Vec<&Row<&Value>>> = BTreeMap::new();
    for row in seen.iter().filter(|row| mode(row.item) != ActivationMode::Never) {
        by_name.entry(row.name.as_str()).or_default().push(row);
    }
    let highest = |rows: &Vec<&Row<&Value>>| {
        let versions: Vec<&str> = rows
            .iter()
            .map(|row| row.version.as_deref().unwrap_or_default())
            .collect();
        let row = rows.get(semver::choose(&versions, "latest")?)?;
        Some(Arc::new(skill(row.item)))
    };
    let skills = by_name.values().filter_map(highest).collect();
    Catalog::compile_named(skills, mk_settings(), &BTreeMap::new())
}

/// The AUTO context of an OmniRoute request.
pub(crate) fn context(request: &Value) -> AutoContext {
    let formats = ["sourceFormat", "targetFormat"].map(|member| text(request, member).to_owned());
    AutoContext {
        tools_json: match &request["existingTools"] {
            Value::Null => String::new(),
            tools => tools.to_string(),
        },
        model: text(request, "model").to_owned(),
        formats: formats.to_vec(),
        background_reason: text(request, "backgroundReason").to_owned(),
        messages: items(request, "messages").iter().filter_map(message).collect(),
    }
}

fn message(message: &Value) -> Option<AutoMessage> {
    let members = message.as_object()?;
    let text = match members.get("content") {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(parts)) => {
            let texts: Vec<&str> = parts
                .iter()
                .filter_map(|part| part.as_str().or_else(|| part["text"].as_str()))
                .collect();
            (!texts.is_empty()).then(|| texts.join(" "))
        }
        _ => None,
    };
    Some(AutoMessage {
        user: members.get("role").is_some_and(|role| role == "user"),
        text,
    })
}

/// Template inputs that cases write as names or as objects.
pub(crate) fn inputs(cases: &[Value]) -> Vec<Input> {
    cases
        .iter()
        .map(|case| {
            let name = case.as_str().unwrap_or_else(|| text(case, "name"));
            Input {
                name: name.to_owned(),
                label: name.to_owned(),
                kind: InputKind::Text,
                required: case["required"].as_bool().unwrap_or(false),
                default: None,
                description: None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use knack_registry::resolve;

    use super::*;

    fn owned((owner, name, version): (&'static str, &str, &str)) -> OwnedRow<&'static str> {
        OwnedRow {
            owner: owner.to_owned(),
            row: Row {
                name: name.to_owned(),
                version: Some(version.to_owned()),
                item: owner,
            },
        }
    }

    /// The catalogs are one group: neither is before the other.
    #[test]
    fn a_caller_sees_its_own_then_the_operators_then_those_of_catalogs_and_names_each_of_them() {
        let stored = [
            ("skillssh", "from-sh", "1.0.0"),
            ("skillsmp", "from-mp", "1.0.0"),
            ("another", "private", "1.0.0"),
            ("skillsmp", "from-sh", "1.0.0"),
            ("system", "echo", "2.0.0"),
            ("system", "echo", "1.0.0"),
            ("own", "echo", "1.0.0"),
        ];
        let rows = seen(stored.map(owned).into(), "own");
        let expected = [stored[6], stored[4], stored[0], stored[1]];
        assert_eq!(rows, expected.map(|row| owned(row).row));
        for (identifier, owner) in [
            ("from-sh", Some("skillssh")),
            ("from-mp@^1", Some("skillsmp")),
            ("echo", Some("system")),
            ("echo@1.0.0", Some("own")),
            ("private", None),
            ("from-mp@2.0.0", None),
        ] {
            assert_eq!(resolve(&rows, identifier).map(|row| row.item), owner, "{identifier}");
        }
    }
}
