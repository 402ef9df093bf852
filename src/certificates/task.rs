//! The calls to the API server: reads the Secret, does what [`super::state`] decides, writes Secret and ConfigMap.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use knack_vocabulary::{KEY_HUB_CA, SECRET_HUB_JOURNAL};
use kube::{Api, Client};
use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;

use super::issue::issue;
use super::objects::{CertificateError, apply_secret, is_owned};
use super::publish::Publication;
use super::root_secret::ensure_root;
use super::state::{CertificateState, CertificateStep, advance, bundle, due, joined, service_names};
use crate::api_call::call;

/// Longest time between two checks: a deleted Secret is created again within it.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// After a failure: soon enough that an install does not wait, seldom enough not to be noise.
const RETRY: Duration = Duration::from_secs(5);

const KEY_CERTIFICATE: &str = "tls.crt";
const KEY_KEY: &str = "tls.key";
const KEY_STATE: &str = "state.json";
const KEY_JOURNAL: &str = "journal.key";

/// A certificate to keep.
#[derive(Debug, Clone)]
pub struct CertificateTask {
    /// Namespace of the release: Secret, ConfigMap and Service are there.
    pub namespace: String,
    /// The component that the certificate is for.
    pub publication: Publication,
    /// Names beside the Service's, for those that are reached by another name or an address.
    pub extra_names: Vec<String>,
    /// Expiry of the certificate in Unix seconds; 0 if Knack did not issue it.
    pub expiry: Gauge,
    /// The owner of Secret and ConfigMap: Kubernetes deletes them with it.
    pub owner: Option<OwnerReference>,
    /// Whether those who trust this one have no other authorities for the registry, as gateways, which have those of the hub.
    pub with_registry: bool,
}

/// Keeps the certificates of all tasks until `stop`, one after the other, since they share a root. Only one process may do
/// this at a time (the elected leader).
pub async fn run(client: Client, tasks: Vec<CertificateTask>, stop: CancellationToken) {
    loop {
        let mut wait = CHECK_INTERVAL;
        for task in &tasks {
            let next = match round(&client, task, now()).await {
                Ok(until) => Duration::from_secs(until.saturating_sub(now())),
                Err(error) => {
                    let secret = task.publication.secret();
                    tracing::warn!(%error, namespace = %task.namespace, secret, "certificates could not be maintained; retrying");
                    RETRY
                }
            };
            wait = wait.min(next).max(RETRY);
        }
        tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(wait) => {} }
    }
}

/// One check, and what is due. Returns when to check again, seconds since the Unix epoch.
pub async fn round(client: &Client, task: &CertificateTask, now: u64) -> Result<u64, CertificateError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &task.namespace);
    let (publication, owner) = (&task.publication, task.owner.as_ref());
    if *publication == Publication::Hub {
        ensure_journal_key(&secrets, owner).await?;
    }
    let secret = call(
        || format!("get Secret {}", publication.secret()),
        secrets.get_opt(publication.secret()),
    )
    .await?;
    let published = publication.published(client, &task.namespace, owner).await?;
    let registry = if task.with_registry {
        Publication::Registry.published(client, &task.namespace, owner).await?
    } else {
        None
    };
    if let Some(authority) = secret.as_ref().and_then(foreign_authority) {
        let trusted = with_registry(authority, registry.as_deref());
        if published.as_deref() != Some(trusted.as_str()) {
            publication.publish(client, &task.namespace, owner, &trusted).await?;
        }
        return Ok(now + CHECK_INTERVAL.as_secs());
    }
    let mut names = service_names(publication.service(), &task.namespace);
    names.extend(task.extra_names.iter().cloned());
    names.sort();
    names.dedup();
    let root = ensure_root(&secrets, owner, now).await?;
    let trusted = |state: &CertificateState| with_registry(bundle(state, &root.certificate), registry.as_deref());
    let mut state = secret.as_ref().map(read_state).unwrap_or_default();
    let until = loop {
        let step = due(now, &state, &names, &root.certificate);
        if let CertificateStep::Nothing { until } = step {
            break until;
        }
        let pair = match step {
            CertificateStep::Create | CertificateStep::Prepare => Some(issue(now, &names, &root)?),
            _ => None,
        };
        tracing::info!(step = ?step, namespace = %task.namespace, secret = publication.secret(), "certificates are updated");
        state = advance(now, step, state, pair);
        // Trust before use: the bundle has the authority before the Secret has the certificate.
        publication
            .publish(client, &task.namespace, owner, &trusted(&state))
            .await?;
        store(&secrets, publication.secret(), owner, secret.as_ref(), &state).await?;
    };
    let ends = state.active.as_ref().map_or(0, |active| active.not_after);
    task.expiry.set(i64::try_from(ends).unwrap_or(i64::MAX));
    let bundle = trusted(&state);
    if published.as_deref() != Some(bundle.as_str()) {
        publication.publish(client, &task.namespace, owner, &bundle).await?;
    }
    let is_current = |secret: &Secret| serves(secret, &state) && is_owned(secret, owner);
    if !secret.as_ref().is_some_and(is_current) {
        store(&secrets, publication.secret(), owner, secret.as_ref(), &state).await?;
    }
    Ok(until)
}

/// What is published, with what the registry's task has published of the registry's authorities.
fn with_registry(authorities: String, registry: Option<&str>) -> String {
    match registry {
        Some(registry) => joined(&authorities, registry),
        None => authorities,
    }
}

/// The authority of a Secret that has a certificate and no state written by Knack: another program owns it.
fn foreign_authority(secret: &Secret) -> Option<String> {
    let data = secret.data.as_ref()?;
    if !data.contains_key(KEY_CERTIFICATE) || data.contains_key(KEY_STATE) {
        return None;
    }
    let text = |key: &str| {
        data.get(key)
            .map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned())
    };
    text(KEY_HUB_CA).or_else(|| text(KEY_CERTIFICATE))
}

/// A state that cannot be parsed counts as none: everything is created again.
fn read_state(secret: &Secret) -> CertificateState {
    let bytes = secret.data.as_ref().and_then(|data| data.get(KEY_STATE));
    bytes
        .and_then(|bytes| serde_json::from_slice(&bytes.0).ok())
        .unwrap_or_default()
}

fn serves(secret: &Secret, state: &CertificateState) -> bool {
    let (Some(data), Some(active)) = (&secret.data, &state.active) else {
        return false;
    };
    let is = |key: &str, text: &str| data.get(key).is_some_and(|bytes| bytes.0 == text.as_bytes());
    is(KEY_CERTIFICATE, &active.certificate) && is(KEY_KEY, &active.key) && read_state(secret) == *state
}

async fn store(
    api: &Api<Secret>,
    name: &str,
    owner: Option<&OwnerReference>,
    existing: Option<&Secret>,
    state: &CertificateState,
) -> Result<(), CertificateError> {
    let Some(active) = &state.active else { return Ok(()) };
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let data = BTreeMap::from([
        (KEY_CERTIFICATE.to_owned(), bytes(&active.certificate)),
        (KEY_KEY.to_owned(), bytes(&active.key)),
        (KEY_HUB_CA.to_owned(), bytes(&active.authority)),
        (KEY_STATE.to_owned(), ByteString(serde_json::to_vec(state)?)),
    ]);
    // The type cannot be changed later: one that exists keeps its own.
    let type_ = existing.map_or_else(|| Some("kubernetes.io/tls".to_owned()), |secret| secret.type_.clone());
    apply_secret(api, name, owner, type_, data).await
}

/// Creates the Secret of the journal key unless it exists. A key is never replaced here: the next owner of a runtime
/// must be able to read what the last one wrote.
async fn ensure_journal_key(api: &Api<Secret>, owner: Option<&OwnerReference>) -> Result<(), CertificateError> {
    let existing = call(
        || format!("get Secret {SECRET_HUB_JOURNAL}"),
        api.get_opt(SECRET_HUB_JOURNAL),
    )
    .await?;
    let key = existing.as_ref().and_then(journal_key);
    if key.is_some() && existing.is_some_and(|secret| is_owned(&secret, owner)) {
        return Ok(());
    }
    let key = key.unwrap_or_else(|| ByteString(random_key().into_bytes()));
    let data = BTreeMap::from([(KEY_JOURNAL.to_owned(), key)]);
    apply_secret(api, SECRET_HUB_JOURNAL, owner, None, data).await
}

fn journal_key(secret: &Secret) -> Option<ByteString> {
    let key = secret.data.as_ref()?.get(KEY_JOURNAL)?;
    (!key.0.is_empty()).then(|| key.clone())
}

/// 244 random bits of the operating system, as hex.
fn random_key() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}

fn now() -> u64 {
    knack_execution::now().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::issue::issue_root;

    fn secret(keys: &[(&str, &str)]) -> Secret {
        Secret {
            data: Some(
                keys.iter()
                    .map(|(key, text)| ((*key).to_owned(), ByteString(text.as_bytes().to_vec())))
                    .collect(),
            ),
            ..Secret::default()
        }
    }

    #[test]
    fn a_secret_that_another_program_fills_is_not_written() {
        for (keys, authority) in [
            (&[("tls.crt", "c"), ("tls.key", "k"), ("ca.crt", "a")][..], Some("a")),
            (&[("tls.crt", "c"), ("tls.key", "k")], Some("c")),
            (&[("tls.crt", "c"), ("state.json", "{}")], None),
            (&[], None),
        ] {
            assert_eq!(foreign_authority(&secret(keys)).as_deref(), authority, "{keys:?}");
        }
    }

    /// A gateway has one bundle for hub and registry: where cert-manager issues the hub's certificate, it has Knack's root too.
    #[test]
    fn the_registrys_authorities_are_published_beside_those_of_another_program() {
        let [foreign, root, older] = [1, 2, 3].map(|day| issue_root(day * 24 * 3600).unwrap().certificate);
        let authority = foreign_authority(&secret(&[("tls.crt", "c"), ("ca.crt", &foreign)])).unwrap();
        let of_registry = format!("{root}{older}");
        let published = with_registry(authority.clone(), Some(&of_registry));
        for one in [&foreign, &root, &older] {
            assert_eq!(published.matches(one.trim()).count(), 1);
        }
        assert_eq!(published.matches("BEGIN CERTIFICATE").count(), 3);
        // Once only: the hub's own certificate has the same root, and a round that finds what it has written writes nothing.
        assert_eq!(with_registry(published.clone(), Some(&of_registry)), published);
        assert_eq!(with_registry(of_registry.clone(), Some(&of_registry)), of_registry);
        assert_eq!(with_registry(authority.clone(), None), authority, "without a registry");
    }

    #[test]
    fn an_empty_journal_key_is_none() {
        assert_eq!(journal_key(&secret(&[("journal.key", "")])), None);
        assert_eq!(journal_key(&secret(&[("journal.key", "k")])).unwrap().0, b"k");
    }

    #[test]
    fn a_state_that_cannot_be_read_is_none() {
        assert_eq!(
            read_state(&secret(&[("state.json", "nonsense")])),
            CertificateState::default()
        );
    }
}
