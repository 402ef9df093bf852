//! The webhook that injects sidecars where the API server cannot do it by itself (Kubernetes 1.33 to 1.35).
//!
//! ```text
//! pod ─▶ API server ── AdmissionReview ─▶ server (bounds, TLS) ─▶ review (pure) ─▶ knack_injection::inject
//!                                            ▲           ▲
//!                     Secret knack-webhook-tls           parameters.yaml, both read again while it runs
//! ```
//!
//! Every replica serves it, also one that does not lead. A call that fails leaves the pod as it is: the chart's
//! configuration says `failurePolicy: Ignore`.

mod followed;
mod review;
mod server;

pub(super) use server::Webhook;
