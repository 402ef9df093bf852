//! Replaces the sidecar in a manifest that has it, with that of other parameters.
//!
//! The sidecar is taken out, what the injection had changed of the application is changed back, and the pod is injected as any
//! other. What the manifest does not show is left to its author: who has edited the sidecar's own settings finds those
//! of the parameters, but for the variables in [`is_kept`].

use knack_vocabulary::PROXIES;
use serde_json::Value;

use super::env::{self, entry, name, value};
use super::inject::{Injection, Outcome, annotation, inject, is_a_pod};
use super::names::{ANNOTATION_INJECTION, ANNOTATION_LOCAL_VOLUMES, LOOPBACK, NO_PROXIES, VARIABLE_RUNTIME};
use super::parameters::{Api, Parameters};
use super::redirect::{Redirect, is_sidecars};

/// The pod with the sidecar of these parameters; `None`: it has no sidecar that an injection has put there.
pub(crate) fn inject_again(pod: &Value, parameters: &Parameters) -> Option<Injection> {
    let said = annotation(pod, ANNOTATION_INJECTION).filter(|said| said.starts_with("injected"))?;
    let spec = pod.get("spec").filter(|_| is_a_pod(pod))?;
    let mut inits = env::items(spec, "initContainers").iter();
    let sidecar = inits.find(|container| name(container) == parameters.name())?;
    let own = env::items(sidecar, "env");
    let kept: Vec<&Value> = own.iter().filter(|variable| is_kept(variable, parameters)).collect();
    let mut before = pod.clone();
    forget_volumes(&mut before, sidecar);
    take_out(&mut before["spec"], sidecar, parameters);
    for container in containers_mut(&mut before["spec"]) {
        change_back(container, &kept, parameters);
    }
    release(&mut before["spec"], said, parameters);
    let mut injection = inject(&before, parameters);
    if !matches!(injection.outcome, Outcome::Injected(_)) {
        injection = Injection {
            pod: pod.clone(),
            outcome: Outcome::Unchanged(
                "its sidecar cannot be replaced: the pod uses the host's network, is not a Linux pod, is a mirror, or has a \
                 container, volume or port of the sidecar's",
            ),
        };
    } else if let Some(Value::Array(now)) = injection.pod.pointer_mut("/spec/initContainers/0/env") {
        let is_missing = |variable: &Value| now.iter().all(|one| name(one) != name(variable));
        let missing: Vec<Value> = kept
            .into_iter()
            .filter(|variable| is_missing(variable))
            .cloned()
            .collect();
        now.extend(missing);
    }
    if injection.pod == *pod && matches!(injection.outcome, Outcome::Injected(_)) {
        injection.outcome = Outcome::Unchanged("it has the sidecar of these parameters");
    }
    Some(injection)
}

/// Whether a variable of the old sidecar is one of the new one: those that come from the application, or from who wrote the
/// manifest, and not from parameters.
fn is_kept(variable: &Value, parameters: &Parameters) -> bool {
    let own = name(variable);
    own == VARIABLE_RUNTIME || PROXIES.contains(&own) || parameters.apis.iter().any(|api| api.upstream == own)
}

/// Takes the sidecar out, and the volumes that no other container mounts.
fn take_out(spec: &mut Value, sidecar: &Value, parameters: &Parameters) {
    if let Some(inits) = spec.get_mut("initContainers").and_then(Value::as_array_mut) {
        inits.retain(|container| name(container) != parameters.name());
    }
    let mounted = |container: &Value, volume: &str| {
        let mut mounts = env::items(container, "volumeMounts").iter();
        mounts.any(|mount| name(mount) == volume)
    };
    let rest: Vec<Value> = env::containers(spec).cloned().collect();
    if let Some(volumes) = spec.get_mut("volumes").and_then(Value::as_array_mut) {
        volumes.retain(|volume| {
            !mounted(sidecar, name(volume)) || rest.iter().any(|container| mounted(container, name(volume)))
        });
    }
}

/// Takes the sidecar's volumes out of the local ones that keep no node from being removed: an injection puts them at the end.
fn forget_volumes(pod: &mut Value, sidecar: &Value) {
    let Some(annotations) = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return;
    };
    let listed = annotations.get(ANNOTATION_LOCAL_VOLUMES).and_then(Value::as_str);
    let Some(listed) = listed.map(str::to_owned) else {
        return;
    };
    let mut names: Vec<&str> = listed.split(',').collect();
    let is_own = |volume: &str| {
        env::items(sidecar, "volumeMounts")
            .iter()
            .any(|mount| name(mount) == volume)
    };
    while names.last().is_some_and(|last| is_own(last)) {
        names.pop();
    }
    if names.is_empty() {
        annotations.remove(ANNOTATION_LOCAL_VOLUMES);
    } else {
        annotations.insert(ANNOTATION_LOCAL_VOLUMES.to_owned(), names.join(",").into());
    }
}

/// Gives a container the base URLs and exceptions from proxies that it had. One that was not led to the sidecar was not changed.
fn change_back(container: &mut Value, kept: &[&Value], parameters: &Parameters) {
    let set = env::items(container, "env");
    let led_by = |variable: &Value| parameters.apis.iter().find(|api| is_sidecars(api, variable));
    if !set.iter().any(|variable| led_by(variable).is_some()) {
        return;
    }
    let upstream = |api: &Api| {
        let found = kept.iter().find(|variable| name(variable) == api.upstream);
        found.map(|variable| value(variable)).filter(|url| !url.is_empty())
    };
    let end = format!(",{LOOPBACK}");
    let changed = set.iter().map(|variable| {
        let own = name(variable);
        if let Some(url) = led_by(variable).and_then(upstream) {
            return entry(own, url);
        }
        match value(variable) {
            // Empty ones get the address again where there is a proxy; elsewhere they are the author's.
            LOOPBACK if NO_PROXIES.contains(&own) && has_proxy(set) => entry(own, ""),
            list if NO_PROXIES.contains(&own) => list
                .strip_suffix(&end)
                .map_or_else(|| variable.clone(), |list| entry(own, list)),
            _ => variable.clone(),
        }
    });
    let changed = changed.collect();
    container["env"] = Value::Array(changed);
}

fn has_proxy(set: &[Value]) -> bool {
    let is_proxy = |variable: &Value| PROXIES.contains(&name(variable)) && !NO_PROXIES.contains(&name(variable));
    set.iter().any(|variable| is_proxy(variable) && env::is_set(variable))
}

/// Takes the sidecar's base URLs of APIs away that were led to it and are not any more.
fn release(spec: &mut Value, said: &str, parameters: &Parameters) {
    let redirect = Redirect::of(spec, parameters);
    let released: Vec<&Api> = parameters
        .apis
        .iter()
        .filter(|api| redirect.kept.iter().any(|(kept, _)| *kept == api.name))
        .filter(|api| !said.contains(&format!("{} (", api.name)))
        .collect();
    for container in containers_mut(spec) {
        if let Some(set) = container.get_mut("env").and_then(Value::as_array_mut) {
            set.retain(|variable| !released.iter().any(|api| is_sidecars(api, variable)));
        }
    }
}

fn containers_mut(spec: &mut Value) -> impl Iterator<Item = &mut Value> {
    let lists = spec.as_object_mut().into_iter().flatten();
    lists
        .filter(|(field, _)| ["containers", "initContainers"].contains(&field.as_str()))
        .filter_map(|(_, list)| list.as_array_mut())
        .flatten()
}
