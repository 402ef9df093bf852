//! Runs cases and reports which hold.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::case::{Case, Strength, VectorFile};
use crate::exceptions::Exceptions;
use crate::matching;
use crate::reach::Reach;
use crate::registry::{By, Op, Registry};

/// What became of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// As expected.
    Holds,
    /// Not as expected, and the list says why. Grouped by reason in the report.
    Excepted(String),
    /// Not as expected: an odd upstream behaviour outside the copies, of an op that does not follow such behaviour. No rule demands it
    /// and no list can name it, but the op must answer.
    ForeignQuirk(String),
    /// Not as expected and not listed, or no answer at all: a failure.
    Fails(String),
    /// As expected, but listed: a failure, since the list would lie.
    Stale,
}

/// Why a case does not hold.
#[derive(Debug, PartialEq, Eq)]
enum Miss {
    /// The code under test panicked. Nothing excuses that.
    Crashed,
    /// There is no adapter, or it could not carry out the case: nothing is known of the code under test.
    Unanswered(String),
    /// Another answer than what is expected.
    Differs(String),
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
                .map(|case| {
                    let ran = run(registry.get(&file.stem, case.op()), case);
                    (case.clone(), verdict(ran, &file.stem, case, exceptions))
                })
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

fn verdict(ran: Result<(), Miss>, stem: &str, case: &Case, exceptions: &Exceptions) -> Verdict {
    let is_free =
        case.strength == Strength::Quirk && !exceptions.is_copy(&case.id) && !exceptions.adopts(stem, case.op());
    match (ran, exceptions.reason(stem, case)) {
        (Ok(()), _) if exceptions.names(stem, case) => Verdict::Stale,
        (Ok(()), _) => Verdict::Holds,
        (Err(Miss::Crashed), _) => Verdict::Fails("panicked".to_owned()),
        (Err(_), Some(reason)) => Verdict::Excepted(reason.to_owned()),
        (Err(Miss::Differs(why)), None) if is_free => Verdict::ForeignQuirk(why),
        (Err(Miss::Differs(why) | Miss::Unanswered(why)), None) => Verdict::Fails(why),
    }
}

fn run(op: Option<&Op>, case: &Case) -> Result<(), Miss> {
    let op = op.ok_or_else(|| Miss::Unanswered(format!("no adapter for op {}", case.op())))?;
    // A panic in one adapter must not hide the other cases.
    let outcome = catch_unwind(AssertUnwindSafe(|| (op.run)(&case.input))).map_err(|_| Miss::Crashed)?;
    match &outcome {
        Err(failure) if failure.by == By::Adapter => {
            Err(Miss::Unanswered(format!("the adapter failed: {}", failure.message)))
        }
        _ => matching::check(op.compare, &case.expected, &outcome).map_err(Miss::Differs),
    }
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
            Verdict::ForeignQuirk(why) => {
                let recommended = case.recommended.as_str().unwrap_or_default();
                writeln!(
                    out,
                    "  {id} ({strength}, not demanded; recommended: {recommended}) {}: {why}",
                    case.op()
                )?;
            }
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
    use crate::registry::Failure;

    static NUMBER: AtomicU64 = AtomicU64::new(0);

    /// Judges a case of `template/substitute`, which an op answers, beside a copy `t-1` of the same input.
    fn judged(id: &str, strength: Strength, expected: &str, list: &str, op: Option<&Op>) -> Verdict {
        let input = json!({"op": "substitute", "prompt": "{{a}}", "inputs": [{"name": "a"}], "provided": {"a": "x"}});
        let case = |id: &str| Case {
            id: id.to_owned(),
            strength,
            input: input.clone(),
            expected: json!(expected),
            recommended: json!("none"),
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
        verdict(run(op, &case(id)), "template", &case(id), &exceptions)
    }

    /// Judges a case by the product.
    fn judge(id: &str, strength: Strength, expected: &str, list: &str) -> Verdict {
        judged(
            id,
            strength,
            expected,
            list,
            Registry::new().unwrap().get("template", "substitute"),
        )
    }

    const LISTED: &str = r#"[{"id": "t-1", "reason": "r"}]"#;

    #[test]
    fn a_listed_case_that_holds_is_a_failure() {
        assert_eq!(judge("t-1", Strength::Source, "x", LISTED), Verdict::Stale);
        assert_eq!(
            judge("t-1", Strength::Source, "y", LISTED),
            Verdict::Excepted("r".to_owned())
        );
    }

    #[test]
    fn an_unlisted_case_must_hold_but_a_foreign_quirk_of_an_op_that_follows_none_need_not() {
        assert_eq!(judge("t-1", Strength::Spec, "x", "[]"), Verdict::Holds);
        assert!(matches!(judge("t-1", Strength::Quirk, "z", "[]"), Verdict::Fails(_)));
        assert!(matches!(judge("f-1", Strength::Gap, "z", "[]"), Verdict::Fails(_)));
        assert!(matches!(
            judge("f-2", Strength::Quirk, "z", LISTED),
            Verdict::ForeignQuirk(_)
        ));
        // The copy of this strength is not listed: quirks of this op are followed.
        assert!(matches!(judge("f-2", Strength::Quirk, "z", "[]"), Verdict::Fails(_)));
    }

    #[test]
    fn nothing_excuses_a_crash_or_a_case_that_is_not_carried_out() {
        let crashes = Op::new("template", "substitute", |_| panic!("as a test"));
        let shrugs = Op::new("template", "substitute", |_| Err(Failure::of_adapter("how?")));
        for strength in [Strength::Spec, Strength::Quirk] {
            for id in ["t-1", "f-1"] {
                let verdict = judged(id, strength, "x", LISTED, Some(&crashes));
                assert_eq!(verdict, Verdict::Fails("panicked".to_owned()), "{id} {strength:?}");
            }
            for op in [None, Some(&shrugs)] {
                let verdict = judged("f-1", strength, "x", LISTED, op);
                assert!(matches!(verdict, Verdict::Fails(_)), "{strength:?}: {verdict:?}");
            }
        }
    }
}
