//! The hub's authorities for sidecars: ConfigMap `knack-ca`, wherever a namespace or a pod has the label `knack.dev/inject: enabled`,
//! or one ClusterTrustBundle.
//!
//! A sidecar reads them from a volume that may be empty at first, again and again while it runs, so nothing waits for them and a
//! renewed certificate restarts nothing. Where there is a ClusterTrustBundle, no new ConfigMaps are made, and those that are
//! there are kept right: pods that started before mount them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ObjectReference};
use knack_vocabulary::{
    CONFIG_MAP_CA, CONFIG_MAP_HUB_CA, ENABLED, FIELD_MANAGER, KEY_HUB_CA, LABEL_INJECT, LABEL_MANAGED_BY, MANAGED_BY,
};
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::reflector::Store;
use kube::{Api, Client, ResourceExt as _};
use tokio::time::Instant;
use tracing::{info, warn};

use super::settings::{AUTHORITIES_CHECK_INTERVAL, ControllerSettings};
use super::sidecar_trust::SidecarTrust;
use super::trust_bundle::TrustBundle;
use crate::api_call::{CallError, call};
use crate::events::NOTE_MAX_CHARS;

/// After a failure, and while the hub has no certificate yet. A namespace that fails again and again is put off longer each time, up
/// to [`AUTHORITIES_CHECK_INTERVAL`].
const RETRY: Duration = Duration::from_secs(5);
/// Namespaces written at once: a renewed certificate reaches hundreds of them in seconds, and the API server has other work.
const AT_ONCE: usize = 8;

/// Publishes the authorities in the namespaces of gateways.
pub(super) struct AuthorityPublisher {
    pub(super) client: Client,
    pub(super) settings: ControllerSettings,
    pub(super) recorder: Recorder,
    /// Every namespace with its labels.
    pub(super) namespaces: Store<PartialObjectMeta<Namespace>>,
    /// Where pods ask by themselves; it is notified when the labels of a namespace change, too.
    pub(super) trust: Arc<SidecarTrust>,
}

/// The step for a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SharingStep {
    Write,
    Leave,
    /// A ConfigMap of this name has another owner, and not the authorities.
    Refuse,
}

/// A namespace whose pods ask for sidecars.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SidecarNamespace {
    name: String,
    /// Distinguishes a namespace from one that was deleted and created again by the same name, which has nothing of
    /// what was written into the first.
    uid: String,
}

/// A namespace that could not be written into.
#[derive(Debug)]
struct Failure {
    text: String,
    pause: Duration,
    next: Instant,
}

/// The namespaces whose copy was written or found correct, with the time, and those whose copy could not be written, by uid.
#[derive(Debug, Default)]
struct CheckedNamespaces {
    right: BTreeMap<String, (String, Instant)>,
    failed: BTreeMap<String, Failure>,
}

impl CheckedNamespaces {
    fn note(&mut self, namespace: &SidecarNamespace, bundle: &str, now: Instant) {
        self.failed.remove(&namespace.uid);
        self.right.insert(namespace.uid.clone(), (bundle.to_owned(), now));
    }

    /// Puts a namespace off, twice as long each time. Returns why it failed before.
    fn fail(&mut self, namespace: &SidecarNamespace, text: &str, now: Instant) -> Option<String> {
        let before = self.failed.remove(&namespace.uid);
        let pause = before
            .as_ref()
            .map_or(RETRY, |before| before.pause * 2)
            .min(AUTHORITIES_CHECK_INTERVAL);
        let failure = Failure {
            text: text.to_owned(),
            pause,
            next: now + pause,
        };
        self.failed.insert(namespace.uid.clone(), failure);
        before.map(|before| before.text)
    }

    /// The namespaces of `asking` that are due now. Namespaces that are not in `asking` are forgotten.
    fn due(&mut self, asking: Vec<SidecarNamespace>, bundle: &str, now: Instant) -> Vec<SidecarNamespace> {
        let mut before = std::mem::take(&mut self.right);
        let mut failed = std::mem::take(&mut self.failed);
        let due = asking.into_iter().filter(|one| {
            if let Some(failure) = failed.remove(&one.uid) {
                let is_due = now >= failure.next;
                self.failed.insert(one.uid.clone(), failure);
                return is_due;
            }
            match before.remove(&one.uid) {
                Some((known, at)) if known == bundle && now < at + AUTHORITIES_CHECK_INTERVAL => {
                    self.right.insert(one.uid.clone(), (known, at));
                    false
                }
                _ => true,
            }
        });
        due.collect()
    }

    /// Whether each of `asking` was checked.
    fn has_all(&self, asking: &[SidecarNamespace]) -> bool {
        let is_known = |uid: &String| self.right.contains_key(uid) || self.failed.contains_key(uid);
        asking.iter().all(|one| is_known(&one.uid))
    }

    /// When the first of them is to be checked again.
    fn until(&self, now: Instant) -> Instant {
        let right = self.right.values().map(|(_, at)| *at + AUTHORITIES_CHECK_INTERVAL);
        let failed = self.failed.values().map(|failure| failure.next);
        right.chain(failed).min().unwrap_or(now + AUTHORITIES_CHECK_INTERVAL)
    }
}

/// The state of sharing, from round to round.
struct Shared {
    checked: CheckedNamespaces,
    /// Namespaces whose ConfigMap has another owner, as the log says once.
    refused: BTreeSet<String>,
    trust_bundle: Option<TrustBundle>,
}

/// Decides by the ConfigMap that is there. `makes`: one that is absent is made.
fn step(present: Option<&ConfigMap>, bundle: &str, makes: bool) -> SharingStep {
    let Some(present) = present else {
        return if makes { SharingStep::Write } else { SharingStep::Leave };
    };
    let ours = present.labels().get(LABEL_MANAGED_BY).map(String::as_str) == Some(MANAGED_BY);
    let text = present.data.as_ref().and_then(|data| data.get(KEY_HUB_CA));
    match (ours, text) {
        // A copy that a person has made does what it is for until the authorities are others.
        (false, Some(text)) if text.contains(bundle.trim()) => SharingStep::Leave,
        (false, _) => SharingStep::Refuse,
        (true, Some(text)) if text == bundle => SharingStep::Leave,
        (true, _) => SharingStep::Write,
    }
}

impl AuthorityPublisher {
    /// Shares until the task is ended. Only the leader does.
    pub(super) async fn run(self) {
        let name = self.settings.trust_bundle.clone();
        let mut shared = Shared {
            checked: CheckedNamespaces::default(),
            refused: BTreeSet::new(),
            trust_bundle: name.map(|name| TrustBundle::new(self.client.clone(), name)),
        };
        loop {
            let whole = match self.round(&mut shared).await {
                Ok(whole) => whole,
                Err(error) => {
                    warn!(%error, "the hub's authorities cannot be read; retrying");
                    false
                }
            };
            if !whole {
                tokio::time::sleep(RETRY).await;
                continue;
            }
            let next = shared.checked.until(Instant::now());
            // Namespaces come and go all the time; most of them ask for nothing.
            let _ = tokio::time::timeout_at(next, async {
                while shared.checked.has_all(&self.asking()) {
                    self.trust.asked.notified().await;
                }
            })
            .await;
        }
    }

    /// The managed namespaces whose pods ask for sidecars: all of them, or some by themselves.
    fn asking(&self) -> Vec<SidecarNamespace> {
        let asks = |namespace: &Arc<PartialObjectMeta<Namespace>>| {
            namespace.metadata.deletion_timestamp.is_none()
                && (namespace.labels().get(LABEL_INJECT).map(String::as_str) == Some(ENABLED)
                    || self.trust.asks(&namespace.name_any()))
                && self.settings.manages(&namespace.name_any())
        };
        let state = self.namespaces.state();
        let asking = state.iter().filter(|one| asks(one)).map(|one| SidecarNamespace {
            name: one.name_any(),
            uid: one.uid().unwrap_or_default(),
        });
        asking.collect()
    }

    /// The ClusterTrustBundle, and every namespace that is due. Returns whether there are authorities, and the ClusterTrustBundle
    /// has them; a namespace that cannot be written into has a time of its own.
    async fn round(&self, shared: &mut Shared) -> Result<bool, CallError> {
        let Some(bundle) = self.bundle().await? else {
            return Ok(false);
        };
        let mut whole = true;
        if let Some(trust_bundle) = &mut shared.trust_bundle
            && let Err(error) = trust_bundle.share(&bundle, Instant::now()).await
        {
            whole = false;
            warn!(%error, "the hub's authorities cannot be shared with the sidecars; retrying");
        }
        let Shared { checked, refused, .. } = shared;
        let asking = self.asking();
        self.trust.keep(|name| asking.iter().any(|one| one.name == name));
        let results: Vec<_> = futures::stream::iter(checked.due(asking, &bundle, Instant::now()))
            .map(|namespace| {
                let bundle = &bundle;
                async move {
                    let result = self.share(&namespace.name, bundle).await;
                    (namespace, result)
                }
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        for (namespace, result) in results {
            let name = &namespace.name;
            match result {
                Ok(SharingStep::Refuse) => {
                    self.trust.note(name, Err("it has another owner; delete it".to_owned()));
                    if refused.insert(name.clone()) {
                        let why = format!(
                            "ConfigMap {CONFIG_MAP_CA} has another owner, so sidecars there do not trust the hub; delete it, or label \
                             it {LABEL_MANAGED_BY}={MANAGED_BY}"
                        );
                        warn!(namespace = %name, "{why}");
                        self.tell(name, &why).await;
                    }
                    checked.note(&namespace, &bundle, Instant::now());
                }
                Ok(step) => {
                    if step == SharingStep::Write {
                        info!(namespace = %name, "the hub's authorities are shared with the sidecars");
                    }
                    refused.remove(name);
                    self.trust.note(name, Ok(()));
                    checked.note(&namespace, &bundle, Instant::now());
                }
                Err(error) => {
                    let text = error.to_string();
                    let before = checked.fail(&namespace, &text, Instant::now());
                    if before.as_ref() != Some(&text) {
                        warn!(namespace = %name, %error, "the hub's authorities cannot be shared with the sidecars; retrying");
                    }
                    if before.is_none() {
                        let why = format!(
                            "ConfigMap {CONFIG_MAP_CA} cannot be written, so sidecars in this namespace may not trust the hub: {text}"
                        );
                        self.tell(name, &why).await;
                    }
                }
            }
        }
        Ok(whole)
    }

    /// Says in a namespace why its sidecars do not trust the hub, on the ConfigMap that they mount.
    async fn tell(&self, namespace: &str, why: &str) {
        let map = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(CONFIG_MAP_CA.to_owned()),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: EventType::Warning,
            reason: "AuthoritiesNotShared".to_owned(),
            note: Some(why.chars().take(NOTE_MAX_CHARS).collect()),
            action: "Share".to_owned(),
            secondary: None,
        };
        let what = || format!("write an Event in namespace {namespace}");
        if let Err(error) = call(what, self.recorder.publish(&event, &map)).await {
            warn!(%error, "an Event about the hub's authorities could not be written");
        }
    }

    /// The authorities for gateways; `None` while the hub has no certificate.
    async fn bundle(&self) -> Result<Option<String>, CallError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.settings.namespace);
        let published = call(
            || format!("get ConfigMap {}/{CONFIG_MAP_HUB_CA}", self.settings.namespace),
            api.get_opt(CONFIG_MAP_HUB_CA),
        )
        .await?;
        Ok(published.and_then(|map| map.data?.remove(KEY_HUB_CA)))
    }

    async fn share(&self, namespace: &str, bundle: &str) -> Result<SharingStep, CallError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let present = call(
            || format!("get ConfigMap {namespace}/{CONFIG_MAP_CA}"),
            api.get_opt(CONFIG_MAP_CA),
        )
        .await?;
        let step = step(present.as_ref(), bundle, self.settings.trust_bundle.is_none());
        if step == SharingStep::Write {
            let map = ConfigMap {
                metadata: ObjectMeta {
                    name: Some(CONFIG_MAP_CA.to_owned()),
                    labels: Some([(LABEL_MANAGED_BY.to_owned(), MANAGED_BY.to_owned())].into()),
                    ..ObjectMeta::default()
                },
                data: Some([(KEY_HUB_CA.to_owned(), bundle.to_owned())].into()),
                ..ConfigMap::default()
            };
            let apply = PatchParams::apply(FIELD_MANAGER).force();
            let written = call(
                || format!("apply ConfigMap {namespace}/{CONFIG_MAP_CA}"),
                api.patch(CONFIG_MAP_CA, &apply, &Patch::Apply(&map)),
            )
            .await;
            if let Err(error) = written {
                // Not where it cannot be read: it may be there, and right.
                self.trust.note(namespace, Err(error.to_string()));
                return Err(error);
            }
        }
        Ok(step)
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    fn asking(name: &str, uid: &str) -> SidecarNamespace {
        SidecarNamespace {
            name: name.to_owned(),
            uid: uid.to_owned(),
        }
    }

    #[test]
    fn a_namespace_that_is_made_again_is_checked() {
        let (mut checked, now) = (CheckedNamespaces::default(), Instant::now());
        let first = asking("apps", "1");
        assert_eq!(checked.due(vec![first.clone()], "a", now), slice::from_ref(&first));
        checked.note(&first, "a", now);
        assert_eq!(checked.due(vec![first.clone()], "a", now), []);
        // The deletion may not have been seen by itself.
        let second = asking("apps", "2");
        assert_eq!(checked.due(vec![second.clone()], "a", now), [second]);
        assert_eq!(checked.due(vec![first.clone()], "a", now), [first]);
    }

    #[test]
    fn only_a_namespace_that_asks_anew_is_checked_before_its_time() {
        let (mut checked, now) = (CheckedNamespaces::default(), Instant::now());
        let (one, other) = (asking("one", "1"), asking("other", "2"));
        assert!(checked.has_all(&[]), "namespaces without gateways come and go");
        assert!(!checked.has_all(slice::from_ref(&one)));
        checked.note(&one, "a", now);
        assert!(checked.has_all(slice::from_ref(&one)));
        assert!(!checked.has_all(&[one, other]));
    }

    #[test]
    fn a_namespace_that_refuses_is_asked_less_and_less_often_and_keeps_no_other_from_its_time() {
        let (mut checked, begun) = (CheckedNamespaces::default(), Instant::now());
        let (bad, good) = (asking("bad", "1"), asking("good", "2"));
        let both = || vec![bad.clone(), good.clone()];
        let mut now = begun;
        for (number, seconds) in [5, 10, 20, 40, 60, 60].into_iter().enumerate() {
            assert!(checked.due(both(), "a", now).contains(&bad), "{number}");
            checked.note(&good, "a", now);
            let before = checked.fail(&bad, "a quota", now);
            assert_eq!(before.is_none(), number == 0);
            assert!(checked.has_all(&both()));
            let next = now + Duration::from_secs(seconds);
            assert_eq!(checked.until(now), next.min(now + AUTHORITIES_CHECK_INTERVAL));
            let just_before = next - Duration::from_millis(1);
            assert!(
                !checked.due(vec![bad.clone()], "b", just_before).contains(&bad),
                "{number}"
            );
            now = next;
        }
        // A change is reported, and what was written begins anew.
        assert_eq!(checked.fail(&bad, "another", now).as_deref(), Some("a quota"));
        checked.note(&bad, "a", now);
        assert_eq!(checked.fail(&bad, "a quota", now), None);
        assert_eq!(checked.until(now), now + RETRY);
        // A namespace that asks no more is forgotten.
        assert_eq!(checked.due(vec![], "a", now), []);
        assert_eq!(checked.until(now), now + AUTHORITIES_CHECK_INTERVAL);
    }

    /// Whatever happens in between, such as changes of other namespaces' labels.
    #[test]
    fn a_namespace_is_checked_again_after_a_minute_and_for_another_authority() {
        let (mut checked, now) = (CheckedNamespaces::default(), Instant::now());
        let (one, other) = (asking("one", "1"), asking("other", "2"));
        let both = || vec![one.clone(), other.clone()];
        checked.note(&one, "a", now);
        checked.note(&other, "a", now + AUTHORITIES_CHECK_INTERVAL / 2);
        assert_eq!(
            checked.until(now + AUTHORITIES_CHECK_INTERVAL / 2),
            now + AUTHORITIES_CHECK_INTERVAL
        );
        assert_eq!(checked.due(both(), "a", now + AUTHORITIES_CHECK_INTERVAL - RETRY), []);
        assert_eq!(
            checked.due(both(), "a", now + AUTHORITIES_CHECK_INTERVAL),
            slice::from_ref(&one)
        );
        assert_eq!(
            checked.until(now + AUTHORITIES_CHECK_INTERVAL),
            now + AUTHORITIES_CHECK_INTERVAL / 2 + AUTHORITIES_CHECK_INTERVAL
        );
        assert_eq!(checked.due(both(), "b", now + AUTHORITIES_CHECK_INTERVAL), both());
    }

    #[test]
    fn a_config_map_of_another_owner_is_left_alone() {
        let map = |manager: Option<&str>, text: Option<&str>| ConfigMap {
            metadata: ObjectMeta {
                labels: manager.map(|manager| [(LABEL_MANAGED_BY.to_owned(), manager.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: text.map(|text| [(KEY_HUB_CA.to_owned(), text.to_owned())].into()),
            ..ConfigMap::default()
        };
        assert_eq!(step(None, "a", false), SharingStep::Leave);
        for (present, expected) in [
            (None, SharingStep::Write),
            (Some(map(Some("knack"), Some("a"))), SharingStep::Leave),
            (Some(map(Some("knack"), Some("b"))), SharingStep::Write),
            (Some(map(Some("knack"), None)), SharingStep::Write),
            (Some(map(Some("Helm"), Some("b"))), SharingStep::Refuse),
            (Some(map(Some("Helm"), None)), SharingStep::Refuse),
            (Some(map(None, Some("a"))), SharingStep::Leave),
            (Some(map(None, Some("b"))), SharingStep::Refuse),
        ] {
            for makes in [true, false] {
                if makes || present.is_some() {
                    assert_eq!(step(present.as_ref(), "a", makes), expected, "{present:?}");
                }
            }
        }
    }
}
