//! What the process is told, and every bound with its reason.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use crate::hub_api::RuntimeName;

/// A call to the API server. kube retries 429, 503 and 504 by itself, so one call could hang for minutes.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Watches end and begin anew after this many seconds: load balancers drop idle ones from 240 s on.
pub(super) const WATCH_SECONDS: u32 = 200;
/// Skills reconciled at once: each holds its files a few times over, and a socket, since the client speaks HTTP/1.1. An API
/// server on two cores is busy with as many.
pub(super) const SKILL_CONCURRENCY: u16 = 16;
/// Runtimes reconciled at once; each looks at every skill.
pub(super) const RUNTIME_CONCURRENCY: u16 = 8;
/// Skills change in bursts; runtimes look again at most this often.
pub(super) const RUNTIME_PAUSE: Duration = Duration::from_millis(250);
/// The pause while changes keep coming, at most.
pub(super) const RUNTIME_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Requests to look at a skill again that may wait; senders wait beyond it.
pub(super) const TRIGGER_QUEUE: usize = 1_024;
/// Everything is looked at again this often, should an event have been lost.
pub(super) const RESYNC: Duration = Duration::from_hours(1);
/// The fence of a runtime is looked at this often: who changes it does not tell us, and watching policies everywhere would
/// ask for rights in namespaces where no code runs.
pub(super) const FENCE_LOOK: Duration = Duration::from_mins(1);
/// First pause after an error; it doubles.
pub(super) const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Longest pause after errors.
pub(super) const RETRY_MAX: Duration = Duration::from_mins(5);
/// Pause between looks for definitions that are not installed yet.
pub(super) const CRD_PAUSE: Duration = Duration::from_secs(2);
/// Bytes of fetched archives that are kept by address and digest, so that a changed label fetches nothing.
pub(super) const ARCHIVE_CACHE_BYTES: usize = 32 << 20;
/// Archives that are unpacked, judged and delivered at once: each may hold 64 MiB of files, a second time while one file is
/// taken over, and the chart's limit is 512 MiB for everything.
pub(super) const ARCHIVES_AT_ONCE: usize = 1;
/// Superseded revisions that are kept where no runtime says otherwise.
pub(super) const REVISION_HISTORY: u32 = 3;

/// What `knack controller` is told.
#[derive(Debug, Clone)]
pub struct ControllerSettings {
    /// Its own namespace: the leader's Lease is there.
    pub namespace: String,
    /// Unique name of this process; the pod's name in a cluster.
    pub identity: String,
    /// The cluster default.
    pub default_runtime: Option<RuntimeName>,
    /// Namespaces whose Skills are served; empty: all.
    pub watch_namespaces: Vec<String>,
    /// Namespaces where code runs: their SkillRuntimes, fences and quotas are looked after too.
    pub runtime_namespaces: Vec<String>,
    /// Image of runtimes that name none.
    pub default_image: Option<String>,
    /// Whether sandbox images may go without a digest.
    pub allow_image_tags: bool,
    /// PriorityClass of the sandboxes' pods: a ResourceQuota counts by it. Absent: no quota.
    pub priority_class: Option<String>,
    /// Networks that archives may be fetched from although their addresses are private.
    pub allow_archive_networks: Vec<crate::sources::fetch::Network>,
    /// Names and addresses of the hub's certificate besides its Service's.
    pub hub_names: Vec<String>,
    /// Where `/healthz`, `/readyz` and `/metrics` answer.
    pub metrics_listen: SocketAddr,
}

impl ControllerSettings {
    /// The namespaces to look after, sorted; empty: all.
    pub(super) fn namespaces(&self) -> BTreeSet<&str> {
        if self.watch_namespaces.is_empty() {
            return BTreeSet::new();
        }
        let all = self.watch_namespaces.iter().chain(&self.runtime_namespaces);
        all.filter(|name| !name.is_empty()).map(String::as_str).collect()
    }

    /// Whether a namespace is one to look after.
    pub fn looks_after(&self, namespace: &str) -> bool {
        let own = self.namespaces();
        own.is_empty() || own.contains(namespace)
    }
}
