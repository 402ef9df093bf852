//! What the rules of the definitions ask in Rust.

use std::collections::HashSet;

use knack_vocabulary::KEY_PREFIX;
use serde_json::Value;

/// Characters of a path in a source.
const PATH_MAX: usize = 1024;

pub(super) fn has(value: &Value, field: &str) -> bool {
    value.get(field).is_some_and(|value| !value.is_null())
}

/// The text of a field; empty: there is none.
pub(super) fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

/// The items of a list; empty: there is none.
pub(super) fn items<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The name of an object.
pub(super) fn name_of(object: &Value) -> &str {
    text(&object["metadata"], "name")
}

pub(super) fn is_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty()
        && name.chars().all(legal)
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

/// Paths of an inline source, with their contents.
pub(super) fn files(inline: &Value) -> impl Iterator<Item = (&str, &str)> {
    let maps = [&inline["files"], &inline["binaryFiles"]];
    let entries = maps.into_iter().filter_map(Value::as_object).flatten();
    entries.map(|(path, text)| (path.as_str(), text.as_str().unwrap_or_default()))
}

/// Whether a text is the path of a file in a skill.
pub(super) fn is_path(path: &str) -> bool {
    characters(path) <= PATH_MAX && is_relative(path)
}

pub(super) fn characters(text: &str) -> usize {
    text.chars().count()
}

/// Without empty parts, `.` and `..`.
pub(super) fn is_relative(path: &str) -> bool {
    path.split('/').all(|part| !["", ".", ".."].contains(&part))
}

pub(super) fn is_unique<'v>(mut values: impl Iterator<Item = &'v str>) -> bool {
    let mut seen = HashSet::new();
    values.all(|value| seen.insert(value))
}

/// A relative path of a `.py` file; its folders are checked when the skill is judged.
pub(super) fn is_python_file(path: &str) -> bool {
    let stem = path.strip_suffix(".py").unwrap_or_default();
    !stem.is_empty() && !stem.starts_with('/') && !stem.contains('\n')
}

/// `registry/repository`, without tag and digest.
pub(super) fn is_repository(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or_default();
    !image.contains('@') && !last.contains(':')
}

/// Whether a requirement of a selector has values if its operator asks for them, and only then.
pub(super) fn requirement(requirement: &Value) -> bool {
    ["In", "NotIn"].contains(&text(requirement, "operator")) != items(requirement, "values").is_empty()
}

/// Whether a label or annotation of a pod is none of Knack's and of those of Kubernetes that bind its sandbox.
pub(super) fn is_pod_key(key: &str) -> bool {
    let is_below = |domain: &str| {
        let mut found = key.match_indices(domain);
        found.any(|(at, _)| at == 0 || key[..at].ends_with('.'))
    };
    let domains = [
        KEY_PREFIX,
        "batch.kubernetes.io/",
        "apparmor.security.beta.kubernetes.io/",
    ];
    !["job-name", "controller-uid"].contains(&key) && !domains.into_iter().any(is_below)
}

/// A URL of `http` or `https` with a host.
pub(super) fn is_http_url(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let (name, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, port)) => (address, port),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|port| port.chars().all(|c| c.is_ascii_digit()));
    let is_scheme = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let is_odd = |c: char| c.is_whitespace() || c.is_control();
    is_scheme && is_port && !name.is_empty() && !url.contains(char::is_control) && !authority.contains(is_odd)
}
