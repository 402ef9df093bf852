//! `knack history`: the executions of a registry's folder, as a table or as JSON lines. It reads files only, so it works
//! beside a running `knack dev`, which is their one writer, and without one.

use std::fmt::Write as _;
use std::fs::{OpenOptions, Permissions};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use knack_registry::{Execution, Status, read_folder};

use super::terminal;

/// Characters of an error in a line of the table.
const ERROR_MAX: usize = 60;

/// Arguments of `knack history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Folder of uploaded skills, as knack dev --registry has it
    #[arg(long, value_name = "DIR", env = "KNACK_REGISTRY")]
    registry: PathBuf,
    /// Executions since then: an age (90m, 12h, 7d), a date or a time (2026-01-31, 2026-01-31T12:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Timestamp>,
    /// Executions of this skill: its name, name@version, or the id of its row
    #[arg(long, value_name = "SKILL")]
    skill: Option<String>,
    /// Executions of this status: pending, running, success, error or timeout
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Option<Status>,
    /// Write them as JSON lines, with inputs and outputs, into this file, which others cannot read
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
}

/// Prints it, the oldest first.
pub async fn history(args: HistoryArgs) -> anyhow::Result<ExitCode> {
    tokio::task::spawn_blocking(move || read(&args)).await?
}

fn read(args: &HistoryArgs) -> anyhow::Result<ExitCode> {
    let folder = args.registry.display();
    let kept = read_folder(&args.registry).with_context(|| {
        format!("--registry {folder}: there is no history of executions; knack dev --registry makes one")
    })?;
    if kept.broken > 0 {
        terminal::note(&format!("{} lines cannot be read and are left out", kept.broken));
    }
    let meant: Vec<&Execution> = kept
        .executions
        .iter()
        .filter(|execution| takes(args, execution))
        .collect();
    if let Some(file) = &args.export {
        export(file, &meant).with_context(|| format!("--export {}", file.display()))?;
        terminal::note(&format!("{} executions are in {}", meant.len(), file.display()));
    } else if meant.is_empty() {
        terminal::note("no execution");
    } else {
        terminal::line(table(&meant).trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

fn takes(args: &HistoryArgs, execution: &Execution) -> bool {
    let is_of = |wanted: &String| {
        execution
            .skill
            .as_ref()
            .is_some_and(|skill| skill.id == *wanted || skill.name == *wanted || named(execution) == *wanted)
    };
    args.since
        .is_none_or(|since| execution.created >= since.as_microsecond())
        && args.status.is_none_or(|status| status == execution.status)
        && args.skill.as_ref().is_none_or(is_of)
}

fn named(execution: &Execution) -> String {
    match &execution.skill {
        None => "-".to_owned(),
        Some(skill) => match &skill.version {
            Some(version) => format!("{}@{version}", skill.name),
            None => skill.name.clone(),
        },
    }
}

fn table(executions: &[&Execution]) -> String {
    let names: Vec<String> = executions.iter().map(|execution| named(execution)).collect();
    let width = |texts: &mut dyn Iterator<Item = usize>, head: &str| texts.max().unwrap_or(0).max(head.len());
    let skills = width(&mut names.iter().map(|name| name.chars().count()), "SKILL");
    let tools = width(&mut executions.iter().map(|one| one.tool.chars().count()), "TOOL");
    let mut out = format!(
        "{:<20}  {:<36}  {:<8}  {:<7}  {:>8}  {:<skills$}  {:<tools$}  ERROR\n",
        "CREATED", "ID", "CALLER", "STATUS", "MS", "SKILL", "TOOL"
    );
    for (execution, name) in executions.iter().zip(&names) {
        let created = Timestamp::from_microsecond(execution.created).unwrap_or_default();
        let took = execution
            .duration_ms
            .map_or_else(|| "-".to_owned(), |ms| ms.to_string());
        let caller: String = execution.caller.as_str().chars().take(8).collect();
        let error = execution.error.as_deref().unwrap_or_default();
        let last = error.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let error: String = last.chars().take(ERROR_MAX).collect();
        let _ = writeln!(
            out,
            "{:<20}  {:<36}  {caller:<8}  {:<7}  {took:>8}  {name:<skills$}  {:<tools$}  {error}",
            created.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            execution.id,
            execution.status.word(),
            execution.tool,
        );
    }
    out
}

fn export(file: &Path, executions: &[&Execution]) -> std::io::Result<()> {
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)?;
    opened.set_permissions(Permissions::from_mode(0o600))?;
    let mut out = BufWriter::new(opened);
    for execution in executions {
        writeln!(out, "{}", execution.shown())?;
    }
    out.flush()
}

fn status(word: &str) -> Result<Status, String> {
    Status::of_word(word).ok_or_else(|| {
        let words = Status::ALL.map(Status::word).join(", ");
        format!("it is one of {words}")
    })
}

/// An age, a date or a time.
fn since(text: &str) -> Result<Timestamp, String> {
    time_at(text, Timestamp::now())
}

/// The time that a text says at a moment.
fn time_at(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let ago = |count: &str, seconds: i64| {
        let count: i64 = count.parse().ok()?;
        let age = SignedDuration::from_secs(count.checked_mul(seconds)?);
        now.checked_sub(age).ok()
    };
    let units = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];
    let age = units
        .into_iter()
        .find_map(|(unit, seconds)| ago(text.strip_suffix(unit)?, seconds));
    let day = || {
        let date: jiff::civil::Date = text.parse().ok()?;
        Some(date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    };
    let time = || text.parse::<Timestamp>().ok();
    age.or_else(time)
        .or_else(day)
        .ok_or_else(|| "it is an age such as 12h or 7d, a date, or a time such as 2026-01-31T12:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_an_age_a_date_or_a_time() {
        let now: Timestamp = "2026-02-01T00:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("2026-01-31", "2026-01-31T00:00:00Z"),
            ("2026-01-31T12:30:00Z", "2026-01-31T12:30:00Z"),
            ("2026-01-31T12:30:00+01:00", "2026-01-31T11:30:00Z"),
            ("90m", "2026-01-31T22:30:00Z"),
            ("7d", "2026-01-25T00:00:00Z"),
        ] {
            assert_eq!(time_at(text, now).unwrap().to_string(), expected);
        }
        for text in ["", "d", "x", "12", "-", "9999999999999999999d", "2026-13-01"] {
            assert!(time_at(text, now).is_err(), "{text}");
        }
    }
}
