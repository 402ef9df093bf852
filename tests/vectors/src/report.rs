//! Runs cases and reports which hold.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::case::{Case, Strength, VectorFile};
use crate::exceptions::Exceptions;
use crate::matching;
use crate::reach::Reach;
use crate::registry::Registry;

/// What became of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// As expected.
    Holds,
    /// Not as expected, and the list says why. Grouped by reason in the report.
    Excepted(String),
    /// Not as expected: an odd upstream behaviour outside the copies, which no rule demands and no list can name.
    ForeignQuirk(String),
    /// Not as expected and not listed: a failure.
    Fails(String),
    /// As expected, but listed: a failure, since the list would lie.
    Stale,
}

/// The verdicts of one file, in case order.
#[derive(Debug)]
struct FileReport {
    stem: String,
    verdicts: Vec<(Case, Verdict)>,
}

/// The verdicts of all files.
#[derive(Debug)]
pub(crate) struct Report {
    files: Vec<FileReport>,
    reach: Reach,
}

impl Report {
    /// Runs every case.
    pub(crate) fn of(files: &[VectorFile], registry: &Registry, exceptions: &Exceptions, reach: Reach) -> Self {
        let files = files.iter().map(|file| FileReport {
            stem: file.stem.clone(),
            verdicts: file
                .cases
                .iter()
                .map(|case| (case.clone(), verdict(&file.stem, case, registry, exceptions)))
                .collect(),
        });
        Self {
            files: files.collect(),
            reach,
        }
    }

    /// Whether nothing failed that is not listed and nothing listed holds.
    pub(crate) fn ok(&self) -> bool {
        self.count(|verdict| matches!(verdict, Verdict::Fails(_) | Verdict::Stale)) == 0
    }

    fn count(&self, wanted: impl Fn(&Verdict) -> bool) -> usize {
        self.files
            .iter()
            .flat_map(|file| &file.verdicts)
            .filter(|(_, verdict)| wanted(verdict))
            .count()
    }

    /// The file and op of every case that holds and whose op a program reaches, or none does.
    fn holding(&self, is_reachable: bool) -> Vec<(&str, &str)> {
        let cases = self
            .files
            .iter()
            .flat_map(|file| file.verdicts.iter().map(move |(case, verdict)| (file, case, verdict)));
        cases
            .filter(|(_, _, verdict)| **verdict == Verdict::Holds)
            .map(|(file, case, _)| (file.stem.as_str(), case.op()))
            .filter(|(file, op)| self.reach.is_reachable(file, op) == Some(is_reachable))
            .collect()
    }

    /// Prints one line per file, the ids that do not hold, and the counts.
    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        for file in &self.files {
            print_file(file, out)?;
        }
        let excepted = self.count(|verdict| matches!(verdict, Verdict::Excepted(_)));
        let foreign = self.count(|verdict| matches!(verdict, Verdict::ForeignQuirk(_)));
        writeln!(
            out,
            "excepted by exceptions.json: {excepted}; quirks outside the copies that do not hold: {foreign}"
        )?;
        let (reachable, value_only) = (self.holding(true), self.holding(false));
        writeln!(
            out,
            "reachable, a program of the product does it: {} cases hold",
            reachable.len()
        )?;
        let missing: Vec<&str> = self.reach.missing(value_only.iter().copied()).into_iter().collect();
        writeln!(
            out,
            "value only, tests alone call {}: {} cases hold",
            missing.join(", "),
            value_only.len()
        )?;
        let passed = self.count(|verdict| *verdict == Verdict::Holds);
        let failed = self.count(|verdict| matches!(verdict, Verdict::Fails(_) | Verdict::Stale));
        writeln!(out, "{passed} passed, {failed} failed")
    }
}

fn verdict(stem: &str, case: &Case, registry: &Registry, exceptions: &Exceptions) -> Verdict {
    let named = exceptions.names(stem, case);
    match (run(stem, case, registry), exceptions.reason(stem, case)) {
        (Ok(()), _) if named => Verdict::Stale,
        (Ok(()), _) => Verdict::Holds,
        (Err(_), Some(reason)) => Verdict::Excepted(reason.to_owned()),
        (Err(why), None) if case.strength == Strength::Quirk && !exceptions.is_copy(&case.id) => {
            Verdict::ForeignQuirk(why)
        }
        (Err(why), None) => Verdict::Fails(why),
    }
}

fn run(stem: &str, case: &Case, registry: &Registry) -> Result<(), String> {
    let op = registry
        .get(stem, case.op())
        .ok_or_else(|| format!("no adapter for op {}", case.op()))?;
    // A panic in one adapter must not hide the other cases.
    let outcome = catch_unwind(AssertUnwindSafe(|| (op.run)(&case.input))).map_err(|_| "panicked".to_owned())?;
    matching::check(op.compare, &case.expected, &outcome)
}

fn print_file(file: &FileReport, out: &mut impl Write) -> io::Result<()> {
    let holding = file
        .verdicts
        .iter()
        .filter(|(_, verdict)| matches!(verdict, Verdict::Holds | Verdict::Stale))
        .count();
    writeln!(out, "vectors {} {holding}/{}", file.stem, file.verdicts.len())?;
    let mut excepted: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (case, verdict) in &file.verdicts {
        let (id, strength) = (&case.id, format!("{:?}", case.strength).to_lowercase());
        match verdict {
            Verdict::Holds => {}
            Verdict::Excepted(reason) => excepted.entry(reason).or_default().push(id),
            Verdict::ForeignQuirk(why) => writeln!(out, "  {id} ({strength}, not demanded) {}: {why}", case.op())?,
            Verdict::Fails(why) => writeln!(out, "  {id} ({strength}) {}: {why}", case.op())?,
            Verdict::Stale => writeln!(out, "  {id} ({strength}) holds but is in exceptions.json: take it out")?,
        }
    }
    for (reason, ids) in excepted {
        writeln!(out, "  not followed: {} [{reason}]", ids.join(", "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    use serde_json::json;

    use super::*;

    static NUMBER: AtomicU64 = AtomicU64::new(0);

    /// Runs one case of `template/substitute` under a list of exceptions.
    fn judge(id: &str, strength: Strength, expected: &str, list: &str) -> Verdict {
        let input = json!({"op": "substitute", "prompt": "{{a}}", "inputs": [{"name": "a"}], "provided": {"a": "x"}});
        let case = |id: &str| Case {
            id: id.to_owned(),
            strength,
            input: input.clone(),
            expected: json!(expected),
        };
        let copies = [VectorFile {
            stem: "template".to_owned(),
            cases: vec![case("t-1")],
        }];
        let registry = Registry::new().unwrap();
        // Tests run in parallel: no two may share a file.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = std::env::temp_dir().join(format!("knack-vectors-{}-{number}.json", std::process::id()));
        std::fs::write(&file, list).unwrap();
        let exceptions = Exceptions::load(Path::new(&file), &copies, &registry).unwrap();
        std::fs::remove_file(&file).unwrap();
        verdict("template", &case(id), &registry, &exceptions)
    }

    #[test]
    fn a_listed_case_that_holds_is_a_failure() {
        let list = r#"[{"id": "t-1", "reason": "r"}]"#;
        assert_eq!(judge("t-1", Strength::Source, "x", list), Verdict::Stale);
        assert_eq!(
            judge("t-1", Strength::Source, "y", list),
            Verdict::Excepted("r".to_owned())
        );
    }

    #[test]
    fn an_unlisted_case_must_hold_but_a_foreign_quirk_need_not() {
        assert_eq!(judge("t-1", Strength::Spec, "x", "[]"), Verdict::Holds);
        assert!(matches!(judge("t-1", Strength::Quirk, "z", "[]"), Verdict::Fails(_)));
        assert!(matches!(judge("f-1", Strength::Gap, "z", "[]"), Verdict::Fails(_)));
        assert!(matches!(
            judge("f-2", Strength::Quirk, "z", "[]"),
            Verdict::ForeignQuirk(_)
        ));
    }
}
