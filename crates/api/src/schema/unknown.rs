//! Finds fields that are not in the schema: an API server prunes them silently, so files are checked here.

use serde_json::Value;

/// The first field of an object that its kind's schema does not have, as an error text with its path.
pub fn unknown_field(kind: &str, object: &Value) -> Option<String> {
    let schema = super::schema_of(kind)?;
    search(schema, object, "")
}

fn search(schema: &Value, value: &Value, path: &str) -> Option<String> {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return None;
    }
    match value {
        Value::Object(members) => {
            if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
                return members
                    .iter()
                    .find_map(|(key, member)| search(values, member, &join(path, key)));
            }
            let properties = schema.get("properties").and_then(Value::as_object)?;
            members.iter().find_map(|(key, member)| {
                let path = join(path, key);
                // What kubectl and GitOps tools add to metadata, and what controllers write, is not the author's.
                if ["apiVersion", "kind", "metadata", "status"].contains(&path.as_str()) {
                    return None;
                }
                if let Some(schema) = properties.get(key) {
                    return search(schema, member, &path);
                }
                let known: Vec<_> = properties.keys().map(|key| format!("`{key}`")).collect();
                Some(format!(
                    "{path}: unknown field `{key}`, expected one of {}",
                    known.join(", ")
                ))
            })
        }
        Value::Array(items) => {
            let schema = schema.get("items")?;
            items
                .iter()
                .enumerate()
                .find_map(|(index, item)| search(schema, item, &format!("{path}[{index}]")))
        }
        _ => None,
    }
}

pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}
