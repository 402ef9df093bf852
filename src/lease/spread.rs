//! Which of several replicas a Lease should go to, as a function of the replicas that are there.
//!
//! Rendezvous hashing: each replica has a weight for each Lease, made of both names, and the highest wins. Every replica finds
//! the same winner without asking, and a replica that comes or goes moves only what it wins or held.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::Instant;

/// How the weight of a replica for a Lease is found: the first bytes of a hash over both.
fn weight(replica: &str, lease: &str) -> u64 {
    let mut hash = Sha256::new();
    hash.update(b"knack rendezvous v1\n");
    hash.update(replica.as_bytes());
    hash.update(b"\n");
    hash.update(lease.as_bytes());
    let digest = hash.finalize();
    digest
        .iter()
        .take(8)
        .fold(0, |weight, byte| weight << 8 | u64::from(*byte))
}

/// The replica that a Lease should go to; `None` if there is none.
pub fn preferred<'r>(lease: &str, replicas: impl IntoIterator<Item = &'r str>) -> Option<&'r str> {
    // If two weights are equal the name decides, so that all see the same winner.
    replicas
        .into_iter()
        .max_by_key(|replica| (weight(replica, lease), *replica))
}

/// An identity of one process of a replica: what a replica held before its restart is not held by what it is afterwards.
pub fn identity_of(replica: &str) -> String {
    let start = uuid::Uuid::new_v4().simple().to_string();
    format!("{replica}-{}", &start[..8])
}

/// The replica that an identity of [`identity_of`] belongs to.
pub fn replica_of(identity: &str) -> &str {
    identity.rsplit_once('-').map_or(identity, |(replica, _)| replica)
}

/// The replicas, as one of them sees them.
#[derive(Debug, Clone)]
pub struct Peers {
    /// Names of the replicas that get traffic; `None`: unknown, so each takes the Leases that it finds free and keeps
    /// them.
    ready: Option<BTreeSet<String>>,
    /// Since when they are these.
    since: Instant,
    /// This one is about to end.
    leaving: bool,
}

impl Default for Peers {
    fn default() -> Self {
        Self {
            ready: None,
            since: Instant::now(),
            leaving: false,
        }
    }
}

/// When a replica may take a Lease that has no holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precedence {
    /// At once.
    First,
    /// When those that should have taken it have not.
    Later,
    /// Not at all.
    Never,
}

impl Peers {
    /// Takes the replicas that get traffic now. True: they are others than before.
    pub fn see(&mut self, ready: BTreeSet<String>, now: Instant) -> bool {
        if self.ready.as_ref() == Some(&ready) {
            return false;
        }
        self.ready = Some(ready);
        self.since = now;
        true
    }

    /// This replica ends soon: it takes nothing more, and gives away what it holds.
    pub fn leave(&mut self) {
        self.leaving = true;
    }

    /// Whether this replica ends soon.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Since when the replicas are these.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// When `me` may take a Lease whose last holder was `gone`.
    pub fn precedence(&self, me: &str, lease: &str, gone: Option<&str>) -> Precedence {
        if self.leaving {
            return Precedence::Never;
        }
        let Some(ready) = &self.ready else {
            return Precedence::First;
        };
        let gone = gone.filter(|gone| *gone != me);
        let there = ready.iter().map(String::as_str).filter(|name| Some(*name) != gone);
        match preferred(lease, there) {
            Some(best) if best != me => Precedence::Later,
            Some(_) | None => Precedence::First,
        }
    }

    /// The replica that should hold a Lease rather than `me`.
    pub fn better_than(&self, me: &str, lease: &str) -> Option<&str> {
        let best = preferred(lease, self.ready.as_ref()?.iter().map(String::as_str))?;
        (best != me).then_some(best)
    }
}

/// Makes a Lease one of many that are spread over replicas.
#[derive(Debug, Clone)]
pub struct Spread {
    /// Name of this replica, as its peers use it.
    pub replica: String,
    /// The key of the Lease in the hash, the same at all replicas.
    pub lease: String,
    /// The replicas.
    pub peers: watch::Receiver<Peers>,
}

impl Spread {
    /// When this replica may take the Lease after a holder.
    pub(super) fn precedence(&self, gone: Option<&str>) -> Precedence {
        let gone = gone.map(replica_of);
        self.peers.borrow().precedence(&self.replica, &self.lease, gone)
    }
}

#[cfg(test)]
#[path = "spread_tests.rs"]
mod tests;
