//! The settings of a sidecar. They come from its environment only, in part from a ConfigMap of its namespace. A gateway that a person
//! starts exits at a setting that it cannot read, and says why. A sidecar that exited would keep every new pod of the namespace from
//! starting, so it ignores the setting with a warning.
//!
//! This is safe where a sidecar without the setting admits, sends and trusts no more than with it: certificate authorities are added to
//! those of the system, and keys, addresses and tools are additional ones. It is not safe for the setting that says which clients are
//! admitted, since a sidecar without it would admit everybody. A sidecar that cannot read that setting serves nobody ([`CLIENT_AUTH`]).
//! Addresses of providers are in `providers.rs`, variables of libraries in `environment.rs`.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::builder::{OsStr, Resettable};
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Args as _, Command};

use super::args::ServeArgs;

/// The variable that every sidecar has, and nothing else: the SkillRuntime of pods that name none.
const MARK: &str = "KNACK_DEFAULT_RUNTIME";
/// The arguments that the injection sets itself: with other values an application or a kubelet would not find the gateway.
const FIXED: [&str; 3] = ["listen", "metrics_listen", "default_runtime"];
/// The flag that names a SkillRuntime.
const RUNTIME: &str = "runtime";
/// The flag that says which clients are admitted, and its variable.
const CLIENT_AUTH: (&str, &str) = ("client_auth", "KNACK_CLIENT_AUTH");
/// A flag that only goes with another one, [`KEYS_FOLDER`].
const WHOLE_ACCOUNT: &str = "provider_keys_whole_account";
const KEYS_FOLDER: &str = "--provider-keys-dir";

/// Words that a sidecar, and the probe beside it, may be started with: the probe reads the same variables.
const COMMANDS: [&str; 2] = ["gateway", "health"];

/// Whether this process is a sidecar, or its probe: it has the mark of one, and no flags.
pub(super) fn is_sidecar() -> bool {
    let mut words = std::env::args_os().skip(1);
    let flagged = words.any(|word| !COMMANDS.iter().any(|command| word == *command));
    !flagged && std::env::var_os(MARK).is_some()
}

/// A setting that is not used.
#[derive(Debug)]
struct Unread {
    /// Its id among the flags.
    id: String,
    /// Its variable, and why it is not used; `None` for an empty one, which is as good as absent.
    why: Option<String>,
}

/// The flags of a gateway, without the variables that this process cannot read if it is a sidecar.
#[must_use]
pub fn forgiving(command: Command) -> Command {
    if !is_sidecar() {
        return command;
    }
    unread()
        .into_iter()
        .fold(command, |command, unread| without_variable(command, &unread.id))
}

fn without_variable(command: Command, id: &str) -> Command {
    command.mut_arg(id, |flag| flag.env(Resettable::<OsStr>::Reset))
}

/// How a sidecar starts with settings that it cannot read; any other gateway does not start with them.
pub(super) struct SidecarSettings {
    /// Whether the SkillRuntime is known: none but the one that is named is served.
    pub(super) follows: bool,
    /// The variable that says who may come in, if it cannot be read: then nobody may.
    pub(super) closed_by: Option<&'static str>,
}

impl SidecarSettings {
    /// Reads them, and warns of what [`forgiving`] has left out.
    pub(super) fn read() -> Self {
        let unread = if is_sidecar() { unread() } else { Vec::new() };
        for why in unread.iter().filter_map(|unread| unread.why.as_ref()) {
            tracing::warn!("{why}");
        }
        let is_wrong = |id: &str| unread.iter().any(|unread| unread.id == id && unread.why.is_some());
        Self {
            follows: !is_wrong(RUNTIME),
            closed_by: is_wrong(CLIENT_AUTH.0).then_some(CLIENT_AUTH.1),
        }
    }
}

/// What follows where a setting cannot be read, as a part of the warning.
fn consequence(id: &str) -> &'static str {
    match id {
        RUNTIME => ", so there is no catalog",
        _ if id == CLIENT_AUTH.0 => ", so every request is answered with 502",
        _ => " and is ignored",
    }
}

/// The settings of the environment that cannot be read.
fn unread() -> Vec<Unread> {
    unread_of(ServeArgs::augment_args(Command::new("gateway").no_binary_name(true)))
}

fn unread_of(mut command: Command) -> Vec<Unread> {
    let mut found: Vec<Unread> = command.get_arguments().filter_map(unread_text).collect();
    for unread in &found {
        command = without_variable(command, &unread.id);
    }
    // At most once for each flag: each turn takes the variable of one away.
    while let Err(error) = command.clone().try_get_matches_from(Vec::<OsString>::new()) {
        let Some(id) = culprit(&command, &error) else { break };
        let name = variable(&command, &id);
        let text = error.to_string();
        let why = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        found.push(Unread {
            why: Some(format!("{name} cannot be read{}: {why}", consequence(&id))),
            id: id.clone(),
        });
        command = without_variable(command, &id);
    }
    found
}

/// A variable that is empty, or no text at all.
fn unread_text(flag: &clap::Arg) -> Option<Unread> {
    let (id, name) = (flag.get_id().as_str(), flag.get_env()?);
    let value = std::env::var_os(name)?;
    let why = match value.to_str() {
        Some("") => None,
        Some(_) => return None,
        None => Some(format!("{} is not UTF-8{}", name.display(), consequence(id))),
    };
    (!FIXED.contains(&id)).then(|| Unread { id: id.to_owned(), why })
}

/// The flag whose variable an error is about, if it can be ignored.
fn culprit(command: &Command, error: &Error) -> Option<String> {
    let named: BTreeSet<&str> = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(one) => [one.as_str()].into(),
        ContextValue::Strings(all) => all.iter().map(String::as_str).collect(),
        _ => return None,
    };
    let is_named = |long: &str| named.iter().any(|one| one.split([' ', '=']).next() == Some(long));
    let mut flags = command.get_arguments();
    let found = if error.kind() == ErrorKind::MissingRequiredArgument {
        is_named(KEYS_FOLDER).then(|| flags.find(|flag| flag.get_id() == WHOLE_ACCOUNT))?
    } else {
        flags.find(|flag| flag.get_long().is_some_and(|long| is_named(&format!("--{long}"))))
    };
    let found = found.filter(|flag| flag.get_env().is_some())?;
    let id = found.get_id().as_str();
    (!FIXED.contains(&id)).then(|| id.to_owned())
}

fn variable(command: &Command, id: &str) -> String {
    let mut flags = command.get_arguments();
    let flag = flags.find(|flag| flag.get_id() == id);
    let name = flag.and_then(clap::Arg::get_env).unwrap_or_default();
    name.display().to_string()
}

/// The value of a setting. A sidecar ignores a setting that cannot be used, and logs a warning with the name of its variable.
pub(super) fn or_ignored<T>(
    variable: &str,
    result: anyhow::Result<T>,
    otherwise: impl FnOnce() -> T,
) -> anyhow::Result<T> {
    match result {
        Err(error) if is_sidecar() => {
            tracing::warn!("{variable} cannot be used and is ignored: {error:#}");
            Ok(otherwise())
        }
        result => result,
    }
}
