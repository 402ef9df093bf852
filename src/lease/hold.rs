//! Acquiring, renewing and releasing a Lease.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease as LeaseObject, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use knack_vocabulary::ANNOTATION_ADDRESS;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::decide::{ForeignLease, LeaseStep, decide, defer, foreign_holder};
use super::holder::LeaseHolder;
use super::spread::{Precedence, Spread};
use crate::api_call::within;

/// Tries to renew a Lease that this process still holds. This process may write it, too (notes on the Lease of a runtime): of two writers one gets a
/// conflict.
const RENEW_TRIES: u32 = 3;

/// Which Lease, the name of this process, and how soon a dead holder is replaced.
#[derive(Debug, Clone)]
pub struct LeaseSettings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// This holder's identity: unique to this process, so that a restarted one is another holder.
    pub identity: String,
    /// Where this process answers, for the others; kept in an annotation.
    pub address: Option<String>,
    /// The owner of the Lease: Kubernetes deletes it with this object.
    pub owner: Option<OwnerReference>,
    /// More annotations.
    pub annotations: BTreeMap<String, String>,
    /// How long a Lease holds without renewal. A successor waits this long, an unlucky holder stops a tenth earlier.
    pub duration: Duration,
    /// Pause between renewals; a third of the duration or less.
    pub interval: Duration,
    /// Pause between reads of a Lease that another process holds, unless a [`ReadRequest`] asks for one; half of the
    /// duration or less.
    pub standby: Duration,
    /// Asks a standby to read the Lease now.
    pub read_request: ReadRequest,
    /// Which replica should hold it; absent: the first that takes it.
    pub spread: Option<Spread>,
    /// Whether the Lease is wanted at this moment: a holder that no longer wants it releases it. Absent: always.
    pub wanted: Option<watch::Receiver<bool>>,
}

impl LeaseSettings {
    /// Settings with the usual times: 15 s and 3 s. A leader that dies is followed within 18 s.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            address: None,
            owner: None,
            annotations: BTreeMap::new(),
            duration: USUAL_DURATION,
            interval: USUAL_INTERVAL,
            standby: USUAL_INTERVAL,
            read_request: ReadRequest::default(),
            spread: None,
            wanted: None,
        }
    }

    /// How long a Lease that is free is left to a replica that should have it: until that one has read it for sure.
    fn patience(&self) -> Duration {
        self.standby + READ_MARGIN
    }

    fn precedence(&self, gone: Option<&str>) -> Precedence {
        self.spread
            .as_ref()
            .map_or(Precedence::First, |spread| spread.precedence(gone))
    }
}

/// How long a Lease holds without a renewal: as long as those of Kubernetes' own components.
const USUAL_DURATION: Duration = Duration::from_secs(15);

/// Pause between renewals, and between a standby's reads: a holder has four more tries if one fails.
const USUAL_INTERVAL: Duration = Duration::from_secs(3);

/// Shortest pause between two reads of a Lease that another process holds, however many requests arrive.
const READ_PAUSE: Duration = Duration::from_secs(1);

/// Time allowed for reading and taking a Lease at a loaded API server, before the next replica tries.
const READ_MARGIN: Duration = Duration::from_secs(5);

/// Makes a standby read its Lease soon: a caller needs the holder now, and the holder may be gone.
#[derive(Debug, Clone, Default)]
pub struct ReadRequest(Arc<Notify>);

impl ReadRequest {
    /// Asks for a read within a second.
    pub fn request(&self) {
        self.0.notify_one();
    }
}

/// Returns when the Lease is wanted, or when it is not.
async fn is_wanted(wanted: Option<&mut watch::Receiver<bool>>, expected: bool) {
    let is_so = match wanted {
        Some(wanted) => wanted.wait_for(|wanted| *wanted == expected).await.is_ok(),
        None => expected,
    };
    if !is_so {
        // Always wanted; or the task that decides it is gone, and the shutdown has started.
        std::future::pending::<()>().await;
    }
}

/// A Lease that this process wants.
#[derive(Debug)]
pub struct Lease {
    api: Api<LeaseObject>,
    settings: LeaseSettings,
    observed: ForeignLease,
    /// The Lease as this process wrote it last: a renewal starts from it, and reads the Lease only after a conflict.
    written: Option<LeaseObject>,
    /// This process held it, and the API server does not know yet that it is free.
    is_being_released: bool,
    holder: watch::Sender<LeaseHolder>,
}

impl Lease {
    /// A Lease, and the channel that reports its holder.
    pub fn new(client: Client, settings: LeaseSettings) -> (Self, watch::Receiver<LeaseHolder>) {
        let (holder, receiver) = watch::channel(LeaseHolder::default());
        let api = Api::namespaced(client, &settings.namespace);
        let lease = Self {
            api,
            settings,
            observed: ForeignLease::default(),
            written: None,
            is_being_released: false,
            holder,
        };
        (lease, receiver)
    }

    /// One step: creates, takes, renews or leaves the Lease, and reports to the channel. `Ok(true)`: this process holds
    /// it. Errors are those of the API server or a timeout; a Lease that expires meanwhile ends by the local clock.
    pub async fn step(&mut self) -> Result<bool, kube::Error> {
        // Counted from before the call: what the server saw later can only end later.
        let started = Instant::now();
        if let Some(known) = self.written.take() {
            // Still held as far as this process knows: one call instead of two. Of two writers one gets a conflict, and then
            // reads.
            let object = self.object(Some(known));
            let params = PostParams::default();
            let call = self.api.replace(&self.settings.name, &params, &object);
            if let Some(renewed) = self.written(call).await? {
                self.hold(renewed, started);
                return Ok(true);
            }
        }
        let mut tried = 1;
        loop {
            let current = self.call(self.api.get_opt(&self.settings.name)).await?;
            let next = decide(&mut self.observed, current.as_ref(), &self.settings.identity, started);
            let holder = current
                .as_ref()
                .and_then(|lease| lease.spec.as_ref()?.holder_identity.as_deref());
            let (precedence, patience) = (self.settings.precedence(holder), self.settings.patience());
            let next = defer(&mut self.observed, next, precedence, started, patience);
            let written = match next {
                LeaseStep::Wait => None,
                LeaseStep::Create => {
                    self.written(self.api.create(&PostParams::default(), &self.object(None)))
                        .await?
                }
                LeaseStep::Take | LeaseStep::Renew => {
                    let object = self.object(current.clone());
                    self.written(self.api.replace(&self.settings.name, &PostParams::default(), &object))
                        .await?
                }
            };
            if written.is_none() && next == LeaseStep::Renew && tried < RENEW_TRIES {
                tried += 1;
                continue;
            }
            let is_ours = written.is_some();
            match (written, current) {
                (Some(written), _) => self.hold(written, started),
                (None, Some(current)) => self.publish(foreign_holder(&current)),
                (None, None) => self.publish(LeaseHolder::default()),
            }
            return Ok(is_ours);
        }
    }

    /// The Lease was written at `started` or later.
    fn hold(&mut self, written: LeaseObject, started: Instant) {
        // A tenth earlier than others may take it: they count from when they saw the renewal, which is later.
        let margin = self.settings.duration / 10;
        let holder = LeaseHolder {
            mine_until: Some(started + self.settings.duration - margin),
            ..foreign_holder(&written)
        };
        self.written = Some(written);
        self.is_being_released = false;
        self.observed.forget();
        self.publish(holder);
    }

    /// Waits until this process holds the Lease.
    pub async fn acquire(&mut self) -> LeaseHolder {
        loop {
            match self.step().await {
                Ok(true) => return self.holder.borrow().clone(),
                Ok(false) => {}
                Err(error) => self.log(&error),
            }
            self.pause().await;
        }
    }

    /// Between two reads of a Lease that another process holds: until the next is due, the Lease expires, or a
    /// request to read it arrives.
    async fn pause(&self) {
        let now = Instant::now();
        let (due, soonest) = (now + self.settings.standby, now + READ_PAUSE.min(self.settings.standby));
        let free = self.observed.free_since();
        let ends = [
            self.observed.expires(),
            free.map(|since| since + self.settings.patience()),
        ];
        let due = ends
            .into_iter()
            .flatten()
            .fold(due, |due, end| due.min(end.max(soonest)));
        tokio::select! {
            () = sleep_until(due) => {}
            () = async {
                tokio::select! {
                    () = self.settings.read_request.0.notified() => {}
                    // This replica may be the next one now.
                    () = self.peers_change(), if free.is_some() => {}
                }
                sleep_until(soonest).await;
            } => {}
        }
    }

    async fn peers_change(&self) {
        if let Some(spread) = &self.settings.spread {
            let mut peers = spread.peers.clone();
            peers.mark_unchanged();
            if peers.changed().await.is_ok() {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Renews until the Lease is lost, which is when this returns.
    pub async fn renew(&mut self) {
        let mut pause = self.settings.interval;
        loop {
            sleep(pause).await;
            pause = self.settings.interval;
            match self.step().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    // Sooner than usual: another answer that is lost would be the Lease's end.
                    pause = self.settings.interval / 5;
                    self.log(&error);
                    if !self.holder.borrow().is_mine(Instant::now()) {
                        self.publish(LeaseHolder::default());
                        return;
                    }
                }
            }
        }
    }

    /// Acquires and renews until cancelled; then releases, so that another replica need not wait.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut wanted = self.settings.wanted.clone();
        let forever = async {
            loop {
                is_wanted(wanted.as_mut(), true).await;
                let holder = self.acquire().await;
                info!(lease = %self.settings.name, namespace = %self.settings.namespace, transitions = holder.transitions, "lease acquired");
                tokio::select! {
                    () = self.renew() => {
                        warn!(lease = %self.settings.name, namespace = %self.settings.namespace, "lease lost");
                        continue;
                    }
                    () = is_wanted(wanted.as_mut(), false) => {}
                }
                self.release().await;
                info!(lease = %self.settings.name, namespace = %self.settings.namespace, "lease released");
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = forever => {}
        }
        self.release().await;
    }

    /// Gives the Lease back, if this process holds it. A release that was dropped on its way is taken up by the next one.
    pub async fn release(&mut self) {
        if !self.is_being_released && !self.holder.borrow().is_mine(Instant::now()) {
            return;
        }
        self.publish(LeaseHolder::default());
        self.written = None;
        self.is_being_released = true;
        let released = async {
            loop {
                let Some(mut lease) = self.api.get_opt(&self.settings.name).await? else {
                    return Ok(());
                };
                let spec = lease.spec.get_or_insert_default();
                if spec.holder_identity.as_deref() != Some(self.settings.identity.as_str()) {
                    return Ok(());
                }
                spec.holder_identity = None;
                let params = PostParams::default();
                match self.api.replace(&self.settings.name, &params, &lease).await {
                    // A renewal by this process was still on its way.
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    other => return other.map(|_| ()),
                }
            }
        };
        if let Err(error) = self.call(released).await {
            self.log(&error);
        }
        self.is_being_released = false;
    }

    /// The replacement of the current object, with its resourceVersion, so that of two takers one loses.
    fn object(&self, current: Option<LeaseObject>) -> LeaseObject {
        let now = MicroTime(Timestamp::now());
        let mut object = current.unwrap_or_else(|| LeaseObject {
            metadata: ObjectMeta {
                name: Some(self.settings.name.clone()),
                namespace: Some(self.settings.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        let before = object.spec.take().unwrap_or_default();
        let same = before.holder_identity.as_deref() == Some(self.settings.identity.as_str());
        let address = self.settings.address.iter();
        let address = address.map(|address| (ANNOTATION_ADDRESS.to_owned(), address.clone()));
        let annotations = object.metadata.annotations.get_or_insert_with(BTreeMap::new);
        annotations.extend(address.chain(self.settings.annotations.clone()));
        // Written with every renewal: a Lease of an earlier version has none, and an owner that was deleted and created
        // again has another uid.
        if let Some(owner) = &self.settings.owner {
            object.metadata.owner_references = Some(vec![owner.clone()]);
        }
        object.spec = Some(LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(self.settings.duration.as_secs().max(1)).unwrap_or(i32::MAX)),
            acquire_time: if same { before.acquire_time } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(before.lease_transitions.unwrap_or_default() + i32::from(!same)),
            ..LeaseSpec::default()
        });
        object
    }

    /// The written object; `None` if another one was faster.
    async fn written(
        &self,
        call: impl Future<Output = Result<LeaseObject, kube::Error>>,
    ) -> Result<Option<LeaseObject>, kube::Error> {
        match self.call(call).await {
            Ok(lease) => Ok(Some(lease)),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A call that ends before its Lease does.
    async fn call<T>(&self, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
        within(self.settings.duration / 3, call).await
    }

    fn publish(&self, holder: LeaseHolder) {
        self.holder.send_if_modified(|current| {
            let changed = *current != holder;
            *current = holder;
            changed
        });
    }

    fn log(&self, error: &kube::Error) {
        warn!(lease = %self.settings.name, namespace = %self.settings.namespace, %error, "lease could not be written or read");
    }
}
