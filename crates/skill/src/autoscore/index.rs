//! What can be prepared before any request: postings of tokens, sorted names and tags, tie order.

use std::collections::HashMap;

use super::patterns::Patterns;
use super::{name_tokens, tokens};

/// One skill as scoring sees it.
#[derive(Debug, Clone, Copy)]
pub struct ScoredSkill<'a> {
    /// Its name, case kept (capitals split tokens).
    pub name: &'a str,
    /// The skill's description.
    pub description: &'a str,
    /// Its tags; duplicates count.
    pub tags: &'a [String],
    /// Breaks ties, larger first.
    pub install_count: u64,
}

/// Points that something found in the context gives to one skill.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posting {
    pub(super) skill: u32,
    pub(super) points: i32,
}

/// All skills that AUTO may select, ready for scoring. Skills are known by their position in the list given to [`ScoreIndex::build`].
#[derive(Debug)]
pub struct ScoreIndex {
    /// Token to its position in `token_postings`.
    pub(super) tokens: HashMap<Box<str>, u32>,
    pub(super) token_postings: Postings,
    /// Finds names and tags.
    pub(super) patterns: Patterns,
    pub(super) pattern_postings: Postings,
    pub(super) skills: Vec<Prepared>,
}

/// What scoring keeps of one skill.
#[derive(Debug)]
pub(super) struct Prepared {
    /// Providers that its tags name, as bits of [`hint_bits`].
    pub(super) hints: u8,
    /// Place among all skills by install count (descending), then name.
    pub(super) rank: u32,
    pub(super) name_tokens: Box<[Box<str>]>,
    pub(super) tags: Box<[Box<str>]>,
}

/// Lists of postings in one allocation.
#[derive(Debug, Default)]
pub(super) struct Postings {
    ends: Vec<u32>,
    all: Vec<Posting>,
}

impl Postings {
    fn of(lists: &[Vec<Posting>]) -> Self {
        let mut postings = Self::default();
        for list in lists {
            postings.all.extend_from_slice(list);
            postings.ends.push(small(postings.all.len()));
        }
        postings
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, list: usize) -> &[Posting] {
        let start = if list == 0 {
            0
        } else {
            self.ends.get(list - 1).copied().unwrap_or(0)
        };
        let end = self.ends.get(list).copied().unwrap_or(start);
        self.all.get(start as usize..end as usize).unwrap_or(&[])
    }
}

/// Interns keys, and gives points per key and skill.
#[derive(Default)]
struct Collector {
    numbers: HashMap<Box<str>, u32>,
    lists: Vec<Vec<Posting>>,
}

impl Collector {
    fn add(&mut self, key: &str, skill: u32, points: i32) {
        let number = if let Some(number) = self.numbers.get(key) {
            *number
        } else {
            let number = small(self.lists.len());
            self.numbers.insert(key.into(), number);
            self.lists.push(Vec::new());
            number
        };
        let Some(list) = self.lists.get_mut(number as usize) else {
            return;
        };
        match list.last_mut() {
            Some(newest) if newest.skill == skill => newest.points += points,
            _ => list.push(Posting { skill, points }),
        }
    }
}

impl ScoreIndex {
    /// Prepares a list of skills. Linear in the bytes of their names, tags and descriptions.
    pub fn build(skills: &[ScoredSkill<'_>]) -> Self {
        let mut words = Collector::default();
        let mut patterns = Collector::default();
        let mut prepared = Vec::with_capacity(skills.len());
        for (number, skill) in skills.iter().enumerate() {
            let id = small(number);
            let of_name = name_tokens(skill.name);
            for token in &of_name {
                words.add(token, id, 2);
            }
            for token in tokens(skill.description) {
                words.add(&token, id, 1);
            }
            if !skill.name.is_empty() {
                patterns.add(&skill.name.to_lowercase(), id, 6);
            }
            let tags: Box<[Box<str>]> = skill
                .tags
                .iter()
                .map(|tag| tag.to_lowercase().into_boxed_str())
                .collect();
            for tag in tags.iter().filter(|tag| !tag.is_empty()) {
                patterns.add(tag, id, 3);
            }
            let hints = tags.iter().fold(0, |bits, tag| bits | hint_bits(tag));
            let name_tokens = of_name.into_iter().map(String::into_boxed_str).collect();
            prepared.push(Prepared {
                hints,
                rank: 0,
                name_tokens,
                tags,
            });
        }
        rank(skills, &mut prepared);
        Self {
            token_postings: Postings::of(&words.lists),
            tokens: words.numbers,
            pattern_postings: Postings::of(&patterns.lists),
            patterns: Patterns::build(patterns.numbers.iter().map(|(text, number)| (&**text, *number))),
            skills: prepared,
        }
    }

    /// Whether there is nothing to score.
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
    }
}

/// Ties: larger install count, then the name without regard to case, then the name's bytes, so that no host locale matters.
fn rank(skills: &[ScoredSkill<'_>], prepared: &mut [Prepared]) {
    let mut order: Vec<(std::cmp::Reverse<u64>, String, &str, usize)> = skills
        .iter()
        .enumerate()
        .map(|(number, skill)| {
            (
                std::cmp::Reverse(skill.install_count),
                skill.name.to_lowercase(),
                skill.name,
                number,
            )
        })
        .collect();
    order.sort_unstable();
    for (rank, (_, _, _, number)) in order.iter().enumerate() {
        if let Some(skill) = prepared.get_mut(*number) {
            skill.rank = small(rank);
        }
    }
}

/// The provider that a tag names: bit 0 OpenAI, 1 Anthropic, 2 Google; 0 for every other tag.
pub(super) fn hint_bits(tag: &str) -> u8 {
    match tag {
        "openai" | "gpt" => 1,
        "anthropic" | "claude" => 2,
        "google" | "gemini" => 4,
        _ => 0,
    }
}

/// Narrows a count. Catalogs are bounded far below 4 billion entries; at the bound entries share the last number instead of wrapping.
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
