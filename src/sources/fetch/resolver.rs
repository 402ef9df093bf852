//! Resolves names to addresses without the denied ones: the check is where the connection takes its address from.

use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::network::{Network, is_public};

/// A name has addresses, and none may be reached.
#[derive(Debug, thiserror::Error)]
#[error("no public address")]
pub(super) struct Denied;

/// The system's resolver behind the address rule.
#[derive(Debug, Clone)]
pub(super) struct GuardedResolver {
    allowed: Arc<[Network]>,
}

impl GuardedResolver {
    pub(super) fn new(allowed: Arc<[Network]>) -> Self {
        Self { allowed }
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = Arc::clone(&self.allowed);
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // One denied address denies the name: a name that mixes them is made to be tried until it works.
            let public = |address: &SocketAddr| {
                is_public(address.ip()) || allowed.iter().any(|network| network.contains(address.ip()))
            };
            if !found.iter().all(public) {
                return Err(Denied.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
