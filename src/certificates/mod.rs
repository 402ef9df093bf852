//! The hub's TLS identity: made, published and replaced without anybody's help.
//!
//! ```text
//! Secret knack-hub-tls ◀── task ──▶ ConfigMap knack-hub-ca        nothing ─▶ create ─▶ active
//!   tls.crt tls.key (hub)             ca.crt (gateways)           2/3 of its life ─▶ prepare: the next authority is published
//!   state.json                                                    an hour later ─▶ activate: the next pair serves
//!                                                                 an hour later ─▶ retire: the old authority is dropped
//! ```
//!
//! Every serving certificate has an authority of its own, whose key is thrown away as soon as it has signed: there is no
//! authority key at rest that could be stolen. Since the new authority is published an hour before it is needed and the
//! old one an hour longer, every gateway trusts what it meets ([`state::OVERLAP`]).
//!
//! Beside it stands the Secret `knack-hub-journal`, whoever makes the certificates: the key that all replicas make the keys of
//! journals from. It is made once and never replaced.
//!
//! [`state`] decides, [`issue`] makes keys, [`task`] talks to the API server. A Secret that somebody else fills
//! (cert-manager) is left alone; its `ca.crt` is published.

pub mod issue;
pub mod state;
pub mod task;

pub use issue::{IssueError, issue};
pub use state::{Due, Pair, State};
pub use task::{CertificateTask, run};
