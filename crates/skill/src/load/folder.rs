//! The load itself: folder, document, fields, result.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::document;
use super::fields;
use super::strict;
use super::types::{LoadInput, LoadResult};
use crate::functions::ReadFunctions;
use crate::names;
use crate::problem::{Problem, ProblemKind, Severity};
use crate::tree;

/// Loads one skill, with the functions of its Python files from its lock: [`load_with`] without a reader.
pub fn load(input: LoadInput) -> LoadResult {
    load_with(input, None)
}

/// Loads one skill, with the functions of its Python files from their text if there is a reader, else from its lock.
/// All work is bounded by the folder's limits; no input panics.
///
/// A skill comes out exactly if no problem is an error.
pub fn load_with(input: LoadInput, read: Option<ReadFunctions>) -> LoadResult {
    let mut problems = check_name(&input.id.name);
    let mut functions = BTreeMap::new();
    problems.extend(tree::check(&input.files));
    let skill = match document::read(&input.files, input.profile) {
        Ok((document, found)) => {
            problems.extend(found);
            problems.extend(strict::check(&document, &input));
            let fields = fields::read(document, input, read);
            problems.extend(fields.problems);
            functions = fields.functions;
            Some(fields.skill)
        }
        Err(found) => {
            problems.extend(found);
            None
        }
    };
    let problems = ordered(problems);
    let refused = problems.iter().any(Problem::is_error);
    LoadResult {
        skill: skill.filter(|_| !refused),
        problems,
        functions,
    }
}

/// The identity must be a legal name: it is part of tool names, `@name` and paths.
fn check_name(name: &str) -> Vec<Problem> {
    let Err(kind) = names::check(name) else {
        return Vec::new();
    };
    let help = format!("rename the folder or object; {}", names::advice(name));
    vec![Problem::new(
        Severity::Error,
        kind,
        format!("{} (got {name:?})", names::rule(kind)),
        help,
    )]
}

/// Most problems that are reported of one skill; an author fixes the first ones first.
const MAX_TOLD: usize = 200;

/// Errors first, then by line; a problem that two checks found is reported once.
fn ordered(problems: Vec<Problem>) -> Vec<Problem> {
    let mut kept: Vec<Problem> = Vec::new();
    let mut index_by_key: HashMap<(ProblemKind, String, String), usize> = HashMap::new();
    for problem in problems {
        let key = (problem.kind, problem.file.clone(), problem.field.clone());
        if let Some(other) = index_by_key.get(&key).and_then(|index| kept.get_mut(*index)) {
            other.severity = other.severity.max(problem.severity);
        } else {
            index_by_key.insert(key, kept.len());
            kept.push(problem);
        }
    }
    kept.sort_by_key(|problem| (Reverse(problem.severity), problem.file.clone(), problem.line));
    if kept.len() > MAX_TOLD {
        let more = kept.len() - MAX_TOLD;
        let severity = kept.first().map_or(Severity::Warning, |problem| problem.severity);
        kept.truncate(MAX_TOLD);
        let help = "fix the problems above first";
        kept.push(Problem::new(
            severity,
            ProblemKind::FieldInvalid,
            format!("{more} more problems"),
            help,
        ));
    }
    kept
}
