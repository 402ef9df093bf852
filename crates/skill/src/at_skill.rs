//! `@name text` at the start of a user message, and the mapping of texts to a skill's inputs (Agent Flow Lite, docs/design/dialects.md#mentions).

use std::collections::BTreeMap;

use crate::model::Input;

/// A message that names a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mention<'a> {
    /// The name as written: lower-case letters, digits, hyphens.
    pub skill: &'a str,
    /// Everything after the blanks that follow the name, trailing blanks kept.
    pub text: &'a str,
}

/// Reads `^@([a-z0-9-]+)\s+(.+)$`, the dot matching newlines. `None`: a plain message.
pub fn parse(message: &str) -> Option<Mention<'_>> {
    let rest = message.strip_prefix('@')?;
    let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'))?;
    let (skill, after) = rest.split_at(end);
    let text = after.trim_start_matches(is_blank);
    let found = !skill.is_empty() && text.len() < after.len();
    if found && !text.is_empty() {
        return Some(Mention { skill, text });
    }
    // Only blanks follow: the pattern gives back one blank as the text if it has two.
    let last = after.char_indices().next_back()?.0;
    (found && last > 0).then(|| Mention {
        skill,
        text: &after[last..],
    })
}

/// What `\s` matches in Python: Unicode white space and the four separators U+001C to U+001F.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Gives the text to the first required input, else to the first, else to none.
pub fn map_text(inputs: &[Input], text: &str) -> BTreeMap<String, String> {
    let input = inputs.iter().find(|input| input.required).or_else(|| inputs.first());
    input
        .map(|input| (input.name.clone(), text.to_owned()))
        .into_iter()
        .collect()
}
