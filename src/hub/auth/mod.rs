//! Authentication and authorization: TokenReview, then `allowedCallers` or SubjectAccessReview, both cached briefly.

mod access;
mod cache;
mod caller;
mod rights;
mod sources;
mod token;

pub use access::{Access, Granted};
pub use caller::{Caller, CallerError};
pub use rights::Rights;
pub(crate) use sources::{Pace, Sources, Turn};
pub use token::Authenticator;
