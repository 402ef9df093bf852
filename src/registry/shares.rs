//! How much the gateways of one namespace may ask, and of that each of their clients, whichever replica of a gateway sends it.

use std::sync::Arc;

use knack_serving::sources::{Pace, SourcePermit, Sources};
use tokio::time::Instant;

use crate::account_auth::ServiceAccountCaller;

/// Parts of a namespace's pace, and how many of them one client has. One replica of a gateway lets it have half: with as little here a
/// call would be refused that comes a moment sooner than the one before it.
const PARTS: u32 = 4;
const PARTS_OF_CLIENT: u32 = 3;

/// The calls of namespaces and of their clients.
#[derive(Debug)]
pub(super) struct Shares {
    namespaces: Arc<Sources>,
    clients: Arc<Sources>,
}

/// The right to one call, given back when dropped.
#[derive(Debug)]
pub(super) struct SharePermit {
    _turns: [SourcePermit; 2],
}

impl Shares {
    /// Shares of a pace that each namespace has.
    pub(super) fn of(pace: Pace) -> Self {
        let part = Pace {
            at_once: pace.at_once * PARTS_OF_CLIENT as usize / PARTS as usize,
            burst: pace.burst * PARTS_OF_CLIENT / PARTS,
            refill: pace.refill * PARTS / PARTS_OF_CLIENT,
        };
        Self {
            namespaces: Arc::new(Sources::new(pace)),
            clients: Arc::new(Sources::new(part)),
        }
    }

    /// The right to one call of a client of a gateway, unless it or its namespace has had many lately. The client's part is asked
    /// first, so that what it is refused takes nothing from the others.
    pub(super) fn take(&self, gateway: &ServiceAccountCaller, client: &str) -> Option<SharePermit> {
        let (namespace, now) = (&gateway.namespace, Instant::now());
        // A gateway may name any client, so clients are few of each namespace.
        let client = format!("{namespace}/{}#{client}", gateway.service_account);
        let of_client = self.clients.take_of_group(namespace, &client, now)?;
        let Some(of_namespace) = self.namespaces.take(namespace, now) else {
            of_client.give_back();
            return None;
        };
        Some(SharePermit {
            _turns: [of_client, of_namespace],
        })
    }
}
