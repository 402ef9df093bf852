//! The checked-in list of cases that are deliberately not followed, each with its reason.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::case::{Case, Strength, VectorFile};
use crate::registry::Registry;

/// What a reason for a whole op or file must begin with.
const NOT_OURS: &str = "op not ours";

/// One entry: an id, or an op of a file, or a whole file, or an op of a file with values of its input.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: Option<String>,
    file: Option<String>,
    op: Option<String>,
    input: Option<Members>,
    reason: String,
}

/// Members of an input, each with the values that are meant.
type Members = BTreeMap<String, Vec<Value>>;

/// The cases of an op that have one of some values in their input, also those outside the copies.
#[derive(Debug)]
struct ByInput {
    file: String,
    op: String,
    members: Members,
    reason: String,
}

impl ByInput {
    fn covers(&self, file: &str, case: &Case) -> bool {
        let has = |member: &str, values: &[Value]| case.input.get(member).is_some_and(|value| values.contains(value));
        self.file == file && self.op == case.op() && self.members.iter().all(|(member, values)| has(member, values))
    }
}

/// The list, checked against the copies and the registry.
#[derive(Debug)]
pub(crate) struct Exceptions {
    ids: HashMap<String, String>,
    ops: BTreeMap<(String, Option<String>), String>,
    inputs: Vec<ByInput>,
    copies: BTreeSet<String>,
    /// Files and ops that follow the odd behaviour of upstream: some copy has such a case, and none of these is listed.
    adopted: BTreeSet<(String, String)>,
}

impl Exceptions {
    /// Reads the list and refuses entries that could hide something: without a reason, twice, for an id or for values that no
    /// copy has, or for an op that has an adapter, alone or with its whole file.
    pub(crate) fn load(path: &Path, copies: &[VectorFile], registry: &Registry) -> Result<Self, String> {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
        Self::parse(&text, copies, registry).map_err(|error| format!("{name}: {error}"))
    }

    fn parse(text: &str, copies: &[VectorFile], registry: &Registry) -> Result<Self, String> {
        let entries: Vec<Entry> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let ids = copies
            .iter()
            .flat_map(|file| file.cases.iter().map(|case| case.id.clone()));
        let mut list = Self {
            ids: HashMap::new(),
            ops: BTreeMap::new(),
            inputs: Vec::new(),
            copies: ids.collect(),
            adopted: BTreeSet::new(),
        };
        for entry in entries {
            list.add(entry, copies, registry)?;
        }
        list.adopted = list.adopting(copies);
        Ok(list)
    }

    fn adopting(&self, copies: &[VectorFile]) -> BTreeSet<(String, String)> {
        let quirks = copies.iter().flat_map(|file| {
            let quirks = file.cases.iter().filter(|case| case.strength == Strength::Quirk);
            quirks.map(move |case| (&file.stem, case))
        });
        let (listed, held): (Vec<_>, Vec<_>) = quirks.partition(|(file, case)| self.reason(file, case).is_some());
        let op = |(file, case): (&String, &Case)| (file.clone(), case.op().to_owned());
        let listed: BTreeSet<_> = listed.into_iter().map(op).collect();
        held.into_iter().map(op).filter(|op| !listed.contains(op)).collect()
    }

    /// Whether an op follows the odd behaviour of upstream, so that a case of it must hold outside the copies as well.
    pub(crate) fn adopts(&self, file: &str, op: &str) -> bool {
        self.adopted.contains(&(file.to_owned(), op.to_owned()))
    }

    fn add(&mut self, entry: Entry, copies: &[VectorFile], registry: &Registry) -> Result<(), String> {
        let Entry {
            id,
            file,
            op,
            input,
            reason,
        } = entry;
        if reason.trim().is_empty() {
            return Err(format!("an entry without a reason: {id:?} {file:?} {op:?}"));
        }
        match (id, file, op, input) {
            (Some(id), None, None, None) => {
                if !self.copies.contains(&id) {
                    return Err(format!("{id}: no such case among the copies"));
                }
                match self.ids.insert(id.clone(), reason) {
                    Some(_) => Err(format!("{id}: listed twice")),
                    None => Ok(()),
                }
            }
            (None, Some(file), Some(op), Some(members)) => {
                let entry = ByInput {
                    file,
                    op,
                    members,
                    reason,
                };
                self.add_by_input(entry, copies)
            }
            (None, Some(file), op, None) => {
                if !reason.starts_with(NOT_OURS) {
                    return Err(format!(
                        "{file} {op:?}: the reason of an op must begin with \"{NOT_OURS}\""
                    ));
                }
                match &op {
                    Some(op) if registry.get(&file, op).is_some() => {
                        return Err(format!(
                            "{file}/{op}: has an adapter, so its cases are listed by id or by values of their input"
                        ));
                    }
                    None if registry.has_file(&file) => {
                        return Err(format!(
                            "{file}: some of its ops have adapters, so the others are listed one by one"
                        ));
                    }
                    _ => {}
                }
                match self.ops.insert((file.clone(), op.clone()), reason) {
                    Some(_) => Err(format!("{file} {op:?}: listed twice")),
                    None => Ok(()),
                }
            }
            _ => Err(
                "an entry has either an id, or a file and perhaps an op, and perhaps values of its input".to_owned(),
            ),
        }
    }

    fn add_by_input(&mut self, entry: ByInput, copies: &[VectorFile]) -> Result<(), String> {
        let name = format!("{}/{} {:?}", entry.file, entry.op, entry.members);
        if entry.members.is_empty() {
            return Err(format!("{name}: no member of the input is named"));
        }
        let is_covered = |file: &VectorFile| file.cases.iter().any(|case| entry.covers(&file.stem, case));
        if !copies.iter().any(is_covered) {
            return Err(format!("{name}: no such case among the copies"));
        }
        let is_same =
            |other: &ByInput| (&other.file, &other.op, &other.members) == (&entry.file, &entry.op, &entry.members);
        if self.inputs.iter().any(is_same) {
            return Err(format!("{name}: listed twice"));
        }
        self.inputs.push(entry);
        Ok(())
    }

    /// The reason of an entry by values of the input.
    fn by_input(&self, file: &str, case: &Case) -> Option<&String> {
        let found = self.inputs.iter().find(|entry| entry.covers(file, case));
        found.map(|entry| &entry.reason)
    }

    /// The reason why a case need not hold.
    pub(crate) fn reason(&self, file: &str, case: &Case) -> Option<&str> {
        let by_op = (file.to_owned(), Some(case.op().to_owned()));
        let by_file = (file.to_owned(), None);
        let found = self
            .ids
            .get(&case.id)
            .or_else(|| self.by_input(file, case))
            .or_else(|| self.ops.get(&by_op))
            .or_else(|| self.ops.get(&by_file));
        found.map(String::as_str)
    }

    /// Whether the list names this very case of the copies, by its id or by values of its input.
    pub(crate) fn names(&self, file: &str, case: &Case) -> bool {
        self.ids.contains_key(&case.id) || (self.is_copy(&case.id) && self.by_input(file, case).is_some())
    }

    /// Whether the id belongs to the checked-in copies.
    pub(crate) fn is_copy(&self, id: &str) -> bool {
        self.copies.contains(id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(text: &str) -> Result<Exceptions, String> {
        let case = Case {
            id: "c-1".to_owned(),
            strength: Strength::Quirk,
            input: json!({"op": "o", "a": 1}),
            expected: json!(1),
            recommended: Value::Null,
        };
        let copies = [VectorFile {
            stem: "template".to_owned(),
            cases: vec![case],
        }];
        Exceptions::parse(text, &copies, &Registry::new()?)
    }

    #[test]
    fn entries_that_could_hide_something_are_refused() {
        for text in [
            r#"[{"id": "c-1", "reason": " "}]"#,
            r#"[{"id": "c-2", "reason": "no such case"}]"#,
            r#"[{"id": "c-1", "reason": "a"}, {"id": "c-1", "reason": "twice"}]"#,
            r#"[{"id": "c-1", "file": "template", "reason": "both"}]"#,
            r#"[{"file": "template", "op": "o", "reason": "we do not like it"}]"#,
            r#"[{"file": "template", "op": "substitute", "reason": "op not ours: it has an adapter"}]"#,
            r#"[{"file": "template", "reason": "op not ours: some of its ops have adapters"}]"#,
            r#"[{"id": "c-1", "reason": "a", "until": "later"}]"#,
            r#"[{"id": "c-1", "input": {"a": [1]}, "reason": "both"}]"#,
            r#"[{"file": "template", "input": {"a": [1]}, "reason": "without an op"}]"#,
            r#"[{"file": "template", "op": "o", "input": {}, "reason": "every input"}]"#,
            r#"[{"file": "template", "op": "o", "input": {"a": [2]}, "reason": "no such case"}]"#,
            r#"[{"file": "template", "op": "substitute", "input": {"a": [1]}, "reason": "of another op"}]"#,
            r#"[{"file": "template", "op": "o", "input": {"a": [1]}, "reason": "a"}, {"file": "template", "op": "o", "input": {"a": [1]}, "reason": "twice"}]"#,
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_entry_by_op_covers_ids_outside_the_copies() {
        let list = parse(r#"[{"file": "template", "op": "o", "reason": "op not ours yet: later"}]"#).unwrap();
        let foreign = Case {
            id: "x".to_owned(),
            strength: Strength::Spec,
            input: json!({"op": "o"}),
            expected: json!(1),
            recommended: Value::Null,
        };
        assert_eq!(list.reason("template", &foreign), Some("op not ours yet: later"));
        assert_eq!(list.reason("other", &foreign), None);
        assert!(!list.is_copy("x") && !list.names("template", &foreign));
    }

    #[test]
    fn an_entry_by_values_covers_cases_with_one_of_them() {
        let list = parse(r#"[{"file": "template", "op": "o", "input": {"a": [1, ""]}, "reason": "r"}]"#).unwrap();
        let case = |id: &str, a: Value| Case {
            id: id.to_owned(),
            strength: Strength::Conflict,
            input: json!({"op": "o", "a": a}),
            expected: json!(1),
            recommended: Value::Null,
        };
        let copy = case("c-1", json!(1));
        assert_eq!(list.reason("template", &copy), Some("r"));
        assert!(list.names("template", &copy));
        // What holds outside the copies is no lie of the list.
        let foreign = case("x", json!(""));
        assert_eq!(list.reason("template", &foreign), Some("r"));
        assert!(!list.names("template", &foreign));
        for (file, other) in [("template", case("x", json!(2))), ("other", copy)] {
            assert_eq!(list.reason(file, &other), None);
        }
    }
}
