//! Executions as lines of a table or of a file, wherever they are kept.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use jiff::Timestamp;
use knack_registry::{Execution, Status};
use knack_skill::names;
use rustix::fs::OFlags;
use serde::Deserialize;

use super::terminal;

/// Characters of an error in a line of the table.
const ERROR_MAX: usize = 60;

/// The columns of an execution in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) id: String,
    /// Unix time in microseconds.
    pub(super) created: i64,
    caller: String,
    status: Status,
    took_ms: Option<u64>,
    skill: Option<RowSkill>,
    tool: String,
    /// The last line of it.
    error: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct RowSkill {
    id: String,
    name: String,
    version: Option<String>,
}

/// An execution as the API shows it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShownExecution {
    id: String,
    created_at: Timestamp,
    api_key_id: String,
    status: Status,
    duration_ms: Option<u64>,
    skill_id: Option<String>,
    skill_name: Option<String>,
    skill_version: Option<String>,
    tool: String,
    error_message: Option<String>,
}

/// Which executions are meant.
#[derive(Debug, Clone, Default)]
pub(super) struct Filter {
    /// Only executions from this time on, Unix time in microseconds.
    pub(super) since: Option<i64>,
    /// Only executions of this skill: its name, `name@version`, or the id of its row.
    pub(super) skill: Option<String>,
    pub(super) status: Option<Status>,
}

impl Filter {
    pub(super) fn takes(&self, row: &Row) -> bool {
        let is_of = |wanted: &String| {
            let skill = row.skill.as_ref();
            skill.is_some_and(|skill| {
                skill.id == *wanted
                    || skill.name == *wanted
                    || skill.shown() == *wanted
                    // The name in the form that an install writes.
                    || names::as_installed(wanted).as_ref() == Some(&skill.name)
            })
        };
        self.since.is_none_or(|since| row.created >= since)
            && self.status.is_none_or(|status| status == row.status)
            && self.skill.as_ref().is_none_or(is_of)
    }
}

impl RowSkill {
    fn shown(&self) -> String {
        match &self.version {
            Some(version) => format!("{}@{version}", self.name),
            None => self.name.clone(),
        }
    }
}

impl Row {
    /// The row of an execution in a folder.
    pub(super) fn of(execution: &Execution) -> Self {
        Self {
            id: execution.id.clone(),
            created: execution.created,
            caller: execution.caller.to_string(),
            status: execution.status,
            took_ms: execution.duration_ms,
            skill: execution.skill.as_ref().map(|skill| RowSkill {
                id: skill.id.clone(),
                name: skill.name.clone(),
                version: skill.version.clone(),
            }),
            tool: execution.tool.clone(),
            error: last_line(execution.error.as_deref()),
        }
    }

    /// Reads a row from the JSON of the API.
    pub(super) fn of_json(json: &str) -> serde_json::Result<Self> {
        let shown: ShownExecution = serde_json::from_str(json)?;
        let skill = shown.skill_name.map(|name| RowSkill {
            id: shown.skill_id.unwrap_or_default(),
            name,
            version: shown.skill_version,
        });
        Ok(Self {
            id: shown.id,
            created: shown.created_at.as_microsecond(),
            caller: shown.api_key_id,
            status: shown.status,
            took_ms: shown.duration_ms,
            skill,
            tool: shown.tool,
            error: last_line(shown.error_message.as_deref()),
        })
    }

    fn skill(&self) -> String {
        self.skill.as_ref().map_or_else(|| "-".to_owned(), RowSkill::shown)
    }
}

fn last_line(error: Option<&str>) -> String {
    let mut lines = error.unwrap_or_default().lines();
    let last = lines.rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    last.chars().take(ERROR_MAX).collect()
}

/// The table of executions, in the order given.
pub(super) fn table(rows: &[Row]) -> String {
    let names: Vec<String> = rows.iter().map(Row::skill).collect();
    let width = |texts: &mut dyn Iterator<Item = usize>, head: &str| texts.max().unwrap_or(0).max(head.len());
    let skills = width(&mut names.iter().map(|name| name.chars().count()), "SKILL");
    let tools = width(&mut rows.iter().map(|one| one.tool.chars().count()), "TOOL");
    let mut out = format!(
        "{:<20}  {:<36}  {:<8}  {:<7}  {:>8}  {:<skills$}  {:<tools$}  ERROR\n",
        "CREATED", "ID", "CALLER", "STATUS", "MS", "SKILL", "TOOL"
    );
    for (row, name) in rows.iter().zip(&names) {
        let created = Timestamp::from_microsecond(row.created).unwrap_or_default();
        let took = row.took_ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string());
        let caller: String = row.caller.chars().take(8).collect();
        let _ = writeln!(
            out,
            "{:<20}  {:<36}  {caller:<8}  {:<7}  {took:>8}  {name:<skills$}  {:<tools$}  {}",
            created.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            row.id,
            row.status.word(),
            row.tool,
            row.error,
        );
    }
    out
}

/// Prints executions, the oldest first.
pub(super) fn print(rows: &[Row]) {
    if rows.is_empty() {
        terminal::note("no execution");
    } else {
        terminal::line(table(rows).trim_end());
    }
}

/// A file that others cannot read.
pub(super) fn created(file: &Path) -> std::io::Result<File> {
    create(file, OFlags::empty())
}

/// A file that others cannot read, of a name that no person chose: a link is not followed.
pub(super) fn created_beside(file: &Path) -> std::io::Result<File> {
    create(file, OFlags::NOFOLLOW)
}

fn create(file: &Path, flags: OFlags) -> std::io::Result<File> {
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(file)?;
    opened.set_permissions(Permissions::from_mode(0o600))?;
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use knack_registry::Owner;
    use serde_json::json;

    use super::*;

    fn execution() -> Execution {
        let execution = json!({
            "id": "a", "caller": Owner::from([1; 32]), "tool": "t", "request": "r", "input": {}, "output": null,
            "skill": {"id": "skill_knack_1", "name": "echo", "version": "1.0.0", "digest": "d"},
            "status": "error", "error": "one\ntwo\n", "durationMs": 5, "created": 1_700_000_000_000_000_i64,
        });
        serde_json::from_value(execution).unwrap()
    }

    #[test]
    fn an_execution_is_the_same_line_from_a_folder_and_from_the_api() {
        let execution = execution();
        let row = Row::of(&execution);
        assert_eq!(Row::of_json(&execution.shown().to_string()).unwrap(), row);
        assert!(table(&[row]).contains("echo@1.0.0  t     two"));
        let code = Execution {
            skill: None,
            ..execution
        };
        assert_eq!(Row::of_json(&code.shown().to_string()).unwrap(), Row::of(&code));
    }

    #[test]
    fn filters_take_what_they_say() {
        let row = Row::of(&execution());
        let skill = |name: &str| Filter {
            skill: Some(name.to_owned()),
            ..Filter::default()
        };
        for (filter, expected) in [
            (Filter::default(), true),
            (skill("echo"), true),
            (skill("echo@1.0.0"), true),
            (skill("Echo!"), true),
            (skill("skill_knack_1"), true),
            (skill("echo@2"), false),
            (
                Filter {
                    since: Some(1_700_000_000_000_000),
                    ..Filter::default()
                },
                true,
            ),
            (
                Filter {
                    since: Some(1_700_000_000_000_001),
                    ..Filter::default()
                },
                false,
            ),
            (
                Filter {
                    status: Some(Status::Error),
                    ..Filter::default()
                },
                true,
            ),
            (
                Filter {
                    status: Some(Status::Success),
                    ..Filter::default()
                },
                false,
            ),
        ] {
            assert_eq!(filter.takes(&row), expected, "{filter:?}");
        }
    }
}
