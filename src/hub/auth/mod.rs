//! Authentication and authorization: TokenReview, then `allowedCallers` or SubjectAccessReview, both cached briefly.

mod access;
mod caller;
mod rights;
mod token;

pub use access::{Access, Granted};
pub use caller::{Caller, CallerError};
pub use rights::Rights;
pub use token::Authenticator;
