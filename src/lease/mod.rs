//! One holder among replicas, by a `coordination.k8s.io/v1` Lease: the controller's leader, the owner of a runtime.
//!
//! ```text
//! let (renewing, claim) = Keeper::start(config)?.keep(settings, shutdown);   // acquires, renews, gives up, acquires again;
//!                                                                             // releases at shutdown
//! claim.borrow().is_mine(Instant::now())      // a monotonic clock decides: a holder that cannot renew stops by itself
//! ```
//! Clocks of replicas are never compared: an observer counts from when *it* last saw the Lease change.

mod decide;
mod hold;
mod keeper;
mod spread;
#[cfg(test)]
mod tests;

pub use decide::{Decision, LeaseClaim, Observed, decide};
pub use hold::{Lease, LeaseSettings, LookRequest};
pub use keeper::{Keeper, KeeperError};
pub use spread::{Peers, Spread, Turn, identity_of, preferred, replica_of};
