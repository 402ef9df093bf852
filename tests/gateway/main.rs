//! The gateway over real HTTP, with the strict scripted provider behind it and the real sandbox beside it.

mod catalog;
mod clients;
mod files;
mod injection;
mod loops;
mod refusals;
#[path = "../support/runner.rs"]
#[allow(dead_code, reason = "shared with other test binaries, which use other parts of it")]
mod runner;
mod support;
mod upstreams;
