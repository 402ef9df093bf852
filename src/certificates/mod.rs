//! The TLS identities of the hub and of the webhook that injects sidecars: made, published and replaced without anybody's help.
//!
//! ```text
//! Secret knack-hub-tls ◀── task ──▶ ConfigMap knack-hub-ca        nothing ─▶ create ─▶ active
//!   tls.crt tls.key (hub)             ca.crt (gateways)           2/3 of its life ─▶ prepare: the next authority is published
//!   state.json                                                    an hour later ─▶ activate: the next pair serves
//!                                                                 an hour later ─▶ retire: the old authority is dropped
//! ```
//!
//! The webhook has the same in the Secret `knack-webhook-tls`; its authorities stand in the `caBundle` of the
//! MutatingWebhookConfiguration, since the API server is its only client.
//!
//! Every serving certificate has its own authority, whose key is discarded as soon as it has signed: no authority key
//! is stored that could be stolen. The new authority is published an hour before it is used and the old one stays for
//! an hour after, so every gateway trusts the certificate that it is shown ([`state::OVERLAP`]).
//!
//! The Secret `knack-hub-journal` holds the key from which all replicas derive the keys of journals. It is created once
//! and never replaced, also where cert-manager issues the certificates.
//!
//! [`state`] decides, [`issue`] makes keys, [`task`] calls the API server, [`publish`] writes what clients trust. A Secret that another program
//! fills (cert-manager) is not written; its `ca.crt` is published.

pub mod issue;
mod key;
mod objects;
mod publish;
pub mod state;
pub mod task;

pub use issue::{IssueError, issue};
pub(crate) use key::{KeyError, certified_key};
pub use publish::Publication;
pub use state::{Due, Pair, State};
pub use task::{CertificateTask, run};
