//! The flags that are on the command line, as opposed to defaults and variables of the environment.
//!
//! A flag that has no effect beside another one is refused by its name. The environment variable of the same flag is accepted: it
//! is set for every command.

use anyhow::bail;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

/// The flags on the command line. It must be the first field of its arguments: those after it take their values away.
#[derive(Debug, Default)]
pub(super) struct ExplicitFlags(Vec<String>);

impl ExplicitFlags {
    /// An error if one of these flags is on the command line; `why` says what holds instead.
    pub(super) fn refuse(&self, flags: &[&str], why: &str) -> anyhow::Result<()> {
        let is_typed = |flag: &&&str| self.0.iter().any(|typed| typed == **flag);
        match flags.iter().find(is_typed) {
            Some(flag) => bail!("{flag}: {why}"),
            None => Ok(()),
        }
    }
}

impl FromArgMatches for ExplicitFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let ids = matches.ids().map(clap::Id::as_str);
        let typed = ids.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine));
        // An id is the name of a field.
        let flags = typed.map(|id| format!("--{}", id.replace('_', "-")));
        Ok(Self(flags.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ExplicitFlags {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}
