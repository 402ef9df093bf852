//! Places for connections: so many in all, and so many for one peer, so that no peer takes all of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// All places.
#[derive(Debug)]
pub(super) struct Places {
    total: usize,
    per_peer: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    peers: HashMap<IpAddr, usize>,
}

/// One place among the connections; free again when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    places: Arc<Places>,
    peer: IpAddr,
}

impl Places {
    pub(super) fn new(total: usize, per_peer: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            per_peer,
            taken: Mutex::default(),
        })
    }

    /// A place for a connection of this peer, unless there is none.
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
            places: Arc::clone(self),
            peer,
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn no_peer_takes_all_places_and_what_ends_is_free_again() {
        let peer = |last: u8| IpAddr::from([10, 0, 0, last]);
        let places = Places::new(4, 3);
        let held: Vec<_> = (0..3).map(|_| places.take(peer(1)).unwrap()).collect();
        assert!(places.take(peer(1)).is_none(), "one peer's bound");
        let other = places.take(peer(2)).unwrap();
        assert!(places.take(peer(2)).is_none(), "the bound of all");
        drop(other);
        assert!(places.take(peer(3)).is_some());
        drop(held);
        let taken = places.taken.lock().unwrap();
        assert_eq!((taken.all, taken.peers.len()), (0, 0), "nothing is left behind");
    }
}
