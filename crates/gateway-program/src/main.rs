//! The `knack-gateway` program: `knack gateway` without the rest.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};

/// Serve applications in a cluster, with skills and executions from a hub.
#[derive(Debug, Parser)]
#[command(name = "knack-gateway", version, max_term_width = 120)]
struct Cli {
    #[command(flatten)]
    args: knack_gateway::command::GatewayArgs,
}

fn main() -> ExitCode {
    knack_gateway::command::without_unusable_variables();
    // Before everything that makes a TLS client: without it the first one panics.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        return failed("another TLS provider is already installed; please report this");
    }
    let matches = knack_gateway::command::forgiving(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let _log = match knack_telemetry::begin_log("info") {
        Ok(log) => log,
        Err(error) => return failed(&format!("the log cannot start: {error}")),
    };
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime
            .block_on(knack_gateway::command::gateway(cli.args, knack_mcp::router))
            .unwrap_or_else(|error| failed(&format!("{error:#}"))),
        Err(error) => failed(&format!("the async runtime cannot start: {error}")),
    }
}

fn failed(text: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {text}");
    ExitCode::FAILURE
}
