//! Values of executions as the lines of the hub's API, and back: for the hub, and for the executor that asks it.

mod error;
mod frames;
mod request;

pub use error::{error_of_refusal, refusal_of_error};
pub use frames::{CollectStep, Collector, result_frames, state_of_record};
pub use request::limits_from;
pub(crate) use request::post_of_request;
