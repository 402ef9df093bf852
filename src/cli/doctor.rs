//! `knack doctor`: what this machine has for runs of skills, and how to get what is missing. Nothing is changed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use knack_execution::environments::Environments;
use knack_execution::interpreter::ProgramLookup;
use knack_gateway::catalog::{RuntimeSettings, SkillSource};
use knack_packages::programs::{Mention, Program, known, named};
use serde_json::{Value, json};

use super::find_sources::find_sources;
use super::{Output, programs, terminal};
use crate::dev::{DiscoveredSources, discover};
use crate::packages::{BuildError, Uv, find_npm, usable_store};

/// Arguments of `knack doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Skills whose programs to look for: skill folders, manifest files, or folders that hold either; all known programs when
    /// absent
    paths: Vec<PathBuf>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// One thing that was checked.
struct Check {
    what: String,
    is_there: bool,
    /// The place where it was found, or how to get it; one line each.
    details: Vec<String>,
}

impl Check {
    fn new(what: impl Into<String>, is_there: bool, detail: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            is_there,
            details: vec![detail.into()],
        }
    }
}

/// Checks everything. Exit code 1 if code cannot be run here, or a path cannot be read.
pub async fn doctor(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let found = if args.paths.is_empty() {
        DiscoveredSources::default()
    } else {
        find_sources(args.paths.clone(), discover).await?
    };
    let unread = found.errors().next().is_some();
    if !args.paths.is_empty() && found.skills.is_empty() && !unread {
        bail!("no skill found; name a folder with a SKILL.md or a manifest file");
    }
    let sandbox = sandbox().await;
    let can_run = sandbox.is_there;
    let mut checks = vec![sandbox];
    checks.push(check(
        "uv, which installs packages",
        Uv::find().map(|uv| uv.path().display().to_string()),
    ));
    checks.push(check(
        "npm, for knack skill lock and knack skill packages --build",
        find_npm().map(|path| path.display().to_string()),
    ));
    checks.push(check(
        "folder for packages",
        usable_store().map(|path| path.display().to_string()),
    ));
    if args.paths.is_empty() {
        checks.extend(known().map(|program| check_program(program, &programs::lookup(program.name), &[])));
    } else {
        checks.extend(of_skills(&found.skills));
    }
    match args.output {
        Output::Text => print_text(&checks),
        Output::Json => {
            let all: Vec<Value> = checks
                .iter()
                .map(|check| json!({"what": check.what, "is_there": check.is_there, "details": check.details}))
                .collect();
            terminal::line(&format!("{:#}", json!({"checks": all})));
        }
    }
    Ok(if can_run && !unread {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Opens the sandbox as `knack dev` does, without one started ahead.
async fn sandbox() -> Check {
    let settings = RuntimeSettings {
        warm_replicas: Some(0),
        ..RuntimeSettings::default()
    };
    let executor = crate::dev::local_executor(&settings, &Environments::default()).await;
    let can = executor.capabilities();
    let first = can.missing.as_ref().map(ToString::to_string);
    let mut details = vec![first.unwrap_or_else(|| "code can be run here".to_owned())];
    details.extend(can.notes);
    let languages: Vec<&str> = can.languages.iter().map(|language| language.as_str()).collect();
    let what = if languages.is_empty() {
        "sandbox".to_owned()
    } else {
        format!("sandbox, for {}", languages.join(" and "))
    };
    Check {
        what,
        is_there: can.missing.is_none(),
        details,
    }
}

fn check(what: &str, outcome: Result<String, BuildError>) -> Check {
    match outcome {
        Ok(detail) => Check::new(what, true, detail),
        Err(error) => Check::new(what, false, error.text),
    }
}

/// The programs that skills name, with the skills.
fn of_skills(found: &[SkillSource]) -> Vec<Check> {
    let mut by_name: BTreeMap<&str, (Program, Vec<String>)> = BTreeMap::new();
    for source in found {
        for Mention { program, file, line } in named(&source.files) {
            let mention = format!("named by {}: {file}:{line}", source.id.name);
            by_name
                .entry(program.name)
                .or_insert((program, Vec::new()))
                .1
                .push(mention);
        }
    }
    by_name
        .values()
        .map(|(program, named)| check_program(*program, &programs::lookup(program.name), named))
        .collect()
}

fn check_program(program: Program, lookup: &ProgramLookup, named: &[String]) -> Check {
    let mut check = match lookup {
        ProgramLookup::Here(path) => match program.unusable {
            Some(why) => {
                let text = format!("runs cannot use {}: {why}", path.display());
                Check::new(program.name, false, text)
            }
            None => Check::new(program.name, true, path.display().to_string()),
        },
        ProgramLookup::Closed(path) => {
            let text = format!(
                "runs cannot find or execute {}; install the program under /usr",
                path.display()
            );
            Check::new(program.name, false, text)
        }
        ProgramLookup::Absent => Check::new(program.name, false, program.help()),
    };
    check.details.extend_from_slice(named);
    check
}

fn print_text(checks: &[Check]) {
    for check in checks {
        let mark = if check.is_there { "ok     " } else { "MISSING" };
        let mut details = check.details.iter();
        let first = details.next().map_or(String::new(), |detail| format!(": {detail}"));
        terminal::line(&format!("{mark} {}{first}", check.what));
        for detail in details {
            terminal::line(&format!("        {detail}"));
        }
    }
    let missing = checks.iter().filter(|check| !check.is_there).count();
    terminal::line(&format!("{} of {} are installed", checks.len() - missing, checks.len()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_runs_cannot_use_is_not_here() {
        let lookup = |name: &str| ProgramLookup::Here(PathBuf::from(format!("/usr/bin/{name}")));
        for (name, is_there, detail) in [
            ("qpdf", true, "/usr/bin/qpdf"),
            ("soffice", false, "runs cannot use /usr/bin/soffice: it opens a socket"),
        ] {
            let program = known().find(|program| program.name == name).unwrap();
            let check = check_program(program, &lookup(name), &["named by a: SKILL.md:1".to_owned()]);
            assert_eq!(check.is_there, is_there, "{name}");
            assert!(check.details[0].starts_with(detail), "{:?}", check.details);
            assert_eq!(check.details[1..], ["named by a: SKILL.md:1"]);
        }
    }
}
