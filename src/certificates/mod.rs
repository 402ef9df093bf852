//! The TLS identities of the hub and of the webhook that injects sidecars: made, published and replaced without anybody's help.
//!
//! ```text
//! Secret knack-root ──signs──▶ Secret knack-hub-tls ◀── task ──▶ ConfigMap knack-hub-ca
//!   root.json, ca.crt            tls.crt tls.key (hub)             ca.crt (gateways)
//!   ten years                    state.json, 90 days
//!
//! nothing ─▶ create ─▶ active
//! 2/3 of its life, or another root ─▶ prepare: the next pair is made, its root is published
//! an hour later ─▶ activate: the next pair serves
//! an hour later ─▶ retire: the root of the last pair is dropped, unless it still signs
//! ```
//!
//! The webhook has the same in the Secret `knack-webhook-tls`, signed by the same root; its authorities are in the `caBundle` of
//! the MutatingWebhookConfiguration, since the API server is its only client.
//!
//! A renewed certificate changes nothing that clients trust. A root that is deleted, or has a year left, is followed by another
//! one, which is published at once and an hour before it is needed; the last one stays for an hour after, so every gateway
//! trusts the certificate that it is shown ([`state::OVERLAP`]). Without its Secret a root is out of use after two hours: so
//! one whose key was stolen is replaced by deleting the Secret.
//!
//! The Secret `knack-hub-journal` holds the key from which all replicas derive the keys of journals. It is created once
//! and never replaced, also where cert-manager issues the certificates.
//!
//! [`state`] decides, [`issue`] makes keys, [`task`] calls the API server, [`publish`] writes what clients trust, [`files`] reads what a listener shows. A Secret that another program
//! fills (cert-manager) is not written; its `ca.crt` is published.

mod files;
pub mod issue;
mod key;
mod objects;
mod publish;
mod root;
mod root_secret;
mod served;
pub mod state;
pub mod task;

pub use files::Certificate;
pub use issue::{IssueError, issue, issue_root};
pub(crate) use key::certified_key;
pub use publish::Publication;
pub use root::Root;
pub(crate) use served::ServedCertificate;
pub use state::{CertificateState, CertificateStep, Pair};
pub use task::{CertificateTask, run};
