//! Settings that the process gives an executor: clients, secrets, its own address.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use knack_execution::records::RecordSettings;
use knack_memory::MemoryBudget;
use knack_serving::beacon::ProbeTarget;
use knack_vocabulary::FIELD_MANAGER_HUB;
use tokio::sync::{Mutex, Semaphore, watch};

use crate::events::Events;
use crate::lease::{Keeper, KeeperError, Peers};

/// How long an attach connection may be silent: the client pings every 60 s, so 15 s more without an answer is a dead
/// connection.
const ATTACH_READ_TIMEOUT: Duration = Duration::from_secs(75);

/// How long connecting may take; a load balancer that drops packets would delay a run for minutes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The connections to the API server: one for calls and watches, one for attach streams, whose idle rule differs.
#[derive(Clone)]
pub struct JobClients {
    /// Calls and watches.
    pub api: kube::Client,
    /// Attach streams: no read for 75 s ends one.
    pub attach: kube::Client,
    /// Client for ownership Leases; separate, so load cannot delay renewals.
    pub leases: Keeper,
    /// Where the cluster's Events about failures are written: one recorder for all runtimes.
    pub(crate) events: Events,
}

impl JobClients {
    /// Clients of one configuration.
    ///
    /// Errors: the configuration has no usable TLS or authentication, or there is no thread for the Leases.
    pub fn new(config: kube::Config) -> Result<Self, KeeperError> {
        let mut attach = config.clone();
        attach.connect_timeout = Some(CONNECT_TIMEOUT);
        attach.read_timeout = Some(ATTACH_READ_TIMEOUT);
        // The client's pings would hide a peer that answers none of them.
        attach.reset_reader_on_write = false;
        let client = |config| kube::Client::try_from(config).map_err(|error| KeeperError::Client(Box::new(error)));
        let leases = Keeper::start(config.clone())?;
        Ok(Self::from_clients(client(config)?, client(attach)?, leases))
    }

    /// Clients that are there already.
    pub fn from_clients(api: kube::Client, attach: kube::Client, leases: Keeper) -> Self {
        let events = Events::new(api.clone(), FIELD_MANAGER_HUB);
        Self {
            api,
            attach,
            leases,
            events,
        }
    }
}

impl fmt::Debug for JobClients {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("JobClients").finish_non_exhaustive()
    }
}

/// Settings of an executor that are the process's, not the runtime's.
#[derive(Clone)]
pub struct JobSettings {
    /// This replica, unique among replicas and over restarts ([`crate::lease::identity_of`]); the holder of the Leases.
    pub replica: String,
    /// Where other replicas' callers reach this one: `https://host:port`. Written into the Lease.
    pub address: String,
    /// From this secret the keys of the journals are made. The same in every replica and over restarts, or a new owner
    /// cannot read what the last one left.
    pub secret: [u8; 32],
    /// Bounds of the records; the retention is the runtime's `ttl`.
    pub records: RecordSettings,
    /// How long the Lease of a runtime holds without renewal: a dead owner is replaced after this long.
    pub lease_duration: Duration,
    /// How long an execution continues without a waiter.
    pub orphan_grace: Duration,
    /// How long a cold pod may take until it is ready, image pull included.
    pub start_timeout: Duration,
    /// Finished Jobs kept per runtime; the oldest are deleted first.
    pub max_finished: usize,
    /// The memory for requests and results of all runtimes; absent: each runtime by `records` alone.
    pub memory: Option<ResultMemory>,
    /// A TCP listener of this process that the isolation probe dials; absent: no probe.
    pub probe: Option<ProbeTarget>,
    /// The replicas over which runtimes are spread; by default unknown, and an owner keeps its runtimes.
    pub peers: watch::Receiver<Peers>,
    /// Held while a runtime moves to the replica that should have it: one at a time, of all runtimes of this process.
    pub(super) moves: Arc<Mutex<()>>,
    /// Turns to probe a node that no run waits for, of all runtimes of this process.
    pub(super) probes: Arc<Semaphore>,
}

impl JobSettings {
    /// Lease duration: an owner whose network is cut for 10 s keeps the runtime.
    pub const LEASE_DURATION: Duration = Duration::from_secs(15);
    /// How long an execution continues without a waiter (docs/design/decisions.md#identity-and-at-most-once).
    pub const ORPHAN_GRACE: Duration = Duration::from_secs(30);
    /// How long a cold pod may take: a pull of a few hundred MB at 10 MB/s; a pod that says why it cannot start fails
    /// at once.
    pub const START_TIMEOUT: Duration = Duration::from_mins(2);
    /// Probes at once that no run waits for. Each is a pod, and a hub that takes hundreds of runtimes over would start two for
    /// each of them: more than a node takes. Eight are 24 a minute where no network plugin answers for 20 s.
    const PROBES_AT_ONCE: usize = 8;
    /// Finished Jobs kept per runtime: a screenful for `kubectl get jobs`, times ten.
    pub const MAX_FINISHED: usize = 500;

    /// The defaults around an identity and a secret.
    #[must_use]
    pub fn new(replica: impl Into<String>, address: impl Into<String>, secret: [u8; 32]) -> Self {
        Self {
            replica: replica.into(),
            address: address.into(),
            secret,
            records: RecordSettings::default(),
            lease_duration: Self::LEASE_DURATION,
            orphan_grace: Self::ORPHAN_GRACE,
            start_timeout: Self::START_TIMEOUT,
            max_finished: Self::MAX_FINISHED,
            memory: None,
            probe: None,
            peers: watch::channel(Peers::default()).1,
            moves: Arc::default(),
            probes: Arc::new(Semaphore::new(Self::PROBES_AT_ONCE)),
        }
    }
}

/// The memory of this process for what runs send and get, all runtimes together.
#[derive(Debug, Clone)]
pub struct ResultMemory {
    /// The budget of the process: what is on its way to pods counts in it, besides the files that it is made of.
    pub whole: MemoryBudget,
    /// All output and files of runs that are still referenced: by a run, a reader, a record.
    pub all: MemoryBudget,
    /// The part of it that records may keep: what is above it is for runs and readers.
    pub kept: MemoryBudget,
}

impl ResultMemory {
    /// Half of a budget for results, and half of that for those that are only kept.
    #[must_use]
    pub fn of(whole: &MemoryBudget) -> Self {
        let all = whole.part(whole.total_bytes() / 2);
        // It counts a part of the bytes that `all` has counted already.
        let kept = MemoryBudget::new(all.total_bytes() / 2);
        Self {
            whole: whole.clone(),
            all,
            kept,
        }
    }
}

impl fmt::Debug for JobSettings {
    /// Without the secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("JobSettings")
            .field("replica", &self.replica)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
