//! The tool loop as a state machine without I/O: values in, values out.
//!
//! The caller owns sockets, sandboxes, stores and the clock. Times are durations since the request began.

mod aliases;
mod array;
mod machine;
mod refusal;
mod sorter;
mod values;

pub use machine::Drive;
pub use values::*;
