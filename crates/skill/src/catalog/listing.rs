//! The Listed block: one line for each skill, within a token budget.
//!
//! A list that is too long loses text evenly: first all descriptions are cut in the same proportion, down to a floor; then those at
//! the end of the alphabet go, one by one, their names stay; last, names that do not fit are only counted. One skill more therefore
//! never takes away more than about its own line.

use crate::texts;

/// Longest description of a line: the dialects' own limit. Longer ones are always cut.
const LONGEST_BYTES: usize = 1_024;
/// No description is cut below this in proportion: less does not say when to use a skill.
const FLOOR_BYTES: usize = 60;
/// What the proportion is counted in; fine enough for a byte of the longest description.
const WHOLE_SHARE: usize = 1_024;

/// How the lines of a block came out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListingCounts {
    /// With their whole description.
    pub whole: usize,
    /// With the beginning of it.
    pub cut: usize,
    /// Name only.
    pub bare: usize,
    /// Skills without a line; the model finds them by asking `load_skill` for a few words.
    pub left_out: usize,
}

/// One line to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListedSkill<'a> {
    pub(super) handle: &'a str,
    pub(super) description: &'a str,
}

impl<'a> ListedSkill<'a> {
    /// Bytes of the line without a description, where a line without a handle has `frame` of them.
    fn bare(&self, frame: usize) -> usize {
        frame + self.handle.len()
    }

    fn item(&self) -> FittedLine<'a> {
        FittedLine {
            handle: self.handle,
            description: escape(&one_line(self.description)).into_owned(),
        }
    }
}

/// The lines of a block, sorted by handle; [`texts::listing_block`] goes around them.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Lines without the closing `(<k> more: ...)`, which depends on the loader's name.
    pub(super) lines: String,
    pub(super) counts: ListingCounts,
}

impl Listing {
    /// The block, or nothing if no skill is listed.
    pub(super) fn block(&self, load_skill: &str) -> Option<String> {
        if self.lines.is_empty() && self.counts.left_out == 0 {
            return None;
        }
        if self.counts.left_out == 0 {
            return Some(texts::listing_block(&self.lines, load_skill));
        }
        let lines = format!(
            "{}{}",
            self.lines,
            texts::listing_more(self.counts.left_out, load_skill)
        );
        Some(texts::listing_block(&lines, load_skill))
    }
}

/// One skill's line while the list is fitted.
struct FittedLine<'a> {
    handle: &'a str,
    /// On one line and escaped, whole.
    description: String,
}

impl FittedLine<'_> {
    /// The description with this share of it, at least the floor.
    fn share(&self, share: usize) -> &str {
        let longest = self.description.len().min(LONGEST_BYTES);
        cut_at_word(&self.description, FLOOR_BYTES.max(longest * share / WHOLE_SHARE))
    }
}

/// Fits lines into `max_tokens` for the whole block. Linear in the bytes of all descriptions.
pub(super) fn fit(lines: &[ListedSkill<'_>], max_tokens: usize) -> Listing {
    let frame = texts::listing_block("", texts::LOAD_SKILL).len();
    let room = max_tokens.saturating_mul(4).saturating_sub(frame);
    // Once: a line written for each of thousands of skills would be most of the work.
    let line_frame = texts::listing_line("", "").len();
    let bare: usize = lines.iter().map(|line| line.bare(line_frame)).sum();
    // With thousands of skills there is no room for any description.
    if bare > room {
        return names(lines, line_frame, room);
    }
    let items: Vec<FittedLine<'_>> = lines.iter().map(ListedSkill::item).collect();
    let fits = |share: usize| bare + items.iter().map(|item| item.share(share).len()).sum::<usize>() <= room;
    if fits(0) {
        let share = largest(WHOLE_SHARE, fits);
        return written(&items, |_, item| item.share(share));
    }
    let described = fitting(items.iter().map(|item| item.share(0).len()), room - bare);
    written(&items, |index, item| if index < described { item.share(0) } else { "" })
}

/// The names that fit, the first ones, and room for the line that counts the others.
fn names(lines: &[ListedSkill<'_>], line_frame: usize, room: usize) -> Listing {
    let room = room.saturating_sub(texts::listing_more(lines.len(), texts::LOAD_SKILL).len());
    let count = fitting(lines.iter().map(|line| line.bare(line_frame)), room);
    let named: Vec<FittedLine<'_>> = lines.iter().take(count).map(ListedSkill::item).collect();
    let mut listing = written(&named, |_, _| "");
    listing.counts.left_out = lines.len() - named.len();
    listing
}

/// How many of these sizes, from the first on, fit into the room.
fn fitting(sizes: impl Iterator<Item = usize>, room: usize) -> usize {
    let mut used = 0;
    let fit = sizes.take_while(|size| {
        used += size;
        used <= room
    });
    fit.count()
}

/// The largest number up to `most` that holds, where 0 does and each that holds makes all smaller ones hold.
fn largest(most: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, most + 1);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

fn written<'a>(items: &'a [FittedLine<'a>], shown: impl Fn(usize, &'a FittedLine<'a>) -> &'a str) -> Listing {
    let mut listing = Listing::default();
    for (index, item) in items.iter().enumerate() {
        let description = shown(index, item);
        listing.lines.push_str(&texts::listing_line(item.handle, description));
        let counts = &mut listing.counts;
        let count = if description.len() == item.description.len() {
            &mut counts.whole
        } else if description.is_empty() {
            &mut counts.bare
        } else {
            &mut counts.cut
        };
        *count += 1;
    }
    listing
}

/// How a list of skills comes out within a budget of tokens; each is a handle and a description, in any order.
pub fn listing_counts<'a>(skills: impl IntoIterator<Item = (&'a str, &'a str)>, max_tokens: usize) -> ListingCounts {
    let lines = skills
        .into_iter()
        .map(|(handle, description)| ListedSkill { handle, description });
    let mut lines: Vec<ListedSkill<'_>> = lines.collect();
    lines.sort_unstable_by_key(|line| line.handle);
    fit(&lines, max_tokens).counts
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
    // An escape has no blank inside, so a cut at a word never splits one; inside a single long word it is dropped
    // completely.
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
        let lines: Vec<ListedSkill<'_>> = skills
            .iter()
            .map(|(handle, description)| ListedSkill { handle, description })
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
    fn descriptions_are_on_one_line_and_escaped() {
        let (listing, _) = fitted(&[("a".into(), "One\n two <b> & c".into())], 4_000);
        assert_eq!(listing.lines, "<skill name=\"a\">One two &lt;b&gt; &amp; c</skill>\n");
    }

    #[test]
    fn descriptions_are_cut_in_proportion_at_a_word() {
        let long = "word ".repeat(100);
        let short = "Makes one small chart.";
        let mut skills = many(60, &long);
        skills.extend((0..20).map(|i| (format!("tool-{i:05}"), "word ".repeat(50))));
        skills.push(("z".to_owned(), short.to_owned()));
        let (listing, tokens) = fitted(&skills, 4_000);
        assert!(tokens <= 4_000 && tokens > 3_900, "{tokens}");
        let shown = |handle: &str| {
            let start = format!("<skill name=\"{handle}\">");
            let line = listing.lines.lines().find(|line| line.starts_with(&start)).unwrap();
            assert!(!line.contains("wor<"), "{line}");
            line.len() - start.len() - "</skill>".len()
        };
        let (whole, half) = (shown("skill-00000"), shown("tool-00000"));
        assert!(half * 2 <= whole + 10 && whole <= half * 2 + 10, "{whole} {half}");
        assert_eq!(shown("z"), short.len());
        let counts = ListingCounts {
            whole: 1,
            cut: 80,
            ..ListingCounts::default()
        };
        assert_eq!(listing.counts, counts);
    }

    #[test]
    fn one_skill_more_never_takes_all_descriptions_away() {
        let description = "word ".repeat(40);
        let shown = |count: usize| {
            let (listing, tokens) = fitted(&many(count, &description), 1_000);
            assert!(tokens <= 1_000, "{count}: {tokens}");
            let counts = listing.counts;
            assert_eq!(counts.whole + counts.cut + counts.bare + counts.left_out, count);
            let names = (counts.whole + counts.cut + counts.bare) * texts::listing_line("skill-00000", "").len();
            (listing.lines.len() - names, counts)
        };
        let mut before = shown(1);
        for count in 2..300 {
            let now = shown(count);
            // The new line, one description, and what rounding to words leaves free.
            assert!(now.0 + 400 >= before.0, "{count}: {before:?} {now:?}");
            assert!(now.1.left_out == 0 || now.1.cut == 0, "{count}: {now:?}");
            before = now;
        }
        assert!(before.1.bare > 0 && before.1.left_out > 0, "{before:?}");
    }

    #[test]
    fn no_description_is_cut_below_the_floor_before_names_are_alone() {
        let (listing, _) = fitted(&many(150, &"word ".repeat(100)), 4_000);
        assert_eq!(listing.counts.cut, 150);
        let shortest = listing.lines.lines().map(str::len).min().unwrap();
        assert!(
            shortest >= "<skill name=\"skill-00000\"></skill>".len() + 55,
            "{shortest}"
        );
        let (listing, tokens) = fitted(&many(300, &"word ".repeat(100)), 4_000);
        assert!(tokens > 3_900, "{tokens}");
        assert!(
            listing.counts.cut > 0 && listing.counts.bare > 0,
            "{:?}",
            listing.counts
        );
        assert_eq!(listing.counts.left_out, 0);
    }

    #[test]
    fn names_that_do_not_fit_are_counted() {
        let (listing, tokens) = fitted(&many(10_000, "d"), 4_000);
        assert!(tokens <= 4_000 && tokens > 3_900, "{tokens}");
        let left_out = listing.counts.left_out;
        assert_eq!(listing.lines.lines().count() + left_out, 10_000);
        let block = listing.block(texts::LOAD_SKILL).unwrap();
        assert!(block.contains(&format!("({left_out} more: call load_skill with a few words)")));
    }

    #[test]
    fn a_budget_of_nothing_still_counts() {
        let (listing, _) = fitted(&many(3, "d"), 0);
        assert_eq!((listing.lines.as_str(), listing.counts.left_out), ("", 3));
    }

    #[test]
    fn a_description_over_the_longest_is_cut_even_where_there_is_room() {
        let counts = listing_counts([("b", "x".repeat(1_025).as_str()), ("a", "short")], 4_000);
        assert_eq!(
            counts,
            ListingCounts {
                whole: 1,
                cut: 1,
                ..ListingCounts::default()
            }
        );
    }
}
