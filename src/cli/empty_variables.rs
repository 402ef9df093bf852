//! Variables of the environment that are set to nothing.

use clap::builder::{OsStr, Resettable};
use clap::{Arg, Command};

/// Commands of a person, by hand, in a script or in a compose file. A server of a cluster is configured by a chart: there an empty value is
/// a mistake, and an error but in sidecars.
const COMMANDS: [&str; 5] = ["dev", "doctor", "history", "skill", "trace"];

/// The command line on which an empty variable counts as absent, for these commands.
#[must_use]
pub fn without_empty_variables(command: Command) -> Command {
    COMMANDS
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, without))
}

fn without(command: Command) -> Command {
    command.mut_args(without_empty).mut_subcommands(without)
}

fn without_empty(flag: Arg) -> Arg {
    let value = flag.get_env().and_then(std::env::var_os);
    if value.is_some_and(|value| value.is_empty()) {
        flag.env(Resettable::<OsStr>::Reset)
    } else {
        flag
    }
}
