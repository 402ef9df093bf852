//! The thin part: reads the Secret, does what is due, writes Secret and ConfigMap.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use tokio_util::sync::CancellationToken;

use super::issue::{IssueError, issue};
use super::state::{Due, State, advance, bundle, due, service_names};
use crate::api::vocabulary::{
    CONFIG_MAP_HUB_CA, FIELD_MANAGER, KEY_HUB_CA, SECRET_HUB_JOURNAL, SECRET_HUB_TLS, SERVICE_HUB,
};

/// One call to the API server. kube repeats 429, 503 and 504 by itself and would go on for minutes.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest time between two looks: a Secret that somebody deleted comes back within it.
const LOOK_AGAIN: Duration = Duration::from_mins(1);
/// After a failure: soon enough that an install does not wait, seldom enough not to be noise.
const RETRY: Duration = Duration::from_secs(5);

const KEY_CERTIFICATE: &str = "tls.crt";
const KEY_KEY: &str = "tls.key";
const KEY_STATE: &str = "state.json";
const KEY_JOURNAL: &str = "journal.key";

/// Where the certificates are kept.
#[derive(Debug, Clone)]
pub struct CertificateTask {
    /// Namespace of the release: Secret, ConfigMap and Service are there.
    pub namespace: String,
    /// Names beside the Service's, for hubs that are reached by another name or an address.
    pub extra_names: Vec<String>,
    /// What Secret and ConfigMap go with: Kubernetes deletes them when it is deleted.
    pub owner: Option<OwnerReference>,
}

/// Why a round failed; the next one tries again.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The API server refused or did not answer.
    #[error("{step}: {source}")]
    Api {
        /// Which call, on which object.
        step: &'static str,
        /// What it said.
        source: Box<kube::Error>,
    },
    /// No answer in time.
    #[error("{step}: no answer within {} s", CALL_TIMEOUT.as_secs())]
    Timeout {
        /// Which call, on which object.
        step: &'static str,
    },
    /// Keys could not be made.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The state could not be written down.
    #[error("state.json: {0}")]
    State(#[from] serde_json::Error),
}

/// Keeps the certificates until `stop`. Only one process may do this at a time (the elected leader).
pub async fn run(client: Client, task: CertificateTask, stop: CancellationToken) {
    loop {
        let wait = match round(&client, &task, now()).await {
            Ok(until) => Duration::from_secs(until.saturating_sub(now())).clamp(RETRY, LOOK_AGAIN),
            Err(error) => {
                tracing::warn!(%error, namespace = %task.namespace, "the hub's certificates could not be looked after; trying again");
                RETRY
            }
        };
        tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(wait) => {} }
    }
}

/// One look, and what is due. Returns when to look again, seconds since the Unix epoch.
pub async fn round(client: &Client, task: &CertificateTask, now: u64) -> Result<u64, CertificateError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &task.namespace);
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), &task.namespace);
    ensure_journal_key(&secrets, task.owner.as_ref()).await?;
    let secret = call("get Secret knack-hub-tls", secrets.get_opt(SECRET_HUB_TLS)).await?;
    let published = call("get ConfigMap knack-hub-ca", config_maps.get_opt(CONFIG_MAP_HUB_CA)).await?;
    let owner = task.owner.as_ref();
    // One that an earlier version made has no owner yet.
    let published = published.filter(|map| is_owned(map, owner));
    let published = published.and_then(|map| map.data?.remove(KEY_HUB_CA));
    if let Some(authority) = secret.as_ref().and_then(foreign_authority) {
        if published.as_deref() != Some(authority.as_str()) {
            publish(&config_maps, owner, authority).await?;
        }
        return Ok(now + LOOK_AGAIN.as_secs());
    }
    let mut names = service_names(SERVICE_HUB, &task.namespace);
    names.extend(task.extra_names.iter().cloned());
    names.sort();
    names.dedup();
    let mut state = secret.as_ref().map(read_state).unwrap_or_default();
    let until = loop {
        let step = due(now, &state, &names);
        if let Due::Nothing { until } = step {
            break until;
        }
        let pair = match step {
            Due::Create | Due::Prepare => Some(issue(now, &names)?),
            _ => None,
        };
        tracing::info!(step = ?step, namespace = %task.namespace, "the hub's certificates change");
        state = advance(now, step, state, pair);
        // Trust before use: whatever serves next is in the bundle before the Secret names it.
        publish(&config_maps, owner, bundle(&state)).await?;
        store(&secrets, owner, secret.as_ref(), &state).await?;
    };
    if published.as_deref() != Some(bundle(&state).as_str()) {
        publish(&config_maps, owner, bundle(&state)).await?;
    }
    let stands = |secret: &Secret| serves(secret, &state) && is_owned(secret, owner);
    if !secret.as_ref().is_some_and(stands) {
        store(&secrets, owner, secret.as_ref(), &state).await?;
    }
    Ok(until)
}

/// A Secret with a certificate and without our state belongs to somebody else: the authority it names.
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

/// A state that cannot be read is no state: everything is made anew.
fn read_state(secret: &Secret) -> State {
    let bytes = secret.data.as_ref().and_then(|data| data.get(KEY_STATE));
    bytes
        .and_then(|bytes| serde_json::from_slice(&bytes.0).ok())
        .unwrap_or_default()
}

fn serves(secret: &Secret, state: &State) -> bool {
    let (Some(data), Some(active)) = (&secret.data, &state.active) else {
        return false;
    };
    let is = |key: &str, text: &str| data.get(key).is_some_and(|bytes| bytes.0 == text.as_bytes());
    is(KEY_CERTIFICATE, &active.certificate) && is(KEY_KEY, &active.key) && read_state(secret) == *state
}

async fn publish(
    api: &Api<ConfigMap>,
    owner: Option<&OwnerReference>,
    authorities: String,
) -> Result<(), CertificateError> {
    let map = ConfigMap {
        metadata: metadata(CONFIG_MAP_HUB_CA, owner),
        data: Some(BTreeMap::from([(KEY_HUB_CA.to_owned(), authorities)])),
        ..ConfigMap::default()
    };
    let apply = PatchParams::apply(FIELD_MANAGER).force();
    call(
        "apply ConfigMap knack-hub-ca",
        api.patch(CONFIG_MAP_HUB_CA, &apply, &Patch::Apply(&map)),
    )
    .await?;
    Ok(())
}

async fn store(
    api: &Api<Secret>,
    owner: Option<&OwnerReference>,
    existing: Option<&Secret>,
    state: &State,
) -> Result<(), CertificateError> {
    let Some(active) = &state.active else { return Ok(()) };
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let data = BTreeMap::from([
        (KEY_CERTIFICATE.to_owned(), bytes(&active.certificate)),
        (KEY_KEY.to_owned(), bytes(&active.key)),
        (KEY_HUB_CA.to_owned(), bytes(&active.authority)),
        (KEY_STATE.to_owned(), ByteString(serde_json::to_vec(state)?)),
    ]);
    let secret = Secret {
        metadata: metadata(SECRET_HUB_TLS, owner),
        // The type cannot be changed later: one that exists keeps its own.
        type_: existing.map_or_else(|| Some("kubernetes.io/tls".to_owned()), |secret| secret.type_.clone()),
        data: Some(data),
        ..Secret::default()
    };
    let apply = PatchParams::apply(FIELD_MANAGER).force();
    call(
        "apply Secret knack-hub-tls",
        api.patch(SECRET_HUB_TLS, &apply, &Patch::Apply(&secret)),
    )
    .await?;
    Ok(())
}

/// Makes the Secret of the journal key unless it is there, whoever made it. A key is never replaced here: what the last owner
/// of a runtime wrote, the next one must read.
async fn ensure_journal_key(api: &Api<Secret>, owner: Option<&OwnerReference>) -> Result<(), CertificateError> {
    let existing = call("get Secret knack-hub-journal", api.get_opt(SECRET_HUB_JOURNAL)).await?;
    let key = existing.as_ref().and_then(journal_key);
    if key.is_some() && existing.is_some_and(|secret| is_owned(&secret, owner)) {
        return Ok(());
    }
    let key = key.unwrap_or_else(|| ByteString(random_key().into_bytes()));
    let secret = Secret {
        metadata: metadata(SECRET_HUB_JOURNAL, owner),
        data: Some(BTreeMap::from([(KEY_JOURNAL.to_owned(), key)])),
        ..Secret::default()
    };
    let apply = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(&secret);
    let patched = api.patch(SECRET_HUB_JOURNAL, &apply, &patch);
    call("apply Secret knack-hub-journal", patched).await?;
    Ok(())
}

fn journal_key(secret: &Secret) -> Option<ByteString> {
    let key = secret.data.as_ref()?.get(KEY_JOURNAL)?;
    (!key.0.is_empty()).then(|| key.clone())
}

/// Whether an object goes with the owner, if there is one.
fn is_owned(object: &impl Resource, owner: Option<&OwnerReference>) -> bool {
    owner.is_none_or(|owner| object.owner_references().iter().any(|other| other.uid == owner.uid))
}

fn metadata(name: &str, owner: Option<&OwnerReference>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        owner_references: owner.map(|owner| vec![owner.clone()]),
        ..ObjectMeta::default()
    }
}

async fn call<T>(
    step: &'static str,
    future: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CertificateError> {
    match tokio::time::timeout(CALL_TIMEOUT, future).await {
        Ok(result) => result.map_err(|source| CertificateError::Api {
            step,
            source: Box::new(source),
        }),
        Err(_) => Err(CertificateError::Timeout { step }),
    }
}

/// 244 random bits of the operating system, as hex.
fn random_key() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_secret_that_somebody_else_fills_is_left_alone() {
        for (keys, authority) in [
            (&[("tls.crt", "c"), ("tls.key", "k"), ("ca.crt", "a")][..], Some("a")),
            (&[("tls.crt", "c"), ("tls.key", "k")], Some("c")),
            (&[("tls.crt", "c"), ("state.json", "{}")], None),
            (&[], None),
        ] {
            assert_eq!(foreign_authority(&secret(keys)).as_deref(), authority, "{keys:?}");
        }
    }

    #[test]
    fn an_empty_journal_key_is_none() {
        assert_eq!(journal_key(&secret(&[("journal.key", "")])), None);
        assert_eq!(journal_key(&secret(&[("journal.key", "k")])).unwrap().0, b"k");
    }

    #[test]
    fn a_state_that_cannot_be_read_is_none() {
        assert_eq!(read_state(&secret(&[("state.json", "nonsense")])), State::default());
    }
}
