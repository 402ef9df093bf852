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
#[cfg(test)]
mod risk_tests;
mod run;
mod staging;
#[cfg(test)]
mod tests;
mod tool_run;
mod types;
mod visible;

pub use load::reload;
pub use resolve::{aliases, owner, resolve};
pub use run::LITELLM_TIMEOUT_SECONDS;
pub use staging::{ATTACHED, INPUTS, SKILLS, below_inputs, collide, is_below_inputs, is_below_skills, is_stageable};
pub use tool_run::grantable_env;
pub use types::ToolRun;
pub use types::{
    CallContext, Cwd, Decision, End, Language, LoadReference, Mount, Outcome, OutputFile, Program, Render, RunSpec,
    ShownEnd, ShownResult, Validate,
};

use crate::model::Packages;
use crate::texts;

/// Makes the model-facing text of a run's outcome, in the form of the tool that asked for it.
pub fn render(spec: &RunSpec, outcome: &Outcome) -> String {
    let text = match spec.render {
        Render::Code => texts::code_result(outcome),
        Render::Declared => texts::declared_result(outcome),
        Render::Function { retryable } => texts::function_result(outcome, retryable),
        Render::Litellm => texts::litellm_result(outcome),
    };
    let refused = || {
        failed(outcome)
            .then(|| texts::refused_by_sandbox(&outcome.stderr))
            .flatten()
    };
    match missing_module(spec, outcome).or_else(|| refused().map(str::to_owned)) {
        Some(more) => format!("{text}\n{more}"),
        None => text,
    }
}

/// The packages of a skill that is not mounted.
static NONE: Packages = Packages {
    python: Vec::new(),
    node: Vec::new(),
};

/// The name that a mounted skill is called by, and its packages.
fn of_mount(mount: &Mount) -> (&str, &Packages) {
    let handle = mount.path.rsplit('/').next().unwrap_or_default();
    (handle, &mount.skill.packages)
}

/// Whether the program ended by itself, with an error.
fn failed(outcome: &Outcome) -> bool {
    matches!(outcome.end, End::Exit(code) if code != 0)
}

/// What to say of a module that the run lacked.
fn missing_module(spec: &RunSpec, outcome: &Outcome) -> Option<String> {
    if !failed(outcome) {
        return None;
    }
    let mounts: Vec<(&str, &Packages)> = spec.mounts.iter().map(of_mount).collect();
    let named = spec.skill.as_ref().map(|id| {
        let mount = spec.mounts.iter().find(|mount| mount.skill.id == *id);
        mount.map_or((id.name.as_str(), &NONE), of_mount)
    });
    texts::missing_module(&outcome.stderr, named, &mounts)
}

/// Whether an outcome is an error result where the format has a mark for that.
pub fn is_error(outcome: &Outcome) -> bool {
    outcome.end != End::Exit(0)
}
