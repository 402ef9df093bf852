//! Cells, and their comparison with the checked-in table of a column.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// What the positive control showed.
pub(crate) enum Control {
    /// It works unlocked.
    OpenTo(&'static str),
    /// Neither uid nor root can do it on this kernel, so a locked run proves nothing.
    ClosedByKernel(String),
}

/// The word after `RESULT` on the last such line: `OPEN` or what stopped the attack.
pub(crate) fn outcome_of(stdout: &str) -> Option<String> {
    let line = stdout.lines().rev().find_map(|line| line.strip_prefix("RESULT "))?;
    let word = line.strip_prefix("OPEN").map_or(line.trim(), |_| "OPEN");
    Some(word.to_owned())
}

/// The outcomes that `--each` printed.
pub(crate) fn each(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("EACH "));
    lines
        .filter_map(|line| line.split_once(' '))
        .map(|(name, outcome)| {
            let outcome = outcome.strip_prefix("OPEN").map_or(outcome, |_| "OPEN");
            (name.to_owned(), outcome.to_owned())
        })
        .collect()
}

/// Prints the column and compares it with its table; false if a cell changed.
pub(crate) fn compare(column: &str, controls: &BTreeMap<String, Control>, cells: &BTreeMap<String, String>) -> bool {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/attacks/expected/{column}.json"));
    let update = std::env::var_os("KNACK_UPDATE_ATTACKS").is_some();
    let expected: BTreeMap<String, String> = std::fs::read_to_string(&path)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let mut complaints = Vec::new();
    let (mut open, mut counted) = (0, 0);
    for (name, control) in controls {
        let Some(cell) = cells.get(name).map(String::as_str) else {
            // A column may leave out what does not depend on it; its table then lacks it too.
            if expected.contains_key(name) && !update {
                complaints.push(format!("{name}: not tried"));
            }
            continue;
        };
        let control = match control {
            Control::OpenTo(who) => *who,
            Control::ClosedByKernel(errno) => {
                println!("{column:16} {name:34} closed by kernel ({errno}), not counted");
                continue;
            }
        };
        counted += 1;
        open += usize::from(cell == "OPEN");
        println!("{column:16} {name:34} {cell:12} unlocked: open to {control}");
        match (expected.get(name).map(String::as_str), cell) {
            (None, _) => complaints.push(format!("{name}: {cell}, but the table does not have it")),
            (Some("OPEN"), "OPEN") => {}
            (Some("OPEN"), closed) => {
                complaints.push(format!(
                    "{name}: newly closed ({closed}); update the table with KNACK_UPDATE_ATTACKS=1"
                ));
            }
            (Some(was), "OPEN") => complaints.push(format!("{name}: NEWLY OPEN, was {was}")),
            _ => {}
        }
    }
    println!(
        "attacks {column}: {open} open of {counted} counted, {} in all",
        controls.len()
    );
    if update {
        std::fs::write(&path, serde_json::to_string_pretty(cells).unwrap_or_default() + "\n")
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return true;
    }
    for complaint in &complaints {
        println!("FAILED attacks {column}: {complaint}");
    }
    complaints.is_empty()
}
