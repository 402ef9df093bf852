//! One holder among replicas, by a `coordination.k8s.io/v1` Lease: the controller's leader, the owner of a runtime.
//!
//! ```text
//! let (renewing, holder) = Keeper::start(config)?.keep(settings, shutdown);   // acquires, renews, gives up, acquires again;
//!                                                                             // releases at shutdown
//! holder.borrow().is_mine(Instant::now())      // a monotonic clock decides: a holder that cannot renew stops by itself
//! LeaseHolder::lost(holder).await               // what it does for the others is dropped with this
//! ```
//! Clocks of replicas are never compared: an observer counts from when *it* last saw the Lease change.
//!
//! What happens when a Lease is lost: the controller ends its process (`src/controller/process.rs`); the hub ends its term as owner
//! of the runtime and acquires again (`src/jobs/ownership/mod.rs`).

mod decide;
mod hold;
mod holder;
mod keeper;
mod spread;
#[cfg(test)]
mod tests;

pub use decide::{ForeignLease, LeaseStep, decide};
pub use hold::{Lease, LeaseSettings, ReadRequest};
pub use holder::LeaseHolder;
pub use keeper::{Keeper, KeeperError};
pub use spread::{Peers, Precedence, Spread, identity_of, preferred, replica_of};
