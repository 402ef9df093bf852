//! Tool declarations from Python functions, decorated or typed: `knack skill schema FILE.py`, and tools of `python: FILE.py`.
//!
//! ```text
//! text ─▶ source (tree-sitter) ─▶ functions ─▶ types + docstring + flags ─▶ ToolDeclaration ─▶ JSON
//!                            └──▶ classes, constants ──┘
//! ```
//!
//! The source is read, never executed or imported: what is not a literal is reported and left at its default. A syntax
//! error is reported with its line, and the functions outside of it are still declared.
//!
//! Source of the rules: the `@skill` decorator of Tukuy (type table, required rule, docstring rule, risk rule) as its
//! documentation states them; where its code does more, the vectors of `pyschema` define the behaviour. Functions without a
//! decorator are Knack's own: their schemas have every type that JSON Schema has (`types::Table`).

mod annotation;
mod class;
mod config;
mod declaration;
mod docstring;
mod functions;
mod generate;
mod limits;
mod literal;
mod model;
mod parameter;
mod problem;
mod risk;
mod source;
mod typed;
mod types;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod typed_tests;

pub use config::{ConfigParam, ConfigScope};
pub use declaration::ToolDeclaration;
pub use docstring::parameter_descriptions;
pub use functions::read_functions;
pub use generate::{SchemaReport, generate};
pub use problem::{SchemaProblem, Severity};
pub use risk::{RiskLevel, SafetyFlags, display_name};
