//! `knack history`: the executions of a registry's folder or of a cluster, as a table or as JSON lines. Of a folder it reads files
//! only, so it works beside a running `knack dev`, which is their one writer, and without one.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use knack_registry::{Status, read_folder};

use super::explicit_flags::ExplicitFlags;
use super::history_rows::{Filter, Row, created, print};
use super::history_server::{self, ServerArgs};
use super::terminal;

/// Arguments of `knack history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    typed: ExplicitFlags,
    /// Folder of uploaded skills, as given to knack dev --registry
    #[arg(long, value_name = "DIR", env = "KNACK_REGISTRY", required_unless_present = "server")]
    registry: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
    /// Only executions since then: an age (90m, 12h, 7d), a date or a time (2026-01-31, 2026-01-31T12:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Timestamp>,
    /// Only executions of this skill: its name, name@version, or the id of its row
    #[arg(long, value_name = "SKILL")]
    skill: Option<String>,
    /// Only executions of this status: pending, running, success, error or timeout
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Option<Status>,
    /// Write the executions as JSON lines, with inputs and outputs, to this file, which other users cannot read
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
}

/// Prints it, the oldest first.
pub async fn history(args: HistoryArgs) -> anyhow::Result<ExitCode> {
    let filter = Filter {
        since: args.since.map(Timestamp::as_microsecond),
        skill: args.skill,
        status: args.status,
    };
    if args.server.server.is_some() {
        args.typed.refuse(
            &["--registry"],
            "with --server, the history is read from a cluster, not from a folder",
        )?;
        return history_server::history(&args.server, &filter, args.export.as_deref()).await;
    }
    let folder = args.registry.context("--registry: name a folder, or --server")?;
    tokio::task::spawn_blocking(move || read(&folder, &filter, args.export.as_deref())).await?
}

fn read(folder: &Path, filter: &Filter, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let kept = read_folder(folder).with_context(|| {
        format!(
            "--registry {}: no history of executions found; knack dev --registry creates one",
            folder.display()
        )
    })?;
    if kept.broken > 0 {
        terminal::note(&format!("{} lines cannot be read and are left out", kept.broken));
    }
    let rows = kept.executions.iter().map(|execution| (Row::of(execution), execution));
    let (rows, meant): (Vec<Row>, Vec<_>) = rows.filter(|(row, _)| filter.takes(row)).unzip();
    if let Some(file) = file {
        let write = || {
            let mut out = BufWriter::new(created(file)?);
            for execution in &meant {
                writeln!(out, "{}", execution.shown())?;
            }
            out.flush()
        };
        write().with_context(|| format!("--export {}", file.display()))?;
        terminal::note(&format!("{} executions are in {}", meant.len(), file.display()));
    } else {
        print(&rows);
    }
    Ok(ExitCode::SUCCESS)
}

fn status(word: &str) -> Result<Status, String> {
    Status::of_word(word).ok_or_else(|| {
        let words = Status::ALL.map(Status::word).join(", ");
        format!("must be one of {words}")
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
        .ok_or_else(|| "must be an age such as 12h or 7d, a date, or a time such as 2026-01-31T12:00:00Z".to_owned())
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
