//! Resolves names to addresses without the denied ones: the check is where the connection takes its address from.

use std::net::SocketAddr;

use knack_egress::Guard;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// A name has addresses, and none may be reached.
#[derive(Debug, thiserror::Error)]
#[error("no public address")]
pub(super) struct Denied;

/// The system's resolver behind the address rule.
#[derive(Debug, Clone)]
pub(super) struct GuardedResolver {
    guard: Guard,
}

impl GuardedResolver {
    pub(super) fn new(guard: Guard) -> Self {
        Self { guard }
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.guard.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // One denied address denies the name: a name that mixes them is made to be tried until it works.
            if !found.iter().all(|address| guard.admits(name.as_str(), address.ip())) {
                return Err(Denied.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
