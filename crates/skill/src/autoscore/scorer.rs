//! One request's pass: texts go in as they are in the conversation, selections come out after each user message.

use super::index::{ScoreIndex, hint_bits};
use super::{AutoContext, MAX_SELECTED, MIN_SCORE, split};

/// A name or tag that is partly in one message and partly in the next is found up to this length; no real one is
/// longer, and each message reads this much of the text before it again.
const MAX_SPAN_BYTES: usize = 256;

/// Scores that grow as the conversation is read. Each byte is read once, however many selections are made.
#[derive(Debug)]
pub struct Scorer<'a> {
    index: &'a ScoreIndex,
    /// Bits of the request's provider; 0 for one that no tag can name.
    provider: u8,
    scores: Vec<i32>,
    seen_tokens: Vec<bool>,
    seen_patterns: Vec<bool>,
    /// The end of what was read, so that a name or tag that spans two texts is found.
    tail: Vec<u8>,
}

impl<'a> Scorer<'a> {
    /// Begins with what is not a message: tools, model, formats, background reason.
    pub fn new(index: &'a ScoreIndex, provider: &str, context: &AutoContext) -> Self {
        let mut scorer = Self {
            index,
            provider: hint_bits(provider),
            scores: vec![0; index.skills.len()],
            seen_tokens: vec![false; index.token_postings.len()],
            seen_patterns: vec![false; index.pattern_postings.len()],
            tail: Vec::new(),
        };
        scorer.read_lower(&context.head());
        scorer.read_reason(&context.background_reason);
        scorer
    }

    /// Reads the next text of the conversation.
    pub fn read(&mut self, text: &str) {
        self.read_lower(&text.to_lowercase());
    }

    fn read_lower(&mut self, lower: &str) {
        for token in split(lower) {
            self.read_token(token);
        }
        if !self.tail.is_empty() {
            self.tail.push(b' ');
        }
        self.tail.extend_from_slice(lower.as_bytes());
        self.find_patterns();
        let kept = self.index.patterns.longest().min(MAX_SPAN_BYTES);
        self.tail.drain(..self.tail.len().saturating_sub(kept));
    }

    fn read_token(&mut self, token: &str) {
        let Some(position) = self.index.tokens.get(token) else {
            return;
        };
        let position = *position as usize;
        if let Some(seen) = self.seen_tokens.get_mut(position)
            && !std::mem::replace(seen, true)
        {
            add(&mut self.scores, self.index.token_postings.get(position));
        }
    }

    fn find_patterns(&mut self) {
        let (index, scores, seen) = (self.index, &mut self.scores, &mut self.seen_patterns);
        index.patterns.find(&self.tail, |number| {
            let position = number as usize;
            let is_new = seen
                .get_mut(position)
                .is_some_and(|seen| !std::mem::replace(seen, true));
            if is_new {
                add(scores, index.pattern_postings.get(position));
            }
            is_new
        });
    }

    /// The background reason counts a second time, against names and tags directly.
    fn read_reason(&mut self, reason: &str) {
        let reason = super::tokens(reason);
        for (skill, score) in self.index.skills.iter().zip(&mut self.scores) {
            for token in &reason {
                if skill.name_tokens.iter().any(|name| **name == **token) {
                    *score += 2;
                }
                if skill
                    .tags
                    .iter()
                    .any(|tag| tag.contains(token.as_str()) || token.contains(&**tag))
                {
                    *score += 2;
                }
            }
        }
    }

    /// The score of one skill now.
    pub fn score(&self, skill: usize) -> i32 {
        let hint = match self.index.skills.get(skill).map(|skill| skill.hints) {
            None | Some(0) => 0,
            Some(hints) if hints & self.provider != 0 => 2,
            Some(_) => -2,
        };
        self.scores.get(skill).map_or(0, |score| score + hint)
    }

    /// The best skills now, without those in `taken`, best first, as many as `taken` leaves free.
    pub fn best(&self, taken: &[usize]) -> Vec<usize> {
        let free = MAX_SELECTED.saturating_sub(taken.len());
        let mut best: Vec<(i32, u32, usize)> = Vec::with_capacity(free + 1);
        if free == 0 {
            return Vec::new();
        }
        for (position, skill) in self.index.skills.iter().enumerate() {
            let score = self.score(position);
            if score < MIN_SCORE || taken.contains(&position) {
                continue;
            }
            let key = (-score, skill.rank, position);
            if best.len() == free && best.last().is_some_and(|last| *last < key) {
                continue;
            }
            let at = best.partition_point(|other| *other < key);
            best.insert(at, key);
            best.truncate(free);
        }
        best.into_iter().map(|(_, _, position)| position).collect()
    }
}

impl ScoreIndex {
    /// Selects by the whole request at once, best first: OmniRoute's own rule.
    pub fn select(&self, provider: &str, context: &AutoContext) -> Vec<usize> {
        let mut scorer = Scorer::new(self, provider, context);
        for text in context.messages.iter().filter_map(|message| message.text.as_deref()) {
            scorer.read(text);
        }
        scorer.best(&[])
    }

    /// Selects by replay: once for every prefix of the conversation that ends in a user message. Earlier winners stay where they are, free places
    /// go by the score at that point, so a later message appends to the system text and never reorders it (docs/design/conversation.md#activation).
    pub fn replay(&self, provider: &str, context: &AutoContext) -> Vec<usize> {
        let mut scorer = Scorer::new(self, provider, context);
        let mut winners = Vec::new();
        for message in &context.messages {
            if let Some(text) = message.text.as_deref() {
                scorer.read(text);
            }
            if message.user {
                winners.extend(scorer.best(&winners));
                if winners.len() >= MAX_SELECTED {
                    break;
                }
            }
        }
        winners
    }
}

fn add(scores: &mut [i32], postings: &[super::index::Posting]) {
    for posting in postings {
        if let Some(score) = scores.get_mut(posting.skill as usize) {
            *score += posting.points;
        }
    }
}
