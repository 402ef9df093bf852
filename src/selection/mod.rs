//! Which skills a runtime serves, to whom, how, and why not. Pure: controller (status) and hub (catalog, admission of
//! executions) ask the same function.

mod inputs;
mod limits;
mod names;
mod select;
#[cfg(test)]
mod tests;
mod types;

pub use limits::{DEFAULT_MAX_TIMEOUT_SECONDS, DEFAULT_TIMEOUT_SECONDS, image_allowed, resources_allowed};
pub use names::name_owner;
pub use select::{namespaces_reached, reaches, select};
pub use types::{Caller, NamespaceLabels, Reason, Rejection, Scope, Selected};
