//! Which ops the product does, and which it only could do: computed by `tools/reached.py` from the sources, never listed by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The tool, fixed at build time as the cases are.
const TOOL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/reached.py");

/// By (vector file, op), what its adapter calls and no program of the product reaches. Nothing: the op is reachable.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    missing: BTreeMap<(String, String), Vec<String>>,
}

impl Reach {
    /// Asks the tool, which needs python3. Errors: it cannot be run, or refuses the sources.
    pub(crate) fn compute() -> Result<Self, String> {
        let done = Command::new("python3")
            .args(["-B", TOOL, "vectors"])
            .output()
            .map_err(|error| format!("python3 tools/reached.py cannot be run: {error}"))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            return Err(format!("tools/reached.py vectors failed: {}", said.trim()));
        }
        Self::parse(&String::from_utf8_lossy(&done.stdout))
    }

    /// Reads lines `file<TAB>op<TAB>name<TAB>name`.
    fn parse(text: &str) -> Result<Self, String> {
        let mut missing = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split('\t').map(str::to_owned);
            let (Some(file), Some(op)) = (words.next(), words.next()) else {
                return Err(format!("tools/reached.py vectors: not a file and an op: {line}"));
            };
            missing.insert((file, op), words.collect());
        }
        Ok(Self { missing })
    }

    /// Whether a program of the product reaches everything that the op's adapter calls. `None`: the tool does not know
    /// the op, which has no adapter then.
    pub(crate) fn is_reachable(&self, file: &str, op: &str) -> Option<bool> {
        let missing = self.missing.get(&(file.to_owned(), op.to_owned()))?;
        Some(missing.is_empty())
    }

    /// What some of the ops lack, each name once.
    pub(crate) fn missing<'a>(&self, ops: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeSet<&str> {
        ops.filter_map(|(file, op)| self.missing.get(&(file.to_owned(), op.to_owned())))
            .flatten()
            .map(String::as_str)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_op_is_reachable_when_nothing_is_missing() {
        let reach = Reach::parse("args\targv\nsemver\tresolve\tsemver::resolve\tsemver::newest_first\n").unwrap();
        assert_eq!(reach.is_reachable("args", "argv"), Some(true));
        assert_eq!(reach.is_reachable("semver", "resolve"), Some(false));
        assert_eq!(reach.is_reachable("semver", "argv"), None);
        let ops = [("args", "argv"), ("semver", "resolve"), ("no", "adapter")];
        let missing: Vec<&str> = reach.missing(ops.into_iter()).into_iter().collect();
        assert_eq!(missing, ["semver::newest_first", "semver::resolve"]);
        assert!(Reach::parse("args\n").is_err());
    }
}
