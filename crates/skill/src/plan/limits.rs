//! When nothing is injected, independent of the catalog.

use super::types::{PlanRequest, ToolChoice};
use crate::catalog::CatalogSettings;

/// The reason why this request is left alone, if there is one.
pub(super) fn off(request: &PlanRequest<'_>, settings: &CatalogSettings, header_none: bool) -> Option<String> {
    if header_none {
        return Some("the header x-knack-skills says none".to_owned());
    }
    match request.tool_choice {
        ToolChoice::Free => {}
        ToolChoice::None => return Some("tool_choice is none".to_owned()),
        ToolChoice::AllowedTools => return Some("tool_choice is allowed_tools".to_owned()),
        ToolChoice::Closed(word) => return Some(format!("the request uses {word}")),
    }
    if !settings.models.is_empty() && !settings.models.iter().any(|pattern| matches(pattern, request.model)) {
        return Some(format!("the runtime does not inject for model {}", request.model));
    }
    if let Some(max_tokens) = request.max_tokens.filter(|tokens| *tokens < settings.min_max_tokens) {
        return Some(format!(
            "max_tokens {max_tokens} is below the runtime's minimum of {}",
            settings.min_max_tokens
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
