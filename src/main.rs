//! The `knack` binary.

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use knack::cli::{Cli, without_empty_variables};
use knack_gateway::command::{forgiving, without_unusable_variables};

fn main() -> ExitCode {
    without_unusable_variables();
    // Before anything makes a TLS client: without a default provider the first client panics.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        knack::cli::terminal::error("another TLS provider is already installed; please report this");
        return ExitCode::FAILURE;
    }
    let command = Cli::command().mut_subcommand("gateway", forgiving);
    let matches = without_empty_variables(command).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let _log = match knack_telemetry::begin_log(cli.default_log()) {
        Ok(log) => log,
        Err(error) => {
            knack::cli::terminal::error(&format!("the log cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(knack::cli::run(cli)),
        Err(error) => {
            knack::cli::terminal::error(&format!("the async runtime cannot start: {error}"));
            ExitCode::FAILURE
        }
    }
}
