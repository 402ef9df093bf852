//! Which skills a runtime serves, to whom, how, and why not. Pure: controller (status) and hub (catalog, admission of
//! executions) ask the same function.

mod config;
#[cfg(test)]
mod constraint_tests;
mod declared;
mod earlier;
#[cfg(test)]
mod earlier_tests;
mod grants;
#[cfg(test)]
mod ids_tests;
mod inputs;
mod limits;
mod packages;
#[cfg(test)]
mod packages_cases_tests;
#[cfg(test)]
mod packages_tests;
mod risk;
mod select;
#[cfg(test)]
mod tests;
mod types;
mod version;
#[cfg(test)]
mod version_tests;

/// The version of the checks of skills: another version may find more in the same files, so what an earlier one checked is checked
/// again. Until then its statuses may lack fields that are not empty.
pub const JUDGE: &str = env!("CARGO_PKG_VERSION");

pub use declared::declared_packages;
pub use earlier::{EarlierState, candidates, earlier_state, in_artifact, is_chosen, retained};
pub use limits::{asked_image, over_ceiling, resources_allowed};
pub use packages::{EnvironmentRequest, PackagesVerdict, Revision, asked, counted, environment, packages, rules};
pub use select::{created, ids_of, is_shared, namespaces_reached, pin_of, reaches, select, wanted_version};
pub use types::{Audience, NamespaceLabels, Rejection, RejectionReason, Scope, Selected};
pub use version::{chosen_versions, newest_version, version_matches, version_refusal};
