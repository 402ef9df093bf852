//! One text matcher, as scripts write it: a plain string, or a map with one of five keys.

use std::fmt;

use regex::Regex;
use serde::Deserialize;
use serde::de::{self, MapAccess, SeqAccess, Visitor};

/// A test on one text.
///
/// Shape in YAML: `plain words`, or one of `{equals: …}`, `{contains: …}`, `{line: …}`, `{prefix: …}`, `{suffix: …}`,
/// `{regex: …}`. A plain string means "contains" for texts and "equals" for names.
#[derive(Debug, Clone)]
pub enum Match {
    /// A plain string; its meaning depends on the field.
    Plain(String),
    /// The whole text.
    Equals(String),
    /// A part of the text.
    Contains(String),
    /// One whole line of the text, without its line end.
    Line(String),
    /// The start of the text.
    Prefix(String),
    /// The end of the text.
    Suffix(String),
    /// A regular expression that is found somewhere in the text.
    Regex(Regex),
}

impl Match {
    /// Whether a running text matches; a plain string matches anywhere in it.
    pub fn holds_for_text(&self, text: &str) -> bool {
        match self {
            Self::Plain(part) | Self::Contains(part) => text.contains(part.as_str()),
            Self::Equals(whole) => text == whole,
            Self::Line(line) => text.lines().any(|candidate| candidate == line),
            Self::Prefix(start) => text.starts_with(start.as_str()),
            Self::Suffix(end) => text.ends_with(end.as_str()),
            Self::Regex(pattern) => pattern.is_match(text),
        }
    }

    /// Whether a name matches; a plain string is the whole name.
    pub fn holds_for_name(&self, name: &str) -> bool {
        match self {
            Self::Plain(whole) => name == whole,
            other => other.holds_for_text(name),
        }
    }
}

impl fmt::Display for Match {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(text) => write!(formatter, "{text:?}"),
            Self::Equals(text) => write!(formatter, "exactly {text:?}"),
            Self::Contains(text) => write!(formatter, "something with {text:?}"),
            Self::Line(text) => write!(formatter, "the line {text:?}"),
            Self::Prefix(text) => write!(formatter, "something that starts with {text:?}"),
            Self::Suffix(text) => write!(formatter, "something that ends with {text:?}"),
            Self::Regex(pattern) => write!(formatter, "the pattern {:?}", pattern.as_str()),
        }
    }
}

impl<'de> Deserialize<'de> for Match {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MatchVisitor)
    }
}

struct MatchVisitor;

impl<'de> Visitor<'de> for MatchVisitor {
    type Value = Match;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string, or a map with one of the keys equals, contains, line, prefix, suffix, regex")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Match, E> {
        Ok(Match::Plain(text.to_owned()))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Match, E> {
        Ok(Match::Plain(number.to_string()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Match, E> {
        Ok(Match::Plain(number.to_string()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Match, A::Error> {
        let Some((key, text)) = map.next_entry::<String, String>()? else {
            return Err(de::Error::custom(
                "an empty map matches nothing; write {contains: …} or a plain string",
            ));
        };
        let found = match key.as_str() {
            "equals" => Match::Equals(text),
            "contains" => Match::Contains(text),
            "line" => Match::Line(text),
            "prefix" => Match::Prefix(text),
            "suffix" => Match::Suffix(text),
            "regex" => Match::Regex(
                Regex::new(&text)
                    .map_err(|error| de::Error::custom(format!("regex {text:?} does not compile: {error}")))?,
            ),
            other => {
                return Err(de::Error::unknown_field(
                    other,
                    &["equals", "contains", "line", "prefix", "suffix", "regex"],
                ));
            }
        };
        if map.next_key::<String>()?.is_some() {
            return Err(de::Error::custom(
                "a matcher has exactly one key; write a list to ask for several",
            ));
        }
        Ok(found)
    }
}

/// One matcher or a list of them; all of a list must hold.
#[derive(Debug, Clone, Default)]
pub struct Matches(pub Vec<Match>);

impl<'de> Deserialize<'de> for Matches {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MatchesVisitor)
    }
}

struct MatchesVisitor;

impl<'de> Visitor<'de> for MatchesVisitor {
    type Value = Matches;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a matcher (a string or a map with one key) or a list of matchers")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Matches, E> {
        MatchVisitor.visit_str(text).map(|one| Matches(vec![one]))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Matches, E> {
        MatchVisitor.visit_u64(number).map(|one| Matches(vec![one]))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Matches, E> {
        MatchVisitor.visit_i64(number).map(|one| Matches(vec![one]))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Matches, A::Error> {
        MatchVisitor.visit_map(map).map(|one| Matches(vec![one]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Matches, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = list.next_element::<Match>()? {
            all.push(one);
        }
        Ok(Matches(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(yaml: &str) -> Match {
        serde_saphyr::from_str(yaml).unwrap()
    }

    #[test]
    fn a_plain_string_is_a_part_of_a_text_and_the_whole_of_a_name() {
        let plain = parse("gif");
        assert!(plain.holds_for_text("make a gif"));
        assert!(!plain.holds_for_name("gif_maker"));
        assert!(plain.holds_for_name("gif"));
    }

    #[test]
    fn every_key_tests_what_it_says() {
        for (yaml, yes, no) in [
            ("{equals: a}", "a", "ab"),
            ("{contains: a}", "xay", "xy"),
            ("{line: b}", "a\nb\nc", "abc"),
            ("{prefix: a}", "ab", "ba"),
            ("{suffix: __x}", "s__x", "__xs"),
            ("{regex: '^a+$'}", "aaa", "aab"),
            ("5", "exit 5", "exit 4"),
        ] {
            let matcher = parse(yaml);
            assert!(matcher.holds_for_text(yes), "{yaml} on {yes:?}");
            assert!(!matcher.holds_for_text(no), "{yaml} on {no:?}");
        }
    }

    #[test]
    fn wrong_matchers_are_refused_with_a_reason() {
        for (yaml, reason) in [
            ("{like: a}", "like"),
            ("{regex: '('}", "does not compile"),
            ("{equals: a, line: b}", "exactly one key"),
        ] {
            let error = serde_saphyr::from_str::<Match>(yaml).unwrap_err().to_string();
            assert!(error.contains(reason), "{yaml}: {error}");
        }
    }

    #[test]
    fn a_list_keeps_every_matcher() {
        let Matches(all) = serde_saphyr::from_str("[a, {suffix: b}]").unwrap();
        assert_eq!(all.len(), 2);
    }
}
