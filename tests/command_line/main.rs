//! The program as a person starts it: arguments, environment, exit codes, what it prints and what it writes.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on ends by panicking"
)]

mod authorities;
mod configuration;
mod dev;
mod discovery;
mod gateway;
mod gateway_mcp;
mod grants;
mod idle_flags;
mod import_url;
mod inject;
mod lagging_replica;
mod links;
mod log;
mod mcp_replicas;
mod packages;
#[path = "../support/port.rs"]
mod port;
#[path = "../support/program.rs"]
mod program;
mod protocols;
mod proxies;
mod push;
mod registry_relay;
#[path = "../support/runner.rs"]
#[expect(dead_code, reason = "shared with other test binaries, which use other parts of it")]
mod runner;
mod saved_catalog;
mod sidecar;
mod signals;
mod skill;
mod skill_files;
mod skills_api;
mod stub_hub;
#[path = "../support/tls.rs"]
#[expect(dead_code, reason = "shared with other test binaries, which use other parts of it")]
mod tls;
mod unread_output;
mod versions;

use std::process::Output;

/// Standard output.
fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Standard error.
fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
