//! The settings of the process, and every bound with its reason.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use knack_hub_api::RuntimeName;

/// Skills reconciled at once: each holds its files a few times over, and a socket, since the client speaks HTTP/1.1. An API
/// server on two cores is busy with as many.
pub(super) const SKILL_CONCURRENCY: u16 = 16;
/// Runtimes reconciled at once; each may go through every skill.
pub(super) const RUNTIME_CONCURRENCY: u16 = 8;
/// Skills change in bursts; runtimes are reconciled at most this often.
pub(super) const RUNTIME_PAUSE: Duration = Duration::from_millis(250);
/// The pause while changes keep coming, at most.
pub(super) const RUNTIME_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Requests for reconciles of skills that may wait in the channel; senders wait when it is full.
pub(super) const TRIGGER_QUEUE: usize = 1_024;
/// Everything is reconciled again this often, in case an event was lost.
pub(super) const RESYNC: Duration = Duration::from_hours(1);
/// The fence of a runtime is checked this often: nothing reports changes of it, and watching policies everywhere would
/// need rights in namespaces where no code runs.
pub(super) const FENCE_CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// Interval between checks of the authorities that sidecars trust: a copy that was deleted or changed is restored within it.
pub(super) const AUTHORITIES_CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// Most characters of a description in a status, which is what a listing shows at most.
pub(super) const DESCRIPTION_MAX: usize = 1024;
/// First pause after an error; it doubles.
pub(super) const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Longest pause after errors.
pub(super) const RETRY_MAX: Duration = Duration::from_mins(5);
/// Failures in a row after which an object says that calls to the API server fail: a connection that broke and an API server that restarts
/// are back before, and cost no status.
pub(super) const REPORTED_FAILURES: u32 = 2;
/// Pause between checks for definitions that are not installed yet.
pub(super) const CRD_PAUSE: Duration = Duration::from_secs(2);
/// Bytes of fetched archives that are kept by address and digest, so that a changed label fetches nothing.
pub(super) const ARCHIVE_CACHE_BYTES: usize = 32 << 20;
/// Archives that are unpacked, judged and delivered at once: each may hold 64 MiB of files, a second time while one file is
/// taken over, and the chart's limit is 512 MiB for everything.
pub(super) const ARCHIVES_AT_ONCE: usize = 1;

/// Bytes of Skills that are judged and delivered at once, archives apart: three of the largest uploads. As many as there are reconciles
/// would be more than the chart's limit.
pub(super) const JUDGED_MAX_BYTES: usize = 96 << 20;
/// How often content is held until it is delivered: as ConfigMaps or files that were read, as those that are made of them, and once more
/// while it is checked and sent.
pub(super) const JUDGED_COPIES: usize = 3;
/// How long a Skill waits for its part of that, in one of the reconciles: others are judged and delivered within seconds.
pub(super) const JUDGED_PATIENCE: Duration = Duration::from_mins(1);

/// The settings of the webhook that injects sidecars.
#[derive(Debug, Clone)]
pub struct WebhookSettings {
    /// Where it listens, with TLS.
    pub listen: SocketAddr,
    /// The MutatingWebhookConfiguration of the chart: the leader writes its `caBundle`.
    pub configuration: String,
    /// The file with the injection's parameters: `parameters.yaml` of the chart's ConfigMap `knack-injection`.
    pub parameters: PathBuf,
    /// The sidecar's image, in place of the parameters'; absent: theirs.
    pub image: Option<String>,
    /// Names and addresses of its certificate besides its Service's.
    pub names: Vec<String>,
}

/// The settings of `knack controller`.
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
    /// Namespaces where code runs: their SkillRuntimes, fences and quotas are managed too.
    pub runtime_namespaces: Vec<String>,
    /// Image of runtimes that name none.
    pub default_image: Option<String>,
    /// Whether sandbox images may go without a digest.
    pub allow_image_tags: bool,
    /// Whether environments of packages are built on this cluster.
    pub packages: bool,
    /// PriorityClass of the sandboxes' pods: a ResourceQuota counts by it. Absent: no quota.
    pub priority_class: Option<String>,
    /// Networks that archives may be fetched from although their addresses are private.
    pub allow_archive_networks: Vec<knack_egress::Network>,
    /// Whom the servers of archives are trusted by.
    pub roots: knack_trust::Roots,
    /// Names and addresses of the hub's certificate besides its Service's.
    pub hub_names: Vec<String>,
    /// Names and addresses of the registry's certificate besides its Service's; absent without a registry.
    pub registry_names: Option<Vec<String>>,
    /// The SkillRuntime of sidecars whose pod names none; absent where no sidecars are injected, and then none are missed.
    pub injection_runtime: Option<RuntimeName>,
    /// The sidecar's image of this installation: pods with another one are reported.
    pub sidecar_image: Option<String>,
    /// Whether workloads whose pods have another sidecar than that are restarted where namespaces ask.
    pub roll_stale_sidecars: bool,
    /// The ClusterTrustBundle in which sidecars find the hub's authorities; absent: ConfigMaps in their namespaces.
    pub trust_bundle: Option<String>,
    /// The webhook that injects sidecars; absent where the API server does without.
    pub webhook: Option<WebhookSettings>,
    /// Where `/healthz`, `/readyz` and `/metrics` answer.
    pub metrics_listen: SocketAddr,
}

impl ControllerSettings {
    /// The managed namespaces, sorted; empty: all.
    pub(super) fn namespaces(&self) -> BTreeSet<&str> {
        if self.watch_namespaces.is_empty() {
            return BTreeSet::new();
        }
        let all = self.watch_namespaces.iter().chain(&self.runtime_namespaces);
        all.filter(|name| !name.is_empty()).map(String::as_str).collect()
    }

    /// Whether a namespace is managed.
    pub fn manages(&self, namespace: &str) -> bool {
        let own = self.namespaces();
        own.is_empty() || own.contains(namespace)
    }
}
