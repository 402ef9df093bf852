//! The Listed block: one line for each skill, within a token budget.

use crate::texts;

/// Descriptions are cut to these sizes in turn until the block fits. The first is the dialects' own limit: longer ones are served cut.
const DESCRIPTION_BYTES: [usize; 4] = [1_024, 200, 100, 0];

/// One line to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) handle: &'a str,
    pub(super) description: &'a str,
}

/// The lines of a block, sorted by handle; [`texts::listing_block`] goes around them.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Lines without the closing `(<k> more: ...)`, which depends on the loader's name.
    pub(super) lines: String,
    /// How many skills have no line.
    pub(super) left_out: usize,
}

impl Listing {
    /// The block, or nothing if no skill is listed.
    pub(super) fn block(&self, load_skill: &str) -> Option<String> {
        if self.lines.is_empty() && self.left_out == 0 {
            return None;
        }
        if self.left_out == 0 {
            return Some(texts::listing_block(&self.lines, load_skill));
        }
        let lines = format!("{}{}", self.lines, texts::listing_more(self.left_out, load_skill));
        Some(texts::listing_block(&lines, load_skill))
    }
}

/// Fits lines into `max_tokens` for the whole block. Linear in the bytes of all descriptions.
pub(super) fn fit(lines: &[Line<'_>], max_tokens: usize) -> Listing {
    let frame = texts::listing_block("", texts::LOAD_SKILL).len();
    let flat: Vec<String> = lines
        .iter()
        .map(|line| escape(&one_line(line.description)).into_owned())
        .collect();
    let bare: usize = lines
        .iter()
        .map(|line| texts::listing_line(line.handle, "").len())
        .sum();
    for limit in DESCRIPTION_BYTES {
        let descriptions: usize = flat
            .iter()
            .map(|description| cut_at_word(description, limit).len())
            .sum();
        if texts::tokens(frame + bare + descriptions) <= max_tokens {
            let shown = lines.iter().zip(&flat);
            let text =
                shown.map(|(line, description)| texts::listing_line(line.handle, cut_at_word(description, limit)));
            return Listing {
                lines: text.collect(),
                left_out: 0,
            };
        }
    }
    let mut text: String = lines.iter().map(|line| texts::listing_line(line.handle, "")).collect();
    // Even bare names do not fit: the first ones by name, and room for the line that tells how many are missing.
    let more = texts::listing_more(lines.len(), texts::LOAD_SKILL).len();
    let room = max_tokens.saturating_mul(4).saturating_sub(frame + more);
    let end = text
        .match_indices('\n')
        .map(|(at, _)| at + 1)
        .take_while(|end| *end <= room)
        .last()
        .unwrap_or(0);
    text.truncate(end);
    let kept = text.matches('\n').count();
    Listing {
        lines: text,
        left_out: lines.len() - kept,
    }
}

/// Runs of white space become one blank.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

/// The longest beginning of at most `limit` bytes that ends with a word; inside the first word if that alone is longer.
fn cut_at_word(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let end = text.floor_char_boundary(limit);
    let head = &text[..end];
    // An escape has no blank inside, so a cut at a word never splits one; inside a single long word it is dropped whole.
    let head = head
        .rfind('&')
        .filter(|at| !head[*at..].contains(';'))
        .map_or(head, |at| &head[..at]);
    if text[head.len()..].starts_with(' ') {
        return head;
    }
    head.rfind(' ').map_or(head, |blank| &head[..blank])
}

fn escape(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains(['&', '<', '>']) {
        return text.into();
    }
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many(count: usize, description: &str) -> Vec<(String, String)> {
        (0..count)
            .map(|i| (format!("skill-{i:05}"), description.to_owned()))
            .collect()
    }

    fn fitted(skills: &[(String, String)], max_tokens: usize) -> (Listing, usize) {
        let lines: Vec<Line<'_>> = skills
            .iter()
            .map(|(handle, description)| Line { handle, description })
            .collect();
        let listing = fit(&lines, max_tokens);
        let tokens = listing
            .block(texts::LOAD_SKILL)
            .map_or(0, |block| texts::tokens(block.len()));
        (listing, tokens)
    }

    #[test]
    fn nothing_listed_leaves_no_trace() {
        assert!(fit(&[], 4_000).block(texts::LOAD_SKILL).is_none());
    }

    #[test]
    fn descriptions_stand_on_one_line_and_are_escaped() {
        let (listing, _) = fitted(&[("a".into(), "One\n two <b> & c".into())], 4_000);
        assert_eq!(listing.lines, "<skill name=\"a\">One two &lt;b&gt; &amp; c</skill>\n");
    }

    #[test]
    fn descriptions_shrink_at_a_word_until_the_block_fits() {
        let description = "word ".repeat(100);
        for (count, longest) in [(20, 500), (60, 200), (100, 100), (300, 0)] {
            let (listing, tokens) = fitted(&many(count, &description), 4_000);
            assert!(tokens <= 4_000, "{count}: {tokens}");
            assert_eq!(listing.left_out, 0, "{count}");
            let line = listing.lines.lines().next().unwrap();
            let shown = line.len() - "<skill name=\"skill-00000\"></skill>".len();
            assert!(shown <= longest && shown + 5 >= longest, "{count}: {shown}");
            assert!(!line.contains("wor<"), "{line}");
        }
    }

    #[test]
    fn names_that_do_not_fit_are_counted() {
        let (listing, tokens) = fitted(&many(10_000, "d"), 4_000);
        assert!(tokens <= 4_000 && tokens > 3_900, "{tokens}");
        assert_eq!(listing.lines.lines().count() + listing.left_out, 10_000);
        assert!(listing.block(texts::LOAD_SKILL).unwrap().contains(&format!(
            "({} more: call load_skill with a few words)",
            listing.left_out
        )));
    }

    #[test]
    fn a_budget_of_nothing_still_counts() {
        let (listing, _) = fitted(&many(3, "d"), 0);
        assert_eq!((listing.lines.as_str(), listing.left_out), ("", 3));
    }
}
