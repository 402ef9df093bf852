//! What the process is told, and every bound with its reason.

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
    /// Namespaces to look at; empty: all.
    pub watch_namespaces: Vec<String>,
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
