//! What every definition must be, checked without a cluster.

use super::*;

/// kubectl's client-side apply stores the object in one annotation of at most this many bytes.
const ANNOTATION_MAX_BYTES: usize = 262_144;

fn walk(value: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, value);
    match value {
        Value::Object(members) => members
            .iter()
            .for_each(|(key, member)| walk(member, &format!("{path}/{key}"), visit)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, item)| walk(item, &format!("{path}/{index}"), visit)),
        _ => {}
    }
}

#[test]
fn definitions_fit_client_side_apply() {
    for definition in definitions() {
        let bytes = definition.to_string().len();
        assert!(
            bytes < ANNOTATION_MAX_BYTES,
            "{}: {bytes}",
            definition["metadata"]["name"]
        );
    }
}

#[test]
fn every_list_map_and_string_of_a_spec_is_bounded() {
    for kind in ["Skill", "SkillRuntime"] {
        for part in ["spec", "status"] {
            let schema = &schema_of(kind).unwrap()["properties"][part];
            walk(schema, part, &mut |path, node| {
                let bound = match node.get("type").and_then(Value::as_str) {
                    Some("string") if node.get("enum").is_none() && node.get("format").is_none() => "maxLength",
                    Some("array") => "maxItems",
                    Some("object") if node.get("additionalProperties").is_some() => "maxProperties",
                    _ => return,
                };
                assert!(node.get(bound).is_some(), "{kind} {path} has no {bound}");
            });
        }
    }
}

#[test]
fn the_defaults_are_those_of_the_table_and_in_no_list_and_no_format_is_unknown() {
    for kind in ["Skill", "SkillRuntime"] {
        let table = super::defaults::defaults(kind);
        let mut seen = 0;
        walk(schema_of(kind).unwrap(), "", &mut |path, node| {
            if node.get("type").is_some_and(Value::is_string) {
                if let Some(default) = node.get("default").filter(|_| path != "/properties/status") {
                    let name = path.replace("/properties/", ".");
                    let wanted = table.iter().find(|(at, _)| *at == &name[1..]);
                    assert_eq!(Some(default), wanted.map(|(_, value)| value), "{kind} {path}");
                    let description = node["description"].as_str().unwrap();
                    assert_eq!(description.matches("Default: ").count(), 1, "{path}: {description}");
                    seen += 1;
                }
                let format = node.get("format").and_then(Value::as_str).unwrap_or("int64");
                assert!(
                    ["int64", "int32", "date-time", "double"].contains(&format),
                    "{kind} {path}: {format}"
                );
            }
        });
        assert_eq!(seen, table.len(), "{kind}: fields of the table");
    }
}

/// A pattern binds texts alone, and an integer may be written in place of one.
#[test]
fn no_quantity_is_negative_however_it_is_written() {
    let mut seen = 0;
    for kind in ["Skill", "SkillRuntime"] {
        walk(schema_of(kind).unwrap(), "", &mut |path, node| {
            if node.get("x-kubernetes-int-or-string").is_some() {
                assert_eq!(node["minimum"].as_f64(), Some(0.0), "{kind} {path}");
                assert_eq!(node["pattern"], crate::quantity::QUANTITY_PATTERN, "{kind} {path}");
                seen += 1;
            }
        });
    }
    assert!(seen > 2, "{seen}");
}

#[test]
fn conditions_are_a_map_by_type() {
    for kind in ["Skill", "SkillRuntime"] {
        let conditions = &schema_of(kind).unwrap()["properties"]["status"]["properties"]["conditions"];
        assert_eq!(conditions["x-kubernetes-list-type"], "map", "{kind}");
        assert_eq!(
            conditions["x-kubernetes-list-map-keys"],
            serde_json::json!(["type"]),
            "{kind}"
        );
    }
}

#[test]
fn enum_words_are_no_yaml_booleans() {
    for kind in ["Skill", "SkillRuntime"] {
        walk(schema_of(kind).unwrap(), "", &mut |path, node| {
            for word in node.get("enum").and_then(Value::as_array).into_iter().flatten() {
                let word = word
                    .as_str()
                    .unwrap_or_else(|| panic!("{kind} {path}: {word} is no string"));
                assert!(
                    !["on", "off", "yes", "no", "true", "false", "y", "n"].contains(&word.to_lowercase().as_str()),
                    "{kind} {path}: {word}"
                );
            }
        });
    }
}

#[test]
fn unknown_fields_are_named_with_their_path() {
    for (object, expected) in [
        (
            serde_json::json!({"spec": {"source": {"inlin": {}}}}),
            Some("spec.source.inlin: unknown field `inlin`"),
        ),
        (
            serde_json::json!({"spec": {"tools": [{"name": "a", "comand": []}]}}),
            Some("spec.tools[0].comand: unknown field"),
        ),
        (serde_json::json!({"sepc": {}}), Some("sepc: unknown field")),
        (serde_json::json!({"metadata": {"uid": "x"}, "status": {"x": 1}}), None),
        (
            serde_json::json!({"spec": {"tools": [{"inputSchema": {"any": 1}}]}}),
            None,
        ),
        (
            serde_json::json!({"spec": {"source": {"inline": {"files": {"any/path": "x"}}}}}),
            None,
        ),
    ] {
        let found = unknown_field("Skill", &object);
        match expected {
            Some(text) => assert!(
                found.as_deref().is_some_and(|found| found.starts_with(text)),
                "{found:?}"
            ),
            None => assert_eq!(found, None),
        }
    }
}

#[test]
fn the_files_under_crds_are_what_the_types_say() {
    for (name, text) in definition_files().unwrap() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../crds")
            .join(name);
        let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            checked_in == text,
            "{} is stale: run `cargo run -- crds --directory crds`",
            path.display()
        );
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert!(
            definitions().contains(&read),
            "{name} does not read back as it was written"
        );
    }
}

#[test]
fn the_definition_refuses_the_names_that_are_never_granted_and_no_other() {
    use knack_skill::tool_env::{LOADER_NAMES, LOADER_PREFIXES, OWN_NAMES, OWN_PREFIX, PROVIDER_KEYS, grantable};

    let rule = rules::ENV_GRANTABLE;
    let pattern = rule
        .strip_prefix("!self.matches('")
        .and_then(|rest| rest.strip_suffix("')"));
    let never = regex::Regex::new(pattern.unwrap()).unwrap();
    let names = [&PROVIDER_KEYS[..], &OWN_NAMES, &LOADER_NAMES].concat();
    let begun = LOADER_PREFIXES
        .iter()
        .chain([&OWN_PREFIX])
        .map(|begin| format!("{begin}X"));
    let others = [
        "WEATHER_TOKEN",
        "LDAP_PASSWORD",
        "GITHUB_TOKEN",
        "TZ",
        "HOMEPAGE",
        "PATHS",
        "MY_OPENAI_API_KEY",
    ];
    for name in names.iter().chain(&others).map(|name| (*name).to_owned()).chain(begun) {
        assert_eq!(never.is_match(&name), grantable(&name).is_err(), "{name}");
    }
}

#[test]
fn the_definition_takes_the_versions_of_pins_that_the_code_reads() {
    use knack_skill::semver::satisfies;

    let pattern = rules::PIN_VERSION
        .strip_prefix("self.matches('")
        .and_then(|rest| rest.strip_suffix("')"));
    let takes = regex::Regex::new(pattern.unwrap()).unwrap();
    for (wanted, version) in [
        ("1.2.0", "1.2.0"),
        ("==1.2.0", "1.2.0"),
        ("^1", "1.2.0"),
        ("~1.2", "1.2.0"),
        (">1.1.0", "1.2.0"),
        (">=1", "1.2.0"),
        ("<2", "1.2.0"),
        ("<=1.2", "1.2.0"),
        ("2.0.0-rc.1", "2.0.0-rc.1"),
        ("999999999.0.0", "999999999.0.0"),
    ] {
        assert!(takes.is_match(wanted) && satisfies(version, wanted), "{wanted}");
    }
    for wanted in [
        "",
        "latest",
        "1",
        "1.2",
        "==1",
        "^",
        "^1.0.0-beta.1",
        "==2.0.0-rc.1",
        ">=1 <2",
        "1.2.0.0",
        "v1.2.0",
        "99999999999999999999.0.0",
        "1.2.0\n",
    ] {
        assert!(!takes.is_match(wanted), "{wanted:?}");
    }
}

#[test]
fn the_definition_takes_semantic_versions_and_no_other() {
    let pattern = rules::VERSION
        .strip_prefix("self.matches('")
        .and_then(|rest| rest.strip_suffix("')"));
    let takes = regex::Regex::new(pattern.unwrap()).unwrap();
    for (version, expected) in [
        ("1.4.0", true),
        ("0.0.0", true),
        ("1.4.0-rc.1+build", true),
        ("1.4.0-0a.-x", true),
        ("1.4.0+01.b", true),
        ("2024.01.15", true),
        ("01.0.0", true),
        ("1.0", false),
        ("1.0.0-beta..1", false),
        ("1.0.0-01", false),
        ("1.0.0-", false),
        ("1.0.0+", false),
        ("1.0.0+a+b", false),
        ("v1.0.0", false),
    ] {
        assert_eq!(takes.is_match(version), expected, "{version}");
    }
}

#[test]
fn the_definition_takes_the_names_of_objects_that_the_code_takes() {
    let takes = regex::Regex::new(patterns::OBJECT_NAME).unwrap();
    for name in [
        "a", "0", "a-b", "a.b", "a--b.c-0", "", "A", "a b", "-a", "a-", ".a", "a.", "a..b", "a.-b", "a/b", "../a",
        "a?x=1", "a%20", "a_b", "a\n",
    ] {
        assert_eq!(takes.is_match(name), crate::shared::is_object_name(name), "{name:?}");
    }
    assert!(!crate::shared::is_object_name(&"a".repeat(254)));
}
