//! Which skills a runtime serves, to whom, how, and why not. Pure: controller (status) and hub (catalog, admission of
//! executions) ask the same function.

mod limits;
mod select;
#[cfg(test)]
mod tests;
mod types;

pub use limits::{DEFAULT_MAX_TIMEOUT_SECONDS, DEFAULT_TIMEOUT_SECONDS, image_allowed, resources_allowed};
pub use select::select;
pub use types::{Caller, NamespaceLabels, Reason, Rejection, Scope, Selected};
