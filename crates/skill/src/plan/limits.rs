//! When nothing is injected, independent of the catalog, and how long the texts of one request may be.

use std::collections::BTreeMap;

use super::select::NamedSkill;
use super::types::{Note, PlanError, PlanRequest, ToolChoice};
use crate::catalog::{CatalogEntry, CatalogSettings};
use crate::template::{FilledTooLarge, MAX_FILLED_BYTES};

/// The bytes of the bodies that a request gets beside those of every request. Refused if those with inputs of the request are
/// above the bound of one filled text together: a request may name every skill.
pub(super) fn text_bytes(named: &[NamedSkill<'_>], scored: &[&CatalogEntry]) -> Result<usize, PlanError> {
    let (mut bytes, mut filled) = (0_usize, 0_usize);
    for skill in named {
        // It asks for its inputs in place of its body.
        if !skill.entry.missing_inputs(&skill.inputs).is_empty() {
            continue;
        }
        if skill.inputs.is_empty() {
            bytes = bytes.saturating_add(own_bytes(skill.entry));
            continue;
        }
        let body = skill.entry.body_bytes(&skill.inputs);
        bytes = bytes.saturating_add(body);
        filled = filled.saturating_add(body);
        if filled > MAX_FILLED_BYTES {
            return Err(PlanError::InputsTooLong {
                skill: skill.entry.handle.clone(),
                error: FilledTooLarge { bytes: filled },
            });
        }
    }
    Ok(scored
        .iter()
        .map(|entry| own_bytes(entry))
        .fold(bytes, usize::saturating_add))
}

/// The bytes of a body whose values are a pin's and defaults; one that these make too long is left out.
fn own_bytes(entry: &CatalogEntry) -> usize {
    let bytes = entry.body_bytes(&BTreeMap::new());
    if bytes > MAX_FILLED_BYTES { 0 } else { bytes }
}

/// The reason why this request is left alone, if there is one.
pub(super) fn off(request: &PlanRequest<'_>, settings: &CatalogSettings, header_none: bool) -> Option<Note> {
    if header_none {
        return Some(Note::off("x-knack-skills", "the header x-knack-skills says none"));
    }
    match request.tool_choice {
        ToolChoice::Free => {}
        ToolChoice::None => return Some(Note::off("tool_choice", "tool_choice is none")),
        ToolChoice::AllowedTools => return Some(Note::off("allowed_tools", "tool_choice is allowed_tools")),
        ToolChoice::Closed(word) => return Some(Note::off(word, format!("the request uses {word}"))),
    }
    if !settings.models.is_empty() && !settings.models.iter().any(|pattern| matches(pattern, request.model)) {
        return Some(Note::off(
            "model",
            format!("the runtime does not inject for model {}", request.model),
        ));
    }
    if let Some(max_tokens) = request.max_tokens.filter(|tokens| *tokens < settings.min_max_tokens) {
        return Some(Note::off(
            "max_tokens",
            format!(
                "max_tokens {max_tokens} is below the runtime's minimum of {}",
                settings.min_max_tokens
            ),
        ));
    }
    None
}

/// Whether a text matches a pattern in which `*` matches any run of characters. Linear backtracking: only the last star
/// is retried.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(byte) if text.get(t) == Some(byte) => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                p = after;
                t = from + 1;
            }
        }
    }
    pattern
        .get(p..)
        .is_none_or(|rest| rest.iter().all(|byte| *byte == b'*'))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn star_matches_any_run() {
        for (pattern, text, expected) in [
            ("gpt-4o", "gpt-4o", true),
            ("gpt-4o", "gpt-4o-mini", false),
            ("gpt-*", "gpt-4o-mini", true),
            ("*claude*", "bedrock/claude-3", true),
            ("*-mini", "gpt-4o-mini", true),
            ("*-mini", "gpt-4o-mini-x", false),
            ("*", "", true),
            ("", "x", false),
            ("a*b*c", "a-b-b-c", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
