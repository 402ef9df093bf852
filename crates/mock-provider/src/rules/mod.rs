//! The provider's refusals: one small function per rule, in one table per format.
//!
//! A rule reads values and answers with the refusal that a real provider gives (status, kind, text, place). The texts
//! are those of the real APIs; where providers differ, the mock follows the stricter one.

mod chat_fields;
mod chat_messages;
mod chat_tools;
mod gemini_code;
mod gemini_contents;
pub(super) mod gemini_fields;
mod messages_blocks;
mod messages_fields;
mod messages_results;
mod messages_thinking;
mod messages_tools;
mod responses_fields;
mod responses_items;
mod responses_shell;
mod schemas;
mod values;

use serde_json::Value;

use super::script::{FormatName, Provider};

/// The input of a rule.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuleInput<'a> {
    /// Header names in lower case.
    pub(super) headers: &'a [(String, String)],
    pub(super) body: &'a Value,
    /// The model, where the path names it (Gemini).
    pub(super) model: &'a str,
    pub(super) provider: &'a Provider,
    /// The request only counts tokens: fields of an answer are not asked for.
    pub(super) counting: bool,
    /// The path is one of Vertex AI's, which is stricter than Google's other API (Gemini).
    pub(super) vertex: bool,
}

impl RuleInput<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A refusal, before it takes the shape of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProviderRefusal {
    pub(super) status: u16,
    /// `error.type`.
    pub(super) kind: &'static str,
    pub(super) message: String,
    /// `error.param` of Chat and Responses; not shown in the others.
    pub(super) param: Option<String>,
    /// `error.code` of Chat and Responses, `error.details.error_code` of Messages; not shown in Gemini.
    pub(super) code: Option<&'static str>,
    /// The rule that refuses, if one does.
    pub(super) rule: Option<&'static str>,
}

impl ProviderRefusal {
    /// An invalid request.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self {
            status: 400,
            kind: "invalid_request_error",
            message: message.into(),
            param: None,
            code: None,
            rule: None,
        }
    }

    /// An invalid request with the place of the fault.
    pub(super) fn at(param: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            param: Some(param.into()),
            code: Some(code),
            ..Self::invalid(message)
        }
    }
}

/// One rule.
#[derive(Debug)]
pub(super) struct Rule {
    /// A short name, unique within the format.
    pub(super) name: &'static str,
    /// The test.
    pub(super) check: fn(&RuleInput<'_>) -> Result<(), ProviderRefusal>,
}

/// The rules of a format, in the order in which they are tested.
pub(super) fn rules(format: FormatName) -> Vec<&'static Rule> {
    let tables: &[&'static [Rule]] = match format {
        FormatName::Chat => &[chat_fields::RULES, chat_messages::RULES, chat_tools::RULES],
        FormatName::Messages => &[
            messages_fields::RULES,
            messages_blocks::RULES,
            messages_results::RULES,
            messages_thinking::RULES,
            messages_tools::RULES,
        ],
        FormatName::Responses => &[responses_fields::RULES, responses_items::RULES, responses_shell::RULES],
        FormatName::Gemini => &[gemini_fields::RULES, gemini_contents::RULES, gemini_code::RULES],
    };
    tables.iter().flat_map(|table| table.iter()).collect()
}

/// The members that are written at the top of a JSON object, doubles counted; 0 for anything else.
pub(super) fn member_count(bytes: &[u8]) -> usize {
    struct Count;
    impl<'de> serde::de::Visitor<'de> for Count {
        type Value = usize;
        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("an object")
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<usize, A::Error> {
            let mut count = 0;
            while map
                .next_entry::<serde::de::IgnoredAny, serde::de::IgnoredAny>()?
                .is_some()
            {
                count += 1;
            }
            Ok(count)
        }
    }
    serde::Deserializer::deserialize_map(&mut serde_json::Deserializer::from_slice(bytes), Count).unwrap_or_default()
}

/// Refuses what a real provider refuses: the first broken rule.
pub(super) fn check(format: FormatName, rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    rules(format).into_iter().try_for_each(|rule| {
        (rule.check)(rule_input).map_err(|refusal| ProviderRefusal {
            rule: Some(rule.name),
            ..refusal
        })
    })
}

#[cfg(test)]
mod tests;
