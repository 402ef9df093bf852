//! Names and tags as substrings: sorted texts, found at every position of a context by one short binary search.
//!
//! An automaton over 10,000 names scores equally fast, but takes over a hundred times longer to build, and a catalog is built on every change.

use std::collections::HashMap;

/// Marks a pattern that no other one begins.
const NONE: u32 = u32::MAX;

/// Distinct texts, none empty.
#[derive(Debug)]
pub(super) struct Patterns {
    /// Sorted by bytes, each with its number.
    sorted: Vec<(Box<[u8]>, u32)>,
    /// The longest other pattern that is a beginning of this one, as a position in `sorted`.
    parents: Vec<u32>,
    /// Patterns of one byte, as positions in `sorted`.
    singles: HashMap<u8, u32>,
    /// The first two bytes of longer ones, and their position in `sorted`.
    heads: HashMap<[u8; 2], (u32, u32)>,
    longest: usize,
}

impl Patterns {
    /// Sorts texts, known by their numbers.
    pub(super) fn build<'a>(texts: impl Iterator<Item = (&'a str, u32)>) -> Self {
        let mut sorted: Vec<(Box<[u8]>, u32)> = texts.map(|(text, number)| (text.as_bytes().into(), number)).collect();
        sorted.sort_unstable();
        let mut patterns = Self {
            parents: Vec::with_capacity(sorted.len()),
            singles: HashMap::new(),
            heads: HashMap::new(),
            longest: sorted.iter().map(|(text, _)| text.len()).max().unwrap_or(0),
            sorted,
        };
        let mut open: Vec<u32> = Vec::new();
        for (position, (text, _)) in (0_u32..).zip(&patterns.sorted) {
            let begins = |other: &u32| {
                patterns
                    .sorted
                    .get(*other as usize)
                    .is_some_and(|(other, _)| text.starts_with(other))
            };
            while open.last().is_some_and(|other| !begins(other)) {
                open.pop();
            }
            patterns.parents.push(open.last().copied().unwrap_or(NONE));
            open.push(position);
            match &**text {
                [] => {}
                [single] => {
                    patterns.singles.insert(*single, position);
                }
                [first, second, ..] => {
                    patterns
                        .heads
                        .entry([*first, *second])
                        .or_insert((position, position))
                        .1 = position + 1;
                }
            }
        }
        patterns
    }

    /// Bytes of the longest one.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Reports the number of every pattern that occurs in `bytes`, some of them repeatedly. `found` returns whether the
    /// pattern is new to it.
    pub(super) fn find(&self, bytes: &[u8], mut found: impl FnMut(u32) -> bool) {
        if self.sorted.is_empty() {
            return;
        }
        for at in 0..bytes.len() {
            let rest = &bytes[at..];
            if let Some(position) = rest.first().and_then(|byte| self.singles.get(byte)) {
                self.visit(*position, rest, &mut found);
            }
            let head = rest.first_chunk::<2>().and_then(|head| self.heads.get(head));
            let Some((start, end)) = head.copied() else { continue };
            let Some(group) = self.sorted.get(start as usize..end as usize) else {
                continue;
            };
            // Every pattern that begins `rest` is the last one not after it, or begins that one: they differ in length only.
            let after = group.partition_point(|(text, _)| **text <= *rest);
            if let Some(before) = after.checked_sub(1) {
                self.visit(start + u32::try_from(before).unwrap_or(0), rest, &mut found);
            }
        }
    }

    /// Walks from a pattern to its shorter and shorter prefixes, and reports those that begin `rest`.
    fn visit(&self, mut position: u32, rest: &[u8], found: &mut impl FnMut(u32) -> bool) {
        while let Some((text, number)) = self.sorted.get(position as usize) {
            // When a pattern was reported before, all its prefixes were reported with it.
            if rest.starts_with(text) && !found(*number) {
                return;
            }
            position = self.parents.get(position as usize).copied().unwrap_or(NONE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::Patterns;

    fn found(patterns: &[String], text: &str) -> BTreeSet<u32> {
        let mut all = BTreeSet::new();
        Patterns::build(patterns.iter().map(String::as_str).zip(0..))
            .find(text.as_bytes(), |number| all.insert(number));
        all
    }

    proptest! {
        #[test]
        fn finds_exactly_the_substrings(texts in prop::collection::btree_set("[ab]{1,4}", 0..12), context in "[abc]{0,30}") {
            let texts: Vec<String> = texts.into_iter().collect();
            let expected: BTreeSet<u32> =
                (0..).zip(&texts).filter(|(_, text)| context.contains(text.as_str())).map(|(number, _)| number).collect();
            prop_assert_eq!(found(&texts, &context), expected);
        }
    }
}
