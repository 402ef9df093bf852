//! YAML documents to objects: several per file, each judged by itself.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use knack_skill::model::SkillRef;
use knack_vocabulary::{API_VERSION, DEFAULT_NAMESPACE, KEY_PREFIX, KIND_SKILL, KIND_SKILL_RUNTIME};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_saphyr::UserMessageFormatter;

use super::schema::{problems, unknown_field, whole, without_nulls};
use super::skill::SkillSpec;
use super::skill_runtime::SkillRuntimeSpec;

/// The part of `metadata` that Knack reads; what kubectl and GitOps tools add is accepted and dropped.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    /// Object name.
    pub name: String,
    /// Namespace; `default` when absent.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Labels, for selectors.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

fn default_namespace() -> String {
    DEFAULT_NAMESPACE.to_owned()
}

impl From<&ObjectMeta> for SkillRef {
    fn from(metadata: &ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
        }
    }
}

/// A `Skill` object of a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SkillManifest {
    /// Identity and labels.
    pub metadata: ObjectMeta,
    /// The desired state.
    pub spec: SkillSpec,
}

/// A `SkillRuntime` object of a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SkillRuntimeManifest {
    /// Identity and labels.
    pub metadata: ObjectMeta,
    /// The desired state.
    pub spec: SkillRuntimeSpec,
}

/// One object of a manifest file.
#[derive(Debug, Clone)]
pub enum Manifest {
    /// A skill.
    Skill(Box<SkillManifest>),
    /// A runtime.
    SkillRuntime(Box<SkillRuntimeManifest>),
    /// A ConfigMap, which may hold the files of a Skill beside it.
    ConfigMap(Box<ConfigMap>),
    /// Any other object: it is not of Knack's kinds and is left alone.
    Other,
}

/// Why a document was refused. The text names the object and the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("document {document}{}: {message}", object.as_ref().map(|o| format!(" ({o})")).unwrap_or_default())]
pub struct ManifestError {
    /// 1-based number of the document in its file.
    pub document: usize,
    /// `Kind namespace/name`, as far as known.
    pub object: Option<String>,
    /// What is wrong and what to do.
    pub message: String,
}

impl ManifestError {
    /// Whether the document is known to be a Skill, and thus no other object.
    pub fn is_of_skill(&self) -> bool {
        let kind = self.object.as_deref().and_then(|object| object.split(' ').next());
        kind == Some(KIND_SKILL)
    }
}

/// How deep lists may be in lists; `kubectl` writes one level.
const LIST_MAX_DEPTH: usize = 4;

/// Reads every document of a YAML (or JSON) text, and every item of its lists. One broken document spoils no other.
pub fn parse_manifests(text: &str) -> Vec<Result<Manifest, ManifestError>> {
    let mut all = Vec::new();
    for (index, text) in documents(text).into_iter().enumerate() {
        let document = index + 1;
        // To a value first, then to the type: the way the API server reads it, so enum errors name the field.
        match serde_saphyr::from_str(text) {
            Ok(value) => read_object(document, value, 0, &mut all),
            Err(error) => all.push(Err(ManifestError {
                document,
                object: None,
                message: format!("not valid YAML: {}", yaml_problem(&error)),
            })),
        }
    }
    all
}

/// What is wrong with a text, for its author: one line, without the parser's words for programmers.
pub fn yaml_problem(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().render_with_formatter(&UserMessageFormatter);
    text.lines().next().unwrap_or_default().to_owned()
}

/// The documents of a stream that hold something: of YAML, divided by lines that begin with `---` or are `...`, and of JSON, also
/// where one follows the other without a divider.
pub fn documents(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut start, mut offset) = (0, 0);
    for line in text.split_inclusive('\n') {
        let next = offset + line.len();
        if let Some(marker) = marker(line) {
            found.push(&text[start..offset]);
            // A document may begin on the line of its marker.
            start = match marker {
                Marker::Line => next,
                Marker::Content => offset + MARKER_BYTES,
            };
        }
        offset = next;
    }
    found.push(&text[start..]);
    let found = found.into_iter().filter(|document| !is_blank(document));
    found.flat_map(json_documents).collect()
}

/// Bytes of `---` and of `...`.
const MARKER_BYTES: usize = 3;

enum Marker {
    /// The line has nothing else but a comment.
    Line,
    /// Content follows on the line.
    Content,
}

/// Whether a line divides documents.
fn marker(line: &str) -> Option<Marker> {
    let (rest, may_have_content) = match (line.strip_prefix("---"), line.strip_prefix("...")) {
        (Some(rest), _) => (rest, true),
        (None, Some(rest)) => (rest, false),
        (None, None) => return None,
    };
    let content = rest.trim();
    if content.is_empty() || (rest.starts_with([' ', '\t']) && content.starts_with('#')) {
        return Some(Marker::Line);
    }
    (may_have_content && rest.starts_with([' ', '\t'])).then_some(Marker::Content)
}

/// Comments, and directives of YAML, which stand before a document.
fn is_blank(document: &str) -> bool {
    document
        .lines()
        .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#') || line.starts_with('%'))
}

/// The parts of a text that is several JSON objects, as `jq -c` writes them; any other text is one part.
fn json_documents(text: &str) -> Vec<&str> {
    if !text.trim_start().starts_with('{') {
        return vec![text];
    }
    let mut read = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let (mut parts, mut start) = (Vec::new(), 0);
    while let Some(Ok(_)) = read.next() {
        let end = read.byte_offset();
        parts.push(&text[start..end]);
        start = end;
    }
    // What is no JSON to its end is YAML, whose reader says what is wrong with it.
    if text[start..].trim().is_empty() {
        parts
    } else {
        vec![text]
    }
}

/// An object, or the items of a list: `kubectl get -o yaml` writes several objects so.
fn read_object(document: usize, value: Value, depth: usize, all: &mut Vec<Result<Manifest, ManifestError>>) {
    let Some(list) = list_kind(&value) else {
        return all.push(read_one(document, value));
    };
    if depth >= LIST_MAX_DEPTH {
        return all.push(Err(ManifestError {
            document,
            object: None,
            message: format!("kind: {list} in more than {LIST_MAX_DEPTH} other lists; write the objects themselves"),
        }));
    }
    let Value::Object(mut members) = value else { return };
    let api_version = members.remove("apiVersion").unwrap_or_default();
    let of = list.strip_suffix("List").unwrap_or_default();
    let Some(Value::Array(items)) = members.remove("items") else {
        return;
    };
    for mut item in items {
        // Items of a list of one kind may be without it.
        if let Some(item) = item.as_object_mut().filter(|_| !of.is_empty()) {
            item.entry("apiVersion").or_insert_with(|| api_version.clone());
            item.entry("kind").or_insert_with(|| of.into());
        }
        read_object(document, item, depth + 1, all);
    }
}

/// The kind of a list that may hold Knack's objects.
fn list_kind(value: &Value) -> Option<String> {
    let word = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (word("apiVersion"), word("kind"));
    let is_list =
        (api_version, kind) == ("v1", "List") || (api_version.starts_with(KEY_PREFIX) && kind.ends_with("List"));
    let has_items = value
        .get("items")
        .is_some_and(|items| items.is_array() || items.is_null());
    // Anything else with items, such as a recorded request, is not what kubectl writes.
    let is_known = |key: &String| ["apiVersion", "kind", "metadata", "items"].contains(&key.as_str());
    let is_nothing_else = value.as_object().is_some_and(|members| members.keys().all(is_known));
    (is_list && has_items && is_nothing_else).then(|| kind.to_owned())
}

fn read_one(document: usize, value: Value) -> Result<Manifest, ManifestError> {
    let fail = |object: Option<String>, message: String| ManifestError {
        document,
        object,
        message,
    };
    let word = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (word("apiVersion"), word("kind"));
    if api_version.is_empty() || kind.is_empty() {
        return Err(fail(
            None,
            format!("apiVersion and kind are required; write apiVersion: {API_VERSION} and kind: {KIND_SKILL}"),
        ));
    }
    if (api_version.as_str(), kind.as_str()) == ("v1", "ConfigMap")
        && let Ok(map) = ConfigMap::deserialize(&value)
    {
        return Ok(Manifest::ConfigMap(Box::new(map)));
    }
    if !api_version.starts_with(KEY_PREFIX) {
        return Ok(Manifest::Other);
    }
    let metadata = value.get("metadata");
    let part = |key: &str| metadata.and_then(|m| m.get(key)).and_then(Value::as_str);
    let object = Some(format!(
        "{kind} {}/{}",
        part("namespace").unwrap_or(DEFAULT_NAMESPACE),
        part("name").unwrap_or("?")
    ));
    if api_version != API_VERSION {
        return Err(fail(
            object,
            format!("apiVersion: {api_version} is not served; write {API_VERSION}"),
        ));
    }
    if part("name").unwrap_or_default().is_empty() {
        return Err(fail(object, "metadata.name: required".to_owned()));
    }
    match kind.as_str() {
        KIND_SKILL => typed(KIND_SKILL, value).map(|m| Manifest::Skill(Box::new(m))),
        KIND_SKILL_RUNTIME => typed(KIND_SKILL_RUNTIME, value).map(|m| Manifest::SkillRuntime(Box::new(m))),
        _ => Err(format!("kind: {kind} is not one of {KIND_SKILL}, {KIND_SKILL_RUNTIME}")),
    }
    .map_err(|message| fail(object, message))
}

fn typed<T: serde::de::DeserializeOwned>(kind: &str, mut value: Value) -> Result<T, String> {
    // An API server prunes unknown fields; in a file such a field is a mistake that would go unnoticed.
    if let Some(message) = unknown_field(kind, &value) {
        return Err(message);
    }
    if let Some(spec) = value.get_mut("spec") {
        whole(spec);
    }
    let problems = problems(kind, &value);
    if !problems.is_empty() {
        return Err(problems.join("; "));
    }
    without_nulls(kind, &mut value);
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        format!("{path}: {inner}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_whole_however_they_are_written() {
        let text = "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: a}\nspec:\n  concurrency: {maxRuns: 4.0}\n  \
                    sandbox: {resources: {limits: {memory: 1e9}}}\n";
        check(text, &["runtime a"]);
        check(&text.replace("4.0", "4.5"), &["write a whole number"]);
    }

    #[test]
    fn an_object_with_more_than_a_list_is_no_list() {
        let item = "{apiVersion: knack.dev/v1alpha1, kind: Skill, metadata: {name: a}, spec: {source: {inline: {files: {SKILL.md: x}}}}}";
        check(
            &format!("{{apiVersion: v1, kind: List, items: [{item}]}}"),
            &["skill default/a"],
        );
        check(
            &format!("{{model: m, messages: [], apiVersion: v1, kind: List, items: [{item}]}}"),
            &["other"],
        );
    }

    fn check(text: &str, expected: &[&str]) {
        let got: Vec<String> = parse_manifests(text)
            .into_iter()
            .map(|result| match result {
                Ok(Manifest::Skill(skill)) => format!("skill {}/{}", skill.metadata.namespace, skill.metadata.name),
                Ok(Manifest::SkillRuntime(runtime)) => format!("runtime {}", runtime.metadata.name),
                Ok(Manifest::ConfigMap(map)) => format!("map {}", map.metadata.name.unwrap_or_default()),
                Ok(Manifest::Other) => "other".to_owned(),
                Err(error) => format!("error {error}"),
            })
            .collect();
        assert_eq!(got.len(), expected.len(), "{got:?}");
        for (got, expected) in got.iter().zip(expected) {
            assert!(got.contains(expected), "{got:?} should contain {expected:?}");
        }
    }

    const SKILL: &str = "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: a}\nspec: {source: {inline: {files: {SKILL.md: x}}}}\n";

    #[test]
    fn one_broken_document_spoils_no_other() {
        check(
            &format!("{SKILL}---\na: [\n---\n{SKILL}"),
            &["skill default/a", "error document 2: not valid YAML", "skill default/a"],
        );
    }

    #[test]
    fn documents_of_a_stream_are_found_as_kubectl_finds_them() {
        let json = |name: &str| {
            format!(
                r#"{{"apiVersion":"knack.dev/v1alpha1","kind":"SkillRuntime","metadata":{{"name":"{name}"}},"spec":{{}}}}"#
            )
        };
        let two = ["runtime a", "runtime b"];
        check(&format!("{}\n{}\n", json("a"), json("b")), &two);
        check(&format!("{}{}", json("a"), json("b")), &two);
        check(&format!("{}\n---  # second\n{}", json("a"), json("b")), &two);
        check(
            &format!("%YAML 1.1\n---\n{}\n...\n---\t# b\n{}", json("a"), json("b")),
            &two,
        );
        check(&format!("--- {}\n--- {}", json("a"), json("b")), &two);
        check(
            &format!("---\n{{a: b\n---\n{}", json("b")),
            &["error document 1: not valid YAML", "runtime b"],
        );
        // No marker: it is part of a word.
        check("apiVersion: v1\nkind: Secret\n---x: 1\n", &["other"]);
        for (text, words) in [
            ("a: 1\na: 2\n", ["duplicate", "not valid YAML"]),
            ("{a: 1} {b: 2}\n", ["document 1", "not valid YAML"]),
        ] {
            let reported = parse_manifests(text)[0].as_ref().unwrap_err().to_string();
            assert!(words.iter().all(|word| reported.contains(word)), "{reported}");
            assert!(
                !reported.contains("Options") && !reported.contains("from_") && !reported.contains('\n'),
                "{reported}"
            );
        }
    }

    #[test]
    fn items_of_a_list_are_objects_of_the_file() {
        let item =
            "{apiVersion: knack.dev/v1alpha1, kind: SkillRuntime, metadata: {name: a, uid: u}, spec: {}, status: {}}";
        let list =
            |items: &str| format!("apiVersion: v1\nkind: List\nmetadata: {{resourceVersion: ''}}\nitems: [{items}]\n");
        check(
            &list(&format!("{item}, {{apiVersion: v1, kind: Secret}}")),
            &["runtime a", "other"],
        );
        check(&list(""), &[]);
        check(
            "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntimeList\nitems: [{metadata: {name: a}, spec: {}}, {metadata: {name: B}, spec: {}}]\n",
            &[
                "runtime a",
                "error document 1 (SkillRuntime default/B): metadata.name must be",
            ],
        );
        // Lists of others are not searched, and lists in lists end.
        check("apiVersion: v1\nkind: PodList\nitems: [{}]\n", &["other"]);
        let inner = |text: String| format!("{{apiVersion: v1, kind: List, items: [{text}]}}");
        let nested = |depth| (0..depth).fold(item.to_owned(), |text, _| inner(text));
        check(&nested(LIST_MAX_DEPTH), &["runtime a"]);
        check(
            &nested(LIST_MAX_DEPTH + 1),
            &["error document 1: kind: List in more than"],
        );
    }

    #[test]
    fn an_unknown_field_is_named_with_its_path() {
        check(
            &SKILL.replace("spec: {", "spec: {actvation: {}, "),
            &["error document 1 (Skill default/a): spec.actvation: unknown field `actvation`"],
        );
    }

    #[test]
    fn wrong_enum_words_and_names_are_named() {
        check(
            &SKILL.replace("spec: {", "spec: {activation: {mode: Sometimes}, "),
            &["spec.activation.mode: `Sometimes` must be one of Never, OnRequest, Listed, Auto, Always"],
        );
        check(
            &SKILL.replace("name: a", "name: A_b"),
            &["metadata.name must be lower-case letters, digits and single hyphens"],
        );
        check(&SKILL.replace("name: a", "name: "), &["metadata.name: required"]);
    }

    /// The text of a Skill with other fields, or of a SkillRuntime.
    fn skill(fields: &str) -> String {
        SKILL.replace("spec: {", &format!("spec: {{{fields}, "))
    }

    fn runtime(spec: &str) -> String {
        format!("apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {{name: r}}\nspec: {spec}\n")
    }

    #[test]
    fn value_of_another_type_is_refused_with_what_to_write() {
        for (text, expected) in [
            (
                skill("activation: Always"),
                "spec.activation: write a mapping, such as `activation: {mode: Always}`",
            ),
            (
                runtime("{concurrency: 4}"),
                "spec.concurrency: write a mapping with fields of concurrency: maxQueued, maxRuns, queueTimeoutSeconds",
            ),
            (
                runtime("{concurrency: {maxRuns: many}}"),
                "spec.concurrency.maxRuns: write a whole number",
            ),
            (
                runtime("{concurrency: {maxRuns: 1.5}}"),
                "spec.concurrency.maxRuns: write a whole number",
            ),
            (
                runtime("{sandbox: {languages: python}}"),
                "spec.sandbox.languages: write a list",
            ),
            (runtime("{suspend: 'yes'}"), "spec.suspend: write true or false"),
            (
                skill("version: 1.10"),
                "spec.version: write a string: put the value in quotes",
            ),
            (
                runtime("{gateway: {upstreams: [openai]}}"),
                "spec.gateway.upstreams: write a mapping",
            ),
            (runtime("text"), "spec: write a mapping with fields of spec: "),
            (SKILL.replace("spec:", "other:"), "other: unknown field"),
            (
                SKILL.replace("{name: a}", "{name: a, labels: {team: 1}}"),
                "metadata.labels.team: write a string",
            ),
            (
                runtime("{sandbox: {resources: {limits: {memory: [1]}}}}"),
                "spec.sandbox.resources.limits.memory: write a quantity, such as 512Mi",
            ),
        ] {
            check(&text, &[expected]);
            let reported = parse_manifests(&text)[0].as_ref().unwrap_err().to_string();
            for word in ["expected struct", "invalid type", "u64", "sequence"] {
                assert!(!reported.contains(word), "{reported}");
            }
        }
    }

    #[test]
    fn bounds_of_the_definitions_are_those_of_files() {
        for (text, expected) in [
            (
                skill("sandbox: {timeoutSeconds: 0}"),
                "spec.sandbox.timeoutSeconds: must be at least 1",
            ),
            (
                skill("sandbox: {maxOutputBytes: 1}"),
                "spec.sandbox.maxOutputBytes: must be at least 1024",
            ),
            (
                skill("inputs: [{name: a b}]"),
                "spec.inputs[0].name: input names must consist of letters",
            ),
            (
                skill("activation: {tags: [\"\"]}"),
                "spec.activation.tags[0]: must not be empty",
            ),
            (
                SKILL.replace("{name: a}", "{name: a, namespace: A B}"),
                "metadata.namespace: must be lower-case letters, digits and hyphens",
            ),
            (
                SKILL.replace("{name: a}", "{name: a, labels: {a b: c}}"),
                "metadata.labels: `a b`: must be a label key of Kubernetes",
            ),
            (
                runtime("{sandbox: {maxTimeoutSeconds: 99999}}"),
                "spec.sandbox.maxTimeoutSeconds: must be at most 3600",
            ),
            (
                runtime("{concurrency: {maxRuns: 0}, gateway: {injection: {deadlineSeconds: 0, maxToolRounds: 0}}}"),
                "spec.concurrency.maxRuns: must be at least 1; spec.gateway.injection.deadlineSeconds: must be at least 1; \
                 spec.gateway.injection.maxToolRounds: must be at least 1",
            ),
            (
                runtime("{warmPool: {replicas: 1000}}"),
                "spec.warmPool.replicas: must be at most 100",
            ),
            (
                runtime("{skillSelector: {skills: [{name: A_b}]}}"),
                "spec.skillSelector.skills[0].name: must be lower-case",
            ),
            (
                runtime("{skillSelector: {skills: [{}]}}"),
                "spec.skillSelector.skills[0].name: required",
            ),
            (
                runtime("{sandbox: {resources: {limits: {memory: -1}}}}"),
                "spec.sandbox.resources.limits.memory: must be at least 0",
            ),
            (
                runtime("{sandbox: {languages: [node, node, node]}}"),
                "spec.sandbox.languages: must have at most 2 items",
            ),
        ] {
            check(&text, &[expected]);
        }
        // A field without a value is left out, as the API server does; what a definition does not describe stays.
        check(
            &runtime("{env: , sandbox: {languages: , timeoutSeconds: }}"),
            &["runtime r"],
        );
        check(&runtime(""), &["spec: required"]);
        let schema = skill("tools: [{name: t, command: [a], inputSchema: {properties: {a: {default: null}}}}]");
        let Manifest::Skill(read) = parse_manifests(&schema).remove(0).unwrap() else {
            panic!("no Skill");
        };
        let tools = read.spec.tools.unwrap();
        let kept = tools[0].input_schema.as_ref().unwrap().value();
        assert!(kept["properties"]["a"]["default"].is_null() && kept["properties"]["a"].get("default").is_some());
    }

    #[test]
    fn other_groups_are_left_alone_and_other_versions_refused() {
        check("apiVersion: v1\nkind: Secret\n", &["other"]);
        check("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n", &["map m"]);
        // Not of Knack's kinds, whatever is wrong with it.
        check("apiVersion: v1\nkind: ConfigMap\ndata: 1\n", &["other"]);
        check(
            &SKILL.replace("v1alpha1", "v1"),
            &["apiVersion: knack.dev/v1 is not served"],
        );
        check("# nothing\n---\n", &[]);
    }
}
