//! Callers of hub and registry: TokenReview says which ServiceAccount a caller is, SubjectAccessReview what it may do. Both are cached
//! briefly.

mod access_review;
mod caller;
mod token;

pub use access_review::AccessReviewer;
pub use caller::{CallerError, ServiceAccountCaller};
pub use token::Authenticator;
