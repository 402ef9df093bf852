//! Values of executions as the lines of the hub's API, and back: for the hub, and for the executor that asks it.

mod error;
mod frames;
mod request;

pub use error::{error_of_problem, problem_of_error};
pub use frames::{Collected, Collector, result_frames, view_of_record};
pub use request::{limits_from, post_of_request};
