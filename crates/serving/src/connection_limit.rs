//! Permits for connections: so many in all, and so many for one peer, so that no peer takes all of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// All permits.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    total: usize,
    per_peer: usize,
    taken: Mutex<ConnectionCounts>,
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    all: usize,
    peers: HashMap<IpAddr, usize>,
}

/// One permit among the connections; free again when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    connection_limit: Arc<ConnectionLimit>,
    peer: IpAddr,
}

impl ConnectionLimit {
    pub(super) fn new(total: usize, per_peer: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            per_peer,
            taken: Mutex::default(),
        })
    }

    /// A permit for a connection of this peer, unless there is none.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionPermit> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.all >= self.total {
            return None;
        }
        let of_peer = taken.peers.entry(peer).or_default();
        if *of_peer >= self.per_peer {
            return None;
        }
        *of_peer += 1;
        taken.all += 1;
        Some(ConnectionPermit {
            connection_limit: Arc::clone(self),
            peer,
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut taken = self
            .connection_limit
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(of_peer) = taken.peers.get_mut(&self.peer) {
            *of_peer -= 1;
            if *of_peer == 0 {
                taken.peers.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_peer_takes_all_connections_and_what_ends_is_free_again() {
        let peer = |last: u8| IpAddr::from([10, 0, 0, last]);
        let connection_limit = ConnectionLimit::new(4, 3);
        let held: Vec<_> = (0..3).map(|_| connection_limit.take(peer(1)).unwrap()).collect();
        assert!(connection_limit.take(peer(1)).is_none(), "one peer's bound");
        let other = connection_limit.take(peer(2)).unwrap();
        assert!(connection_limit.take(peer(2)).is_none(), "the bound of all");
        drop(other);
        assert!(connection_limit.take(peer(3)).is_some());
        drop(held);
        let taken = connection_limit.taken.lock().unwrap();
        assert_eq!((taken.all, taken.peers.len()), (0, 0), "nothing is left behind");
    }
}
