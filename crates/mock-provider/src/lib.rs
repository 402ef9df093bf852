//! A scripted model behind a strict provider: the upstream of tests, demos and `knack dev --upstream mock`.
//!
//! ```text
//! request -> rules (refuse what a provider refuses) -> received (read all formats alike)
//!         -> select (turn by user text, step by round) -> completion (what the model says)
//!         -> render (body or events) -> delivery (chunks, pauses, accidents) -> bytes
//! ```
//!
//! Everything up to the delivery is a function of script and request, so one mock serves any number of parallel
//! conversations. State is kept for three things only: a number for unique ids, failures that end after some tries,
//! and the bounded log that tests read through [`MockHandle`]. It does not call a model and does not check credentials
//! beyond one fixed key. `docs/mock-provider.md` is the reference.

mod completion;
mod delivery;
mod exchange;
mod frames;
mod intake;
mod log;
mod matcher;
mod parse;
mod received;
mod render;
mod route;
mod rules;
mod script;
mod script_check;
mod select;
mod server;
pub mod signature;
mod state;
mod stored;

pub use log::{MockHandle, RecordedRequest};
pub use matcher::{Match, Matches};
pub use script::{
    Block, Call, ChatQuirks, Conditions, Delivery, Fail, FormatName, LineEnd, Pick, PickFrom, Provider, Reply, Script,
    ScriptError, Step, Turn, UsageNumbers,
};
pub use server::{Mock, MockServer, serve, spawn};
pub use state::Clock;
