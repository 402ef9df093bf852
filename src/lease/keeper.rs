//! A thread of their own for Leases: requests, or thousands of Skills, may keep all threads busy, and a Lease that is renewed
//! late is lost.

use std::sync::Arc;
use std::thread;

use kube::{Client, Config};
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::hold::{Lease, LeaseSettings};
use super::holder::LeaseHolder;

/// Name of the thread, as tools for processes show it.
const THREAD: &str = "leases";

/// Why there is no thread for Leases.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The operating system gives no thread, or no means to wait for sockets.
    #[error("cannot start the thread that renews Leases: {0}")]
    Thread(#[from] std::io::Error),
    /// The configuration has no usable TLS or authentication.
    #[error("cannot create the Kubernetes client for Leases: {0}")]
    Client(#[source] Box<kube::Error>),
}

/// Keeps Leases on a thread, and with connections, that nothing else uses. The thread ends with the last clone.
#[derive(Clone)]
pub struct Keeper {
    client: Client,
    handle: Handle,
    _end: Arc<DropGuard>,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Keeper").finish_non_exhaustive()
    }
}

impl Keeper {
    /// Starts the thread.
    pub fn start(config: Config) -> Result<Self, KeeperError> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        // Tasks that the client spawns belong to this runtime as well.
        let client = {
            let _entered = handle.enter();
            Client::try_from(config).map_err(|error| KeeperError::Client(Box::new(error)))?
        };
        let end = CancellationToken::new();
        let guard = end.clone().drop_guard();
        thread::Builder::new()
            .name(THREAD.to_owned())
            .spawn(move || runtime.block_on(end.cancelled()))?;
        Ok(Self {
            client,
            handle,
            _end: Arc::new(guard),
        })
    }

    /// Competes for a Lease until `shutdown`, and then releases it; the channel reports its holder.
    pub fn keep(
        &self,
        settings: LeaseSettings,
        shutdown: CancellationToken,
    ) -> (JoinHandle<()>, watch::Receiver<LeaseHolder>) {
        let (lease, holder) = Lease::new(self.client.clone(), settings);
        (self.handle.spawn(lease.run(shutdown)), holder)
    }
}
