//! Finds the skills whose names and descriptions are closest to a query (BM25 over tokens, with the name's trigrams for
//! typing errors).

use std::collections::HashMap;

use crate::autoscore::{name_tokens, tokens};

/// Term saturation and length weight of BM25, at their usual values.
const K1: f32 = 1.2;
const B: f32 = 0.75;

/// A name's own words count more than its description's.
const NAME_WEIGHT: f32 = 3.0;
/// Trigrams only break ties and catch typing errors.
const TRIGRAM_WEIGHT: f32 = 0.5;
/// Queries are cut to this many bytes: more words do not make a better search.
const MAX_QUERY_BYTES: usize = 1_024;

/// An index over (name, description) pairs, known by their positions.
#[derive(Debug)]
pub struct SearchIndex {
    postings: HashMap<Box<str>, Vec<(u32, f32)>>,
    lengths: Vec<f32>,
    mean_length: f32,
}

impl SearchIndex {
    /// Indexes a list. Linear in its bytes.
    pub fn build<'a>(documents: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut postings: HashMap<Box<str>, Vec<(u32, f32)>> = HashMap::new();
        let mut lengths = Vec::new();
        for (document, (name, description)) in documents.enumerate() {
            let document = u32::try_from(document).unwrap_or(u32::MAX);
            let mut terms: HashMap<String, f32> = HashMap::new();
            for token in words(name) {
                *terms.entry(token).or_default() += NAME_WEIGHT;
            }
            for token in tokens(description) {
                *terms.entry(token).or_default() += 1.0;
            }
            for trigram in trigrams(name) {
                *terms.entry(trigram).or_default() += TRIGRAM_WEIGHT;
            }
            lengths.push(terms.values().sum::<f32>());
            for (term, weight) in terms {
                postings
                    .entry(term.into_boxed_str())
                    .or_default()
                    .push((document, weight));
            }
        }
        let count = count(lengths.len().max(1));
        let mean_length = (lengths.iter().sum::<f32>() / count).max(1.0);
        Self {
            postings,
            lengths,
            mean_length,
        }
    }

    /// Returns the indices of the best documents, best first; equal scores in list order. Empty if no word or trigram
    /// matches.
    pub fn closest(&self, query: &str, limit: usize) -> Vec<usize> {
        let query = &query[..query.floor_char_boundary(MAX_QUERY_BYTES)];
        let mut terms: Vec<String> = words(query).into_iter().chain(trigrams(query)).collect();
        terms.sort_unstable();
        terms.dedup();
        let mut scores: HashMap<u32, f32> = HashMap::new();
        for term in &terms {
            let Some(list) = self.postings.get(term.as_str()) else {
                continue;
            };
            let (all, with) = (count(self.lengths.len()), count(list.len()));
            let rarity = ((all - with + 0.5) / (with + 0.5)).ln_1p();
            for (document, weight) in list {
                let length = self.lengths.get(*document as usize).copied().unwrap_or(1.0);
                let norm = K1 * (1.0 - B + B * length / self.mean_length);
                *scores.entry(*document).or_default() += rarity * weight * (K1 + 1.0) / (weight + norm);
            }
        }
        let mut ranked: Vec<(u32, f32)> = scores.into_iter().collect();
        ranked.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked
            .into_iter()
            .take(limit)
            .map(|(document, _)| document as usize)
            .collect()
    }
}

/// Words of a name or query, short ones included (`go`, `c`), unlike AUTO tokens.
fn words(text: &str) -> std::collections::BTreeSet<String> {
    let mut all = name_tokens(text);
    let short = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase);
    all.extend(short);
    all
}

/// Three-letter pieces of each word, marked so that they never equal a word.
fn trigrams(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let mut pieces = Vec::new();
    for word in lower.split(|c: char| !c.is_alphanumeric()) {
        let letters: Vec<char> = word.chars().collect();
        pieces.extend(
            letters
                .windows(3)
                .map(|window| std::iter::once('~').chain(window.iter().copied()).collect::<String>()),
        );
    }
    pieces.sort_unstable();
    pieces.dedup();
    pieces
}

#[expect(clippy::cast_precision_loss, reason = "counts only weigh; 24 bits are plenty")]
fn count(count: usize) -> f32 {
    count as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closest(query: &str) -> Vec<&'static str> {
        let skills = [
            ("csv-chart", "Turns a CSV file into a chart image."),
            ("pdf-forms", "Fills and extracts PDF forms."),
            ("weather", "Answers questions about the weather."),
            ("spreadsheet", "Edits spreadsheets, CSV included."),
        ];
        let index = SearchIndex::build(skills.iter().copied());
        index
            .closest(query, 3)
            .into_iter()
            .filter_map(|document| skills.get(document))
            .map(|skill| skill.0)
            .collect()
    }

    #[test]
    fn finds_by_words_of_the_description() {
        assert_eq!(closest("extract forms").first(), Some(&"pdf-forms"));
    }

    #[test]
    fn name_counts_more_than_description() {
        assert_eq!(closest("csv"), ["csv-chart", "spreadsheet"]);
    }

    #[test]
    fn forgives_typing_errors() {
        assert_eq!(closest("wheather").first(), Some(&"weather"));
    }

    #[test]
    fn answers_nothing_for_strangers() {
        assert!(closest("zzz").is_empty());
    }
}
