//! Adds the sidecar to one pod.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::env::{self, entry, name};
use super::names::{
    ANNOTATION_INJECTION, ANNOTATION_LOCAL_VOLUMES, ANNOTATION_MIRROR, ANNOTATION_RUNTIME, ANNOTATIONS, DISABLED,
    LABEL_INJECT, LABEL_OS, PREFIX, RUNTIME, VARIABLE_RUNTIME,
};
use super::parameters::Parameters;
use super::redirect::Redirect;
use super::resources;

#[expect(clippy::unwrap_used, reason = "a constant, which every test compiles")]
static RUNTIME_NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(RUNTIME).unwrap());

/// A pod, and what was done to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Injection {
    /// The pod.
    pub pod: Value,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of an injection into a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It has the sidecar. The text is that of the annotation `knack.dev/injection`.
    Injected(String),
    /// It cannot have the sidecar, and its annotation says why; nothing else is changed.
    Refused(String),
    /// It has the sidecar already, or must not be changed: the same pod.
    Unchanged(&'static str),
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Injected(text) | Self::Refused(text) => formatter.write_str(text),
            Self::Unchanged(why) => write!(formatter, "unchanged: {why}"),
        }
    }
}

pub(crate) fn label<'a>(pod: &'a Value, key: &str) -> Option<&'a str> {
    pod.pointer("/metadata/labels")?.get(key)?.as_str()
}

/// Whether a pod goes without the sidecar by its own word.
pub(crate) fn asks_not(pod: &Value) -> bool {
    label(pod, LABEL_INJECT) == Some(DISABLED)
}

/// The pod with the sidecar. Whether it asks for one is the caller's question.
pub fn inject(pod: &Value, parameters: &Parameters) -> Injection {
    let unchanged = |why| Injection {
        pod: pod.clone(),
        outcome: Outcome::Unchanged(why),
    };
    let Some(spec) = pod.get("spec").filter(|_| is_a_pod(pod)) else {
        return unchanged("not a pod");
    };
    if env::containers(spec).any(|container| name(container) == parameters.name()) {
        return unchanged("it has a container of the sidecar's name");
    }
    if annotation(pod, ANNOTATION_MIRROR).is_some() {
        return unchanged("the mirror of a static pod");
    }
    let mut changed = pod.clone();
    let outcome = match why_refused(spec, parameters) {
        Some(why) => Outcome::Refused(format!("not injected: {why}")),
        None => Outcome::Injected(add(&mut changed, pod, spec, parameters)),
    };
    annotate(&mut changed, &outcome, parameters);
    Injection { pod: changed, outcome }
}

/// Whether everything that is read or changed has the type that it has in a pod. An API server refuses all others.
pub(crate) fn is_a_pod(pod: &Value) -> bool {
    let none_or =
        |value: Option<&Value>, is: fn(&Value) -> bool| value.is_none_or(|value| value.is_null() || is(value));
    let objects: fn(&Value) -> bool = |list| list.as_array().is_some_and(|list| list.iter().all(Value::is_object));
    let metadata = pod.get("metadata");
    pod.get("spec").is_some_and(|spec| {
        spec.get("containers").is_some_and(objects)
            && ["initContainers", "volumes", "imagePullSecrets"]
                .iter()
                .all(|field| none_or(spec.get(field), objects))
            && env::containers(spec).all(|container| none_or(container.get("env"), objects))
    }) && none_or(metadata, Value::is_object)
        && none_or(
            metadata.and_then(|metadata| metadata.get("annotations")),
            Value::is_object,
        )
}

pub(crate) fn annotation<'a>(pod: &'a Value, key: &str) -> Option<&'a str> {
    pod.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// Why a pod cannot have the sidecar: it would not start, or would not reach it.
fn why_refused(spec: &Value, parameters: &Parameters) -> Option<&'static str> {
    let is_taken = |port: &Value| {
        parameters
            .ports
            .iter()
            .any(|ours| port.get("containerPort") == Some(&json!(ours)))
    };
    if spec.get("hostNetwork").and_then(Value::as_bool) == Some(true) {
        Some("the pod uses the host's network")
    } else if !is_for_linux(spec) {
        Some("not a Linux pod")
    } else if env::items(spec, "volumes")
        .iter()
        .any(|volume| parameters.volume_names().any(|ours| ours == name(volume)))
    {
        Some("a volume has a name of the sidecar's")
    } else if env::containers(spec).any(|container| env::items(container, "ports").iter().any(is_taken)) {
        Some("a container has a port of the sidecar's")
    } else {
        None
    }
}

/// Whether a pod may run on a Linux node: by its own word, its node selector and the node affinity that it requires.
fn is_for_linux(spec: &Value) -> bool {
    let is_linux = |os: Option<&Value>| os.and_then(Value::as_str).is_none_or(|os| os == "linux");
    let excludes = |expression: &Value| {
        let has_linux = env::items(expression, "values").iter().any(|os| os == "linux");
        expression.get("key").and_then(Value::as_str) == Some(LABEL_OS)
            && match expression.get("operator").and_then(Value::as_str) {
                Some("In") => !has_linux,
                Some("NotIn") => has_linux,
                _ => false,
            }
    };
    let required = spec.pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution");
    let terms = required.map_or(&[][..], |required| env::items(required, "nodeSelectorTerms"));
    let excluded = |term: &Value| env::items(term, "matchExpressions").iter().any(excludes);
    is_linux(spec.pointer("/os/name"))
        && is_linux(spec.get("nodeSelector").and_then(|selector| selector.get(LABEL_OS)))
        // One of the terms is enough for a node.
        && (terms.is_empty() || !terms.iter().all(excluded))
}

/// Adds everything but the annotations. The text of the injection's is returned.
fn add(changed: &mut Value, pod: &Value, spec: &Value, parameters: &Parameters) -> String {
    let redirect = Redirect::of(spec, parameters);
    let mut sidecar = parameters.container.clone();
    let mut variables = env::items(&Value::Object(sidecar.clone()), "env").to_vec();
    variables.extend(redirect.variables.iter().cloned());
    let chosen = annotation(pod, ANNOTATION_RUNTIME).filter(|chosen| !chosen.is_empty());
    let runtime = chosen.filter(|chosen| RUNTIME_NAME.is_match(chosen));
    variables.extend(runtime.map(|runtime| entry(VARIABLE_RUNTIME, runtime)));
    sidecar.insert("env".to_owned(), Value::Array(variables));
    if let Some(resources) = resources::of_sidecar(spec, &parameters.resources) {
        sidecar.insert("resources".to_owned(), resources);
    }
    let spec = &mut changed["spec"];
    for kind in ["containers", "initContainers"] {
        for container in spec.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten() {
            let env = redirect.env_of(container);
            if !env.is_empty() {
                container["env"] = Value::Array(env);
            }
        }
    }
    list(spec, "initContainers").insert(0, Value::Object(sidecar));
    list(spec, "volumes").extend(parameters.volumes.iter().cloned().map(Value::Object));
    for secret in &parameters.image_pull_secrets {
        let secrets = list(spec, "imagePullSecrets");
        if !secrets.iter().any(|one| name(one) == secret) {
            secrets.push(json!({"name": secret}));
        }
    }
    text(
        &redirect.kept,
        chosen.is_some() && runtime.is_none(),
        unknown_annotation(pod),
    )
}

/// The first annotation of a pod, by name, that looks like one of Knack's and is not.
fn unknown_annotation(pod: &Value) -> Option<&str> {
    let all = pod.pointer("/metadata/annotations").and_then(Value::as_object);
    let names = all.into_iter().flat_map(Map::keys).map(String::as_str);
    names
        .filter(|name| name.starts_with(PREFIX) && !ANNOTATIONS.contains(name))
        .min()
}

/// A list of an object, made if it is not there.
fn list<'a>(object: &'a mut Value, field: &str) -> &'a mut Vec<Value> {
    let place = &mut object[field];
    if !place.is_array() {
        *place = Value::Array(Vec::new());
    }
    match place {
        Value::Array(list) => list,
        _ => unreachable!("just made"),
    }
}

fn text(kept: &[(&str, &str)], is_runtime_ignored: bool, unknown: Option<&str>) -> String {
    let mut text = "injected".to_owned();
    if !kept.is_empty() {
        let kept: Vec<String> = kept.iter().map(|(api, why)| format!("{api} ({why})")).collect();
        text.push_str(&format!("; not redirected: {}", kept.join(", ")));
    }
    if is_runtime_ignored {
        text.push_str(&format!("; {ANNOTATION_RUNTIME} is not namespace/name and is ignored"));
    }
    if let Some(unknown) = unknown {
        text.push_str(&format!("; unknown annotation {unknown} is ignored"));
    }
    text
}

/// Writes the annotations: the text, and that the sidecar's volumes keep no node from being removed.
fn annotate(pod: &mut Value, outcome: &Outcome, parameters: &Parameters) {
    let (Outcome::Injected(text) | Outcome::Refused(text)) = outcome else {
        return;
    };
    let metadata = &mut pod["metadata"];
    if !metadata["annotations"].is_object() {
        metadata["annotations"] = json!({});
    }
    let annotations = &mut metadata["annotations"];
    annotations[ANNOTATION_INJECTION] = json!(text);
    if let Outcome::Injected(_) = outcome {
        let named = annotations[ANNOTATION_LOCAL_VOLUMES].as_str().unwrap_or_default();
        let mut names: Vec<&str> = named.split(',').filter(|_| !named.is_empty()).collect();
        for own in parameters.local_volumes() {
            if !names.contains(&own) {
                names.push(own);
            }
        }
        if !names.is_empty() {
            annotations[ANNOTATION_LOCAL_VOLUMES] = json!(names.join(","));
        }
    }
}
