//! Who calls: identities, the check of a shared gateway's clients, and what each namespace is served.

pub mod caller;
pub mod client_auth;
pub mod secret;
pub mod tenants;
