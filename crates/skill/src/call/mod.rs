//! From a model's tool call to a text or a run, and back.
//!
//! `resolve(&CallContext, wire_name, arguments) -> Option<Decision>` (`None`: the name is not ours), `render(&RunSpec, &Outcome) -> String`,
//! `reload(&LoadRecord, &Catalog) -> String`.

mod types;

pub use types::{
    CallContext, Cwd, Decision, End, Language, LoadRecord, Mount, Outcome, OutputFile, Program, Render, RunSpec,
    Validate,
};
