//! Containers and their variables, as a pod's JSON has them.

use serde_json::{Value, json};

/// The items of a list; none where there is no list.
pub(crate) fn items<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Every container of the application: those of `containers`, then those of `initContainers`.
pub(crate) fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    items(spec, "containers").iter().chain(items(spec, "initContainers"))
}

/// The name of a container, volume or variable.
pub(crate) fn name(object: &Value) -> &str {
    object.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// The value of a variable; empty where it has none.
pub(crate) fn value(entry: &Value) -> &str {
    entry.get("value").and_then(Value::as_str).unwrap_or_default()
}

/// Whether a variable comes from somewhere else.
pub(crate) fn is_referred(entry: &Value) -> bool {
    entry.get("valueFrom").is_some_and(|from| !from.is_null())
}

/// Whether a variable has a value. An empty one counts as absent.
pub(crate) fn is_set(entry: &Value) -> bool {
    is_referred(entry) || !value(entry).is_empty()
}

/// A variable with a value.
pub(crate) fn entry(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}
