//! The gateway over real HTTP, with the strict scripted provider behind it and the real sandbox beside it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on ends by panicking"
)]

#[path = "../support/background.rs"]
mod background;
mod bounds;
mod catalog;
#[path = "../support/cgroup.rs"]
#[expect(dead_code, reason = "shared with other test binaries, which use other parts of it")]
mod cgroup;
mod client_tokens;
mod clients;
mod clocks;
mod code_limits;
mod code_tools;
mod compatible;
mod containers;
mod conversations;
mod files;
mod filled;
mod floods;
mod formats;
mod functions;
mod garbled;
mod gemini_code;
mod gemini_forms;
mod history_server;
mod in_background;
mod injection;
mod kept_files;
mod litellm;
mod loops;
mod mcp;
mod memory;
mod misplaced;
mod named;
mod observed;
mod operator;
#[path = "../support/port.rs"]
mod port;
mod realtime;
mod refusals;
#[path = "../support/released.rs"]
mod released;
mod repeats;
mod rollout;
#[path = "../support/runner.rs"]
#[expect(dead_code, reason = "shared with other test binaries, which use other parts of it")]
mod runner;
mod schemas;
mod shown_runs;
#[path = "../support/skip.rs"]
mod skip;
mod stored;
mod stored_bounds;
mod stored_chat;
mod stored_running;
mod stored_runs;
mod stored_types;
mod support;
mod talk;
#[path = "../support/tls.rs"]
#[expect(dead_code, reason = "shared with other test binaries, which use other parts of it")]
mod tls;
mod traffic;
mod upstreams;
mod user_files;
mod whole_skills;
