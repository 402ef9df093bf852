//! One conversation: frames in, one execution, frames out.
//!
//! ```text
//! stdin ─▶ Decoder ─▶ Session ─▶ OutQueue ─▶ stdout        one thread, one poll loop:
//!                      │   ▲                                a child that floods, hangs or dies
//!               payload▼   │Capture                         cannot stop the deadline
//!                     locked child
//! ```

mod bounds;
mod capture;
mod ending;
mod event_loop;
mod memory;
mod once;
mod queue;
mod resolve;
mod run;
mod session;
mod setup;
mod stop;
mod watch;

pub use event_loop::{serve, serve_on};
pub use once::is_first_of_pod;
