//! HTTP clients of this program: which certificate authorities they trust, and how much of an answer they read.
//!
//! ```text
//! --ca-file, --ca-pem ─▶ CaArgs ─▶ Roots ─┬─▶ http()         clients of this program: the system's authorities and these
//!                                         └─▶ with_system()     the same as one file, for a program that takes one alone
//! reqwest::Error ─▶ CertificateRefusal          what is wrong with a certificate, in words that name no address
//! reqwest::Response ─▶ read_answer()              the body of an answer, within a bound
//! ```
//!
//! Connections to Knack's own hub and registry are not of these: they trust exactly the authorities of `--hub-ca`.

#![forbid(unsafe_code)]

mod answer;
mod args;
mod refusal;
mod roots;

pub use answer::{AnswerError, read_answer};
pub use args::CaArgs;
pub use refusal::CertificateRefusal;
pub use roots::{CA_FILE_MAX_BYTES, CaError, Roots, has_system_authorities};
