//! What the publisher of the hub's authorities and the report on sidecars tell each other: where pods ask by themselves, and where
//! sidecars do not get the authorities.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Notes by namespace.
#[derive(Debug, Default)]
pub(super) struct SidecarTrust {
    notes: Mutex<Notes>,
    /// For the publisher: the namespaces that ask may be others.
    pub(super) asked: Notify,
    /// For the report: there is a namespace more without authorities.
    pub(super) failed: Notify,
}

#[derive(Debug, Default)]
struct Notes {
    /// Namespaces of pods whose sidecar the hub accepts, also where the namespace itself does not ask.
    asking: BTreeSet<String>,
    /// Namespaces in which the authorities could not be published, and why.
    missing: BTreeMap<String, String>,
}

impl SidecarTrust {
    /// Notes the namespaces that the last check of pods has found.
    pub(super) fn ask(&self, namespaces: BTreeSet<String>) {
        let mut notes = self.notes();
        if notes.asking != namespaces {
            notes.asking = namespaces;
            self.asked.notify_one();
        }
    }

    /// Whether pods of a namespace ask by themselves.
    pub(super) fn asks(&self, namespace: &str) -> bool {
        self.notes().asking.contains(namespace)
    }

    /// Notes whether a namespace has the authorities; `Err`: why it does not.
    pub(super) fn note(&self, namespace: &str, published: Result<(), String>) {
        let mut notes = self.notes();
        match published {
            Ok(()) => drop(notes.missing.remove(namespace)),
            Err(why) => {
                if notes.missing.insert(namespace.to_owned(), why).is_none() {
                    self.failed.notify_one();
                }
            }
        }
    }

    /// Forgets all namespaces but these.
    pub(super) fn keep(&self, is_kept: impl Fn(&str) -> bool) {
        self.notes().missing.retain(|namespace, _| is_kept(namespace));
    }

    /// Why sidecars of a namespace do not get the authorities.
    pub(super) fn missing(&self, namespace: &str) -> Option<String> {
        self.notes().missing.get(namespace).cloned()
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
