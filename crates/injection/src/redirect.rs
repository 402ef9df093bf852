//! Which APIs are redirected to the sidecar, and the original addresses that it gets.

use knack_vocabulary::PROXIES;
use serde_json::Value;

use super::env::{self, entry, is_referred, is_set, name, value};
use super::names::{AZURE, AZURE_API, KEYS, LOOPBACK, NO_PROXIES};
use super::parameters::{Api, Parameters};
use super::url::{is_base_url, is_own_url, is_pod_url};

/// The end of base URLs of OpenAI's SDKs.
const VERSION: &str = "/v1";

/// The decision on each API, and the variables of the sidecar.
#[derive(Debug)]
pub(crate) struct Redirect<'a> {
    /// APIs whose calls go through the sidecar, and the base URL of each that the application gets.
    apis: Vec<(&'a Api, &'a str)>,
    /// APIs that stay as they are, and why.
    pub(crate) kept: Vec<(&'a str, &'static str)>,
    /// Variables for the sidecar: upstreams, then proxies.
    pub(crate) variables: Vec<Value>,
}

impl<'a> Redirect<'a> {
    /// Decides for a pod.
    pub(crate) fn of(spec: &Value, parameters: &'a Parameters) -> Self {
        let set: Vec<&Value> = env::containers(spec)
            .flat_map(|container| env::items(container, "env"))
            .filter(|entry| is_set(entry))
            .collect();
        let proxies_move = proxies_move(&set);
        let mut redirect = Self {
            apis: Vec::new(),
            kept: Vec::new(),
            variables: Vec::new(),
        };
        for api in &parameters.apis {
            let had: Vec<&Value> = set
                .iter()
                .copied()
                .filter(|entry| leads_elsewhere(api, entry))
                .collect();
            let by_key = !had.is_empty() && env::containers(spec).any(|container| has_key_alone(api, container));
            let for_azure = env::containers(spec).any(|container| is_for_azure(api, container));
            let is_base_url_missing = env::containers(spec).any(|container| {
                !env::items(container, "env")
                    .iter()
                    .any(|entry| leads_elsewhere(api, entry))
            });
            let why = why_kept(&had, by_key, is_base_url_missing, proxies_move);
            let why = why.or(for_azure.then_some("a client for Azure"));
            if let Some(why) = why {
                redirect.kept.push((&api.name, why));
                continue;
            }
            let url = had.first().map_or(api.url.as_str(), |had| base_url(api, value(had)));
            redirect.apis.push((api, url));
            let had = had.first().map(|had| entry(&api.upstream, value(had)));
            redirect.variables.extend(had);
        }
        if proxies_move {
            let first = |proxy: &&str| set.iter().find(|entry| name(entry) == *proxy);
            let proxies = PROXIES.iter().filter_map(first);
            redirect
                .variables
                .extend(proxies.map(|proxy| entry(name(proxy), value(proxy))));
        }
        redirect
    }

    /// The variables of a container of the application.
    pub(crate) fn env_of(&self, container: &Value) -> Vec<Value> {
        if self.apis.is_empty() {
            return env::items(container, "env").to_vec();
        }
        let ours = || {
            self.apis
                .iter()
                .flat_map(|(api, url)| api.variables.iter().map(|variable| (variable.as_str(), *url)))
        };
        let set = env::items(container, "env");
        let has = |wanted: &str| set.iter().any(|entry| name(entry) == wanted);
        let no_proxy = no_proxy(set);
        let changed = set.iter().map(|variable| {
            let own = name(variable);
            match ours().find(|(ours, _)| *ours == own) {
                Some((_, url)) => entry(own, url),
                None if is_exceptions(variable) => entry(own, &with_loopback(value(variable))),
                None if NO_PROXIES.contains(&own) => {
                    no_proxy.as_ref().map_or(variable.clone(), |list| entry(own, list))
                }
                None => variable.clone(),
            }
        });
        let mut env: Vec<Value> = changed.collect();
        env.extend(
            ours()
                .filter(|(ours, _)| !has(ours))
                .map(|(ours, url)| entry(ours, url)),
        );
        if let Some(list) = no_proxy
            && !set.iter().any(is_exceptions)
        {
            let missing = NO_PROXIES.iter().filter(|proxy| !has(proxy));
            env.extend(missing.map(|proxy| entry(proxy, &list)));
        }
        env
    }
}

/// Whether a variable has a base URL of the API that does not lead to the sidecar.
fn leads_elsewhere(api: &Api, entry: &Value) -> bool {
    api.variables.iter().any(|one| one == name(entry)) && is_set(entry) && !is_sidecars(api, entry)
}

/// Whether a variable has the sidecar's base URL of the API, or another spelling of it.
pub(crate) fn is_sidecars(api: &Api, entry: &Value) -> bool {
    api.variables.iter().any(|one| one == name(entry))
        && !is_referred(entry)
        && ([api.url.as_str(), bare(api)].contains(&value(entry)) || is_own_url(value(entry)))
}

/// Whether a container has a key of the API and no base URL: the key is for the provider's public address, and must not go to
/// the address that another container names.
fn has_key_alone(api: &Api, container: &Value) -> bool {
    let mut keys = KEYS.iter().filter(|(word, _)| *word == api.name);
    keys.any(|(_, keys)| has_alone(api, container, keys))
}

/// Whether a container has a client of the API for Azure, which does not work with the sidecar's base URL. One that has a base
/// URL too has another client for it.
fn is_for_azure(api: &Api, container: &Value) -> bool {
    api.name == AZURE_API && has_alone(api, container, &AZURE)
}

/// Whether a container has one of these variables, and no base URL of the API.
fn has_alone(api: &Api, container: &Value, variables: &[&str]) -> bool {
    let set = env::items(container, "env");
    set.iter()
        .any(|variable| variables.contains(&name(variable)) && is_set(variable))
        && !set.iter().any(|variable| leads_elsewhere(api, variable))
}

/// Whether a variable has exceptions from proxies.
fn is_exceptions(entry: &Value) -> bool {
    NO_PROXIES.contains(&name(entry)) && is_set(entry)
}

/// What an empty list of exceptions becomes in a container that has a proxy: its other list, since programs read one of both.
/// `None`: it has no proxy.
fn no_proxy(set: &[Value]) -> Option<String> {
    let is_proxy =
        |entry: &Value| PROXIES.contains(&name(entry)) && !NO_PROXIES.contains(&name(entry)) && is_set(entry);
    set.iter().any(is_proxy).then(|| {
        set.iter()
            .find(|entry| is_exceptions(entry))
            .map_or_else(|| LOOPBACK.to_owned(), |list| with_loopback(value(list)))
    })
}

/// The sidecar's base URL for an application that had another one. An SDK appends to its base what is below it at the
/// provider: without `/v1` at the end of the one there is none at the end of the other, so every call arrives where it did.
fn base_url<'a>(api: &'a Api, had: &str) -> &'a str {
    if had.trim_end_matches('/').ends_with(VERSION) {
        &api.url
    } else {
        bare(api)
    }
}

/// The sidecar's base URL without a version.
fn bare(api: &Api) -> &str {
    api.url.strip_suffix(VERSION).unwrap_or(&api.url)
}

/// Why an API is not led to the sidecar, by what containers had set for it. `is_base_url_missing`: a container has no base URL of
/// another address. Where a base URL is in the pod, that container may be the proxy behind it: led to the sidecar, it would get its
/// own calls again.
fn why_kept(had: &[&Value], by_key: bool, is_base_url_missing: bool, proxies_move: bool) -> Option<&'static str> {
    if !proxies_move {
        Some("proxy variables differ or are not plain values")
    } else if had.iter().any(|entry| is_referred(entry)) {
        Some("base URL from valueFrom")
    } else if had.iter().any(|entry| !is_base_url(value(entry))) {
        Some("base URL is not a plain http or https URL")
    } else if by_key || had.iter().any(|entry| value(entry) != value(had[0])) {
        Some("base URLs differ")
    } else if is_base_url_missing && had.iter().any(|entry| is_pod_url(value(entry))) {
        Some("base URL is in the pod, and another container has none")
    } else {
        None
    }
}

/// Whether the sidecar can have the application's proxies: plain values, the same in every container that has them.
fn proxies_move(set: &[&Value]) -> bool {
    PROXIES.iter().all(|proxy| {
        let mut found = set.iter().filter(|entry| name(entry) == *proxy);
        let first = found.clone().next();
        found.all(|entry| {
            !is_referred(entry)
                && !value(entry).contains("$(")
                && first.is_some_and(|first| value(first) == value(entry))
        })
    })
}

/// A list of exceptions with the sidecar's address in it.
fn with_loopback(list: &str) -> String {
    if list == "*" || list.split(',').any(|item| item.trim() == "127.0.0.1") {
        list.to_owned()
    } else {
        format!("{list},{LOOPBACK}")
    }
}
