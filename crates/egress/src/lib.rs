//! The address guard: which URLs of other parties a process may connect to, decided without a connection.
//!
//! Who may write a Skill must not be able to make a process connect to what only that process can reach. A URL is judged
//! twice: as it is written ([`Guard::check`]), before its name is looked up, and by the addresses of its name
//! ([`Guard::admits`]), where the connection takes them from. The look-up is the caller's.

mod guard;
mod host;
mod network;

pub use guard::{AddressRefusal, Guard};
pub use host::is_cloud_metadata;
pub use network::Network;
