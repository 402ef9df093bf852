//! Usage objects: summed over rounds, every numeric leaf by key (docs/design/wire-formats.md#usage).

use crate::json::{self, Span, ValueKind};

/// Sums over finished rounds, and the round that is running.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsageSum {
    done: Option<Vec<u8>>,
    current: Option<Vec<u8>>,
}

impl UsageSum {
    /// The totals of the running round, as far as known; a later report replaces leaves of an earlier one.
    pub(crate) fn report(&mut self, usage: &[u8]) {
        self.current = Some(match &self.current {
            Some(old) => combine(old, usage, Join::Later),
            None => usage.to_vec(),
        });
    }

    /// The running round is over.
    pub(crate) fn close_round(&mut self) {
        self.done = self.total();
        self.current = None;
    }

    /// True if nothing but one report would be in the total.
    pub(crate) const fn single(&self) -> bool {
        self.done.is_none()
    }

    /// Finished rounds and the running one together.
    pub(crate) fn total(&self) -> Option<Vec<u8>> {
        match (&self.done, &self.current) {
            (Some(done), Some(current)) => Some(combine(done, current, Join::Sum)),
            (Some(one), None) | (None, Some(one)) => Some(one.clone()),
            (None, None) => None,
        }
    }
}

/// Most bytes of a list to which the elements of further rounds are added: beyond it, it is that of the last round.
const MAX_LIST: usize = 64 << 10;

/// How two reports become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Join {
    /// Two reports of one round: the later one counts.
    Later,
    /// Reports of two rounds: numbers are added.
    Sum,
}

/// Adds two numbers as written; the second wins if one is not a number that can be added.
fn add(old: &[u8], new: &[u8]) -> Vec<u8> {
    let text = |raw| std::str::from_utf8(raw).unwrap_or_default();
    if let (Ok(a), Ok(b)) = (text(old).parse::<i128>(), text(new).parse::<i128>()) {
        return a.saturating_add(b).to_string().into_bytes();
    }
    match (text(old).parse::<f64>(), text(new).parse::<f64>()) {
        (Ok(a), Ok(b)) if (a + b).is_finite() => (a + b).to_string().into_bytes(),
        _ => new.to_vec(),
    }
}

/// Joins two values: objects by key, lists of objects by their modality or as a whole, numbers; else the newer one, unless
/// it is null.
fn combine(old: &[u8], new: &[u8], join: Join) -> Vec<u8> {
    let (old_span, new_span) = (Span::new(0, old.len()), Span::new(0, new.len()));
    match (json::kind(old, old_span), json::kind(new, new_span)) {
        (Some(ValueKind::Object), Some(ValueKind::Object)) => objects(old, new, join),
        (Some(ValueKind::Array), Some(ValueKind::Array)) => lists(old, new, join),
        (Some(ValueKind::Number), Some(ValueKind::Number)) if join == Join::Sum => add(old, new),
        (_, Some(ValueKind::Null)) => old.to_vec(),
        _ => new.to_vec(),
    }
}

fn objects(old: &[u8], new: &[u8], join: Join) -> Vec<u8> {
    let (Ok(old_list), Ok(new_list)) = (
        json::members(old, Span::new(0, old.len())),
        json::members(new, Span::new(0, new.len())),
    ) else {
        return new.to_vec();
    };
    let mut out = vec![b'{'];
    let mut push = |key: &[u8], value: &[u8]| {
        if out.len() > 1 {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(key);
        out.extend_from_slice(b"\":");
        out.extend_from_slice(value);
    };
    for a in &old_list {
        let key = a.key.of(old);
        match new_list.iter().find(|b| b.key.of(new) == key) {
            // It may be a number, and is the name of what is counted.
            Some(b) if key == b"modality" => push(key, b.value.of(new)),
            Some(b) => push(key, &combine(a.value.of(old), b.value.of(new), join)),
            None => push(key, a.value.of(old)),
        }
    }
    for b in &new_list {
        let key = b.key.of(new);
        if !old_list.iter().any(|a| a.key.of(old) == key) {
            push(key, b.value.of(new));
        }
    }
    out.push(b'}');
    out
}

/// Lists of what was counted: Gemini's by modality, whose elements are joined; those that have an element for each of several
/// requests (Anthropic's `iterations`), to which a further round adds its own. Of any other list the newer one counts.
fn lists(old: &[u8], new: &[u8], join: Join) -> Vec<u8> {
    if old.len() + new.len() > MAX_LIST {
        return new.to_vec();
    }
    let elements = |src: &[u8]| {
        let spans = json::elements(src, Span::new(0, src.len())).unwrap_or_default();
        let one = |span: Span| (json::kind(src, span) == Some(ValueKind::Object)).then(|| span.of(src).to_vec());
        spans.into_iter().map(one).collect::<Option<Vec<_>>>()
    };
    let (Some(mut joined), Some(more)) = (elements(old), elements(new)) else {
        return new.to_vec();
    };
    let by_modality = joined.iter().chain(&more).all(|element| modality(element).is_some());
    if by_modality {
        for element in more {
            match joined.iter_mut().find(|own| modality(own) == modality(&element)) {
                Some(own) => *own = combine(own, &element, join),
                None => joined.push(element),
            }
        }
    } else if join == Join::Sum {
        joined.extend(more);
    } else {
        return new.to_vec();
    }
    [b"[", joined.join(&b","[..]).as_slice(), b"]"].concat()
}

/// What an element counts, as written: a word, or the number of it where a client asks for enums as numbers
/// (`enum-encoding=int`).
fn modality(element: &[u8]) -> Option<&[u8]> {
    let value = json::get(element, Span::new(0, element.len()), "modality")?;
    Some(value.of(element))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each API counts beside tokens in and out, of two rounds.
    #[test]
    fn whatever_is_counted_is_the_sum_over_rounds() {
        let cases = [
            (
                "Chat, OpenAI",
                r#"{"prompt_tokens_details":{"audio_tokens":1,"cached_tokens":2},"completion_tokens_details":{"reasoning_tokens":3,"accepted_prediction_tokens":1}}"#,
                r#"{"prompt_tokens_details":{"audio_tokens":4,"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":5,"rejected_prediction_tokens":2}}"#,
                r#"{"prompt_tokens_details":{"audio_tokens":5,"cached_tokens":2},"completion_tokens_details":{"reasoning_tokens":8,"accepted_prediction_tokens":1,"rejected_prediction_tokens":2}}"#,
            ),
            (
                "Chat, OpenRouter and Groq",
                r#"{"cost":0.5,"is_byok":false,"cost_details":{"upstream_inference_cost":null},"queue_time":0.25}"#,
                r#"{"cost":0.25,"is_byok":false,"cost_details":{"upstream_inference_cost":1},"queue_time":0.5}"#,
                r#"{"cost":0.75,"is_byok":false,"cost_details":{"upstream_inference_cost":1},"queue_time":0.75}"#,
            ),
            (
                "Responses",
                r#"{"input_tokens_details":{"cached_tokens":1,"cache_write_tokens":2},"output_tokens_details":{"reasoning_tokens":3}}"#,
                r#"{"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":5},"output_tokens_details":{"reasoning_tokens":6}}"#,
                r#"{"input_tokens_details":{"cached_tokens":5,"cache_write_tokens":7},"output_tokens_details":{"reasoning_tokens":9}}"#,
            ),
            (
                "Messages",
                r#"{"cache_creation":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":2},"server_tool_use":null,"service_tier":"standard"}"#,
                r#"{"cache_creation":{"ephemeral_5m_input_tokens":3,"ephemeral_1h_input_tokens":0},"server_tool_use":{"web_search_requests":1,"web_fetch_requests":2},"service_tier":"priority"}"#,
                r#"{"cache_creation":{"ephemeral_5m_input_tokens":4,"ephemeral_1h_input_tokens":2},"server_tool_use":{"web_search_requests":1,"web_fetch_requests":2},"service_tier":"priority"}"#,
            ),
            (
                "Messages, requests within a round",
                r#"{"iterations":[{"type":"compaction","input_tokens":9},{"type":"message","input_tokens":1}]}"#,
                r#"{"iterations":[{"type":"message","input_tokens":2}]}"#,
                r#"{"iterations":[{"type":"compaction","input_tokens":9},{"type":"message","input_tokens":1},{"type":"message","input_tokens":2}]}"#,
            ),
            (
                "Gemini",
                r#"{"thoughtsTokenCount":1,"toolUsePromptTokenCount":2,"promptTokensDetails":[{"modality":"TEXT","tokenCount":3}],"cacheTokensDetails":[],"trafficType":"ON_DEMAND"}"#,
                r#"{"thoughtsTokenCount":4,"toolUsePromptTokenCount":5,"promptTokensDetails":[{"modality":"AUDIO","tokenCount":6},{"modality":"TEXT","tokenCount":7}],"cacheTokensDetails":[{"modality":"TEXT","tokenCount":8}],"trafficType":"ON_DEMAND"}"#,
                r#"{"thoughtsTokenCount":5,"toolUsePromptTokenCount":7,"promptTokensDetails":[{"modality":"TEXT","tokenCount":10},{"modality":"AUDIO","tokenCount":6}],"cacheTokensDetails":[{"modality":"TEXT","tokenCount":8}],"trafficType":"ON_DEMAND"}"#,
            ),
            (
                "Gemini, enums as numbers",
                r#"{"promptTokensDetails":[{"modality":1,"tokenCount":3},{"modality":2,"tokenCount":1}]}"#,
                r#"{"promptTokensDetails":[{"modality":1,"tokenCount":4}]}"#,
                r#"{"promptTokensDetails":[{"modality":1,"tokenCount":7},{"modality":2,"tokenCount":1}]}"#,
            ),
            (
                "a list of words",
                r#"{"models":["a"]}"#,
                r#"{"models":["b"]}"#,
                r#"{"models":["b"]}"#,
            ),
        ];
        for (api, first, second, both) in cases {
            let mut sum = UsageSum::default();
            sum.report(first.as_bytes());
            sum.close_round();
            // A stream says it more than once.
            sum.report(second.as_bytes());
            sum.report(second.as_bytes());
            let total = String::from_utf8(sum.total().unwrap()).unwrap();
            assert_eq!(total, both, "{api}");
        }
    }

    #[test]
    fn a_list_stops_growing() {
        let long = format!(r#"{{"iterations":[{{"type":"{}"}}]}}"#, "x".repeat(MAX_LIST / 2));
        let mut sum = UsageSum::default();
        for _ in 0..4 {
            sum.report(long.as_bytes());
            sum.close_round();
        }
        assert_eq!(sum.total().unwrap(), long.as_bytes());
    }
}
