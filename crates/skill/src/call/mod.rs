//! From a model's tool call to a text or a run, and from a run's outcome back to a text.
//!
//! ```text
//! wire name + arguments -> resolve -> Text                 load_skill, errors
//!                                  -> Run(RunSpec) -> (executor) -> Outcome -> render -> text
//! ```
//! Names are led back by the request's own table only. Nothing here runs anything, and no schema is checked here but by the closure given.

mod arguments;
mod command;
mod load;
mod mounts;
mod resolve;
mod run;
mod staging;
#[cfg(test)]
mod tests;
mod tool_run;
mod types;

pub use load::reload;
pub use resolve::{owner, resolve};
pub use run::LITELLM_TIMEOUT_SECONDS;
pub use staging::{INPUTS, below_inputs, is_below_inputs, is_stageable};
pub use tool_run::ToolRun;
pub use types::{
    CallContext, Cwd, Decision, End, Language, LoadRecord, Mount, Outcome, OutputFile, Program, Render, RunSpec,
    Validate,
};

use crate::texts;

/// Tells a run's outcome to the model, in the words of the tool that asked for it.
pub fn render(spec: &RunSpec, outcome: &Outcome) -> String {
    match spec.render {
        Render::Code => texts::code_result(outcome),
        Render::Declared => texts::declared_result(outcome),
        Render::Litellm => texts::litellm_result(outcome),
    }
}

/// Whether an outcome is an error result where the format has a mark for that.
pub fn is_error(outcome: &Outcome) -> bool {
    outcome.end != End::Exit(0)
}

/// Ends the result of the last allowed round, so that the model answers instead of calling once more.
pub fn last_round(result: &str) -> String {
    format!("{result}\n{}", texts::LAST_CALL)
}
