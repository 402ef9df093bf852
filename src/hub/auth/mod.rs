//! Authentication and authorization: TokenReview, then `allowedCallers` or SubjectAccessReview, both cached briefly.

mod access;
mod access_review;
mod caller;
mod token;

pub use access::{Access, GrantedCaller};
pub use access_review::AccessReviewer;
pub use caller::{CallerError, ServiceAccountCaller};
pub use token::Authenticator;
