//! The injection of the sidecar, as a function of values: a pod and [`Parameters`] in, a pod and what was done out.
//!
//! The MutatingAdmissionPolicy of the chart (`charts/knack/templates/injection`) is this function in CEL, and must give the
//! same pod. `tests/chart/injection.py` sends the pods of `tests/pods` through the policy and compares. What is changed here is
//! changed there.
//!
//! Nothing here does I/O or knows a client of Kubernetes.

mod env;
mod inject;
pub mod names;
mod parameters;
mod redirect;
mod replace;
mod resources;
mod url;
mod workload;

pub use inject::{Injection, Outcome, inject};
pub use parameters::{Api, Parameters, ParametersError, Resources};
pub use url::is_base_url;
pub use workload::{Injected, inject_manifest};
