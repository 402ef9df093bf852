//! YAML with line numbers, read within fixed bounds.
//!
//! Text goes in, a tree of [`Node`]s comes out: the JSON value, its line, and how it was written. Aliases are expanded
//! by the parser inside its budget, so a bomb ends as an error, never as memory.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Options, Spanned, Tagged};

/// Deepest nesting that is read. Real frontmatter has at most 6 levels; every consumer recurses, so this is also a stack bound.
const MAX_DEPTH: usize = 32;
/// Most nodes of one document: a frontmatter of 100 tools with 20 parameters has about 10,000.
const MAX_NODES: usize = 50_000;
/// Most alias uses. Frontmatter has none or a handful.
const MAX_ALIASES: usize = 200;
/// Most bytes of all scalars together, aliases expanded: the file limit twice.
const MAX_SCALAR_BYTES: usize = 2 * 1024 * 1024;

/// Tags of the YAML core schema. Every other tag is of a language or an application: what it asks for is not done here, and the
/// value without it would mean something else.
const CORE_TAGS: [&str; 7] = ["str", "int", "float", "bool", "null", "seq", "map"];

/// The message about a tab in an indentation. The parser takes one where only one key follows, and refuses it in all other places.
pub(crate) const TAB_INDENTATION: &str = "a tab is in the indentation of a key or list";

/// How the parser's messages about bounds begin.
const BOUND_MESSAGES: [&str; 4] = ["budget breached", "recursion limit", "alias replay", "alias expansion"];

/// One YAML value with where and how it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Line in the text given to [`parse`], from 1; 0 if unknown.
    pub line: u32,
    /// Byte range in that text, if known.
    pub span: Option<(usize, usize)>,
    /// The value.
    pub content: Content,
}

/// What a node holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Null, boolean, number or string.
    Scalar(Value),
    /// A list.
    Sequence(Vec<Node>),
    /// A mapping in written order, repeated keys included.
    Mapping(Vec<(String, Node)>),
}

/// Why a text is not YAML that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlError {
    /// Line in the text, from 1, if the parser knows it.
    pub line: Option<u32>,
    /// What is wrong, one line.
    pub message: String,
    /// Whether the text is over one of this module's bounds, not broken.
    pub is_bound: bool,
}

impl Node {
    /// The value as JSON; of a repeated key the last one counts.
    pub fn to_json(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::Sequence(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Content::Mapping(members) => {
                let mut map = Map::new();
                for (key, node) in members {
                    map.insert(key.clone(), node.to_json());
                }
                Value::Object(map)
            }
        }
    }

    /// A member of a mapping; of a repeated key the last one.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.content {
            Content::Mapping(members) => members.iter().rev().find(|(name, _)| name == key).map(|(_, node)| node),
            _ => None,
        }
    }

    /// An item of a sequence.
    pub fn item(&self, index: usize) -> Option<&Self> {
        match &self.content {
            Content::Sequence(items) => items.get(index),
            _ => None,
        }
    }

    /// The line of a field path such as `inputs[0].name`; the line of the deepest part that exists.
    pub fn line_of(&self, field: &str) -> u32 {
        let mut node = self;
        for step in field.split(['.', '[']) {
            let next = match step.strip_suffix(']') {
                Some(index) => index.parse().ok().and_then(|index| node.item(index)),
                None => node.get(step),
            };
            match next {
                Some(found) => node = found,
                None => break,
            }
        }
        node.line
    }

    /// The text of a scalar as it was written, numbers and booleans not interpreted: `1.50` stays `1.50`.
    ///
    /// `text` is what was parsed. `None` for lists and mappings.
    pub fn plain_text(&self, text: &str) -> Option<String> {
        let Content::Scalar(value) = &self.content else {
            return None;
        };
        if let Value::String(text) = value {
            return Some(text.clone());
        }
        let written = self.span.and_then(|(from, to)| text.get(from..to));
        Some(written.map_or_else(|| value.to_string(), |written| written.trim().to_owned()))
    }

    /// What a strict reader refuses although it is YAML: a flow collection, a tag, an anchor or an alias; with its line.
    ///
    /// `text` is what was parsed.
    pub fn unusual_form(&self, text: &str) -> Option<(&'static str, u32)> {
        let (from, _) = self.span?;
        let start = text.get(from..)?;
        let before = text
            .get(..from)?
            .trim_end()
            .rsplit([' ', '\t', '\n'])
            .next()
            .unwrap_or_default();
        let scalar = matches!(self.content, Content::Scalar(_));
        let form = if !scalar && start.starts_with(['[', '{']) {
            Some("a list or mapping in brackets")
        } else if start.starts_with('*') {
            Some("an alias")
        } else if before.starts_with('!') {
            Some("a tag")
        } else if before.starts_with('&') {
            Some("an anchor")
        } else {
            None
        };
        form.map(|form| (form, self.line)).or_else(|| match &self.content {
            Content::Scalar(_) => None,
            Content::Sequence(items) => items.iter().find_map(|item| item.unusual_form(text)),
            Content::Mapping(members) => members.iter().find_map(|(_, node)| node.unusual_form(text)),
        })
    }

    /// The line of the first mapping or list that is indented with a tab, which YAML does not have and other readers refuse. In
    /// brackets a tab is a blank.
    fn tab_indentation(&self, text: &str) -> Option<u32> {
        let (from, _) = self.span?;
        let (before, here) = text.split_at_checked(from)?;
        // What an alias names is checked where it is written.
        if matches!(self.content, Content::Scalar(_)) || here.starts_with(['[', '{', '*']) {
            return None;
        }
        let line_start = before.trim_end_matches([' ', '\t', '-', '?', ':']);
        let is_first = line_start.is_empty() || line_start.ends_with('\n');
        // A list that is as far left as its key has the place of its first item, which a tab may precede.
        let is_item = here
            .strip_prefix('-')
            .is_some_and(|item| item.starts_with(char::is_whitespace));
        let has_place = is_item || matches!(self.content, Content::Mapping(_));
        if is_first && has_place && before[line_start.len()..].contains('\t') {
            return Some(self.line);
        }
        match &self.content {
            Content::Scalar(_) => None,
            Content::Sequence(items) => items.iter().find_map(|item| item.tab_indentation(text)),
            Content::Mapping(members) => members.iter().find_map(|(_, node)| node.tab_indentation(text)),
        }
    }

    /// The first key that appears twice in one mapping, with its line.
    pub fn repeated_key(&self) -> Option<(&str, u32)> {
        match &self.content {
            Content::Scalar(_) => None,
            Content::Sequence(items) => items.iter().find_map(Self::repeated_key),
            Content::Mapping(members) => {
                let mut seen = std::collections::HashSet::new();
                let here = members.iter().find(|(key, _)| !seen.insert(key.as_str()));
                here.map(|(key, node)| (key.as_str(), node.line))
                    .or_else(|| members.iter().find_map(|(_, node)| node.repeated_key()))
            }
        }
    }
}

/// Reads one YAML document. YAML 1.2: `yes`, `on`, `off` are words, not booleans.
///
/// An empty text is a null node. Errors: not YAML, more than one document, or over one of this module's bounds.
pub fn parse(text: &str) -> Result<Node, YamlError> {
    let options = bounded_options(MergeKeyPolicy::Merge);
    let node = serde_saphyr::from_str_with_options::<Node>(text, options).map_err(|error| {
        let line = line_of(&error);
        let text = error.without_snippet().to_string();
        let first = text.lines().next().unwrap_or("unreadable");
        let is_bound = BOUND_MESSAGES.iter().any(|start| first.starts_with(start));
        // The position is separate from the message: it is counted from the frontmatter, not from the file.
        let message = if is_bound {
            "it is nested too deep, or has too many values or aliases".to_owned()
        } else {
            first.rfind(" at line ").map_or(first, |at| &first[..at]).to_owned()
        };
        YamlError {
            line,
            message,
            is_bound,
        }
    })?;
    match text.contains('\t').then(|| node.tab_indentation(text)).flatten() {
        Some(line) => Err(YamlError {
            line: Some(line),
            message: TAB_INDENTATION.to_owned(),
            is_bound: false,
        }),
        None => Ok(node),
    }
}

/// The line of a merge key (`<<`) in a text that [`parse`] reads, where what it merges stands like any other member.
pub fn merge_key(text: &str) -> Option<u32> {
    if !text.contains("<<") {
        return None;
    }
    let options = bounded_options(MergeKeyPolicy::Error);
    let refused = serde_saphyr::from_str_with_options::<Node>(text, options).err()?;
    Some(line_of(&refused).unwrap_or_default())
}

fn line_of(error: &serde_saphyr::Error) -> Option<u32> {
    let location = error.location()?;
    Some(u32::try_from(location.line()).unwrap_or(u32::MAX))
}

fn bounded_options(merge_keys: MergeKeyPolicy) -> Options {
    serde_saphyr::options! {
        merge_keys: merge_keys,
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: MAX_NODES * 3,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
            max_documents: 1,
            max_total_scalar_bytes: MAX_SCALAR_BYTES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
            max_replay_stack_depth: MAX_DEPTH,
            max_alias_expansions_per_anchor: MAX_ALIASES,
        },
        // JSON has no form for infinity: the word stays.
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        strict_booleans: true,
        // The author of `007` or `1_000` means a text.
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        with_snippet: false,
    }
}

// Reading.

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Tagged<Content>>::deserialize(deserializer)?;
        let location = spanned.referenced;
        let Tagged(content, tag) = spanned.value;
        refuse_foreign(tag.as_deref())?;
        let span = location.span();
        let bytes = span.byte_offset().zip(span.byte_len());
        Ok(Self {
            line: u32::try_from(location.line()).unwrap_or(u32::MAX),
            span: bytes.and_then(|(from, len)| {
                let from = usize::try_from(from).ok()?;
                Some((from, from.checked_add(usize::try_from(len).ok()?)?))
            }),
            content,
        })
    }
}

fn refuse_foreign<E: serde::de::Error>(tag: Option<&str>) -> Result<(), E> {
    let Some(tag) = tag else { return Ok(()) };
    let name = tag.trim_start_matches("tag:yaml.org,2002:").trim_start_matches('!');
    if name.is_empty() || CORE_TAGS.contains(&name) {
        return Ok(());
    }
    Err(E::custom(format!(
        "the tag !{} is not supported",
        crate::inputs::shortened(name)
    )))
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
        // `.inf` and `.nan` have no JSON form; their words say more than null would.
        let number = Number::from_f64(value).map_or_else(|| Value::String(value.to_string()), Value::Number);
        Ok(Content::Scalar(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Scalar(Value::String(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<Content, E> {
        Ok(Content::Scalar(Value::String(value)))
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        Content::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Content, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Content::Sequence(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Content, A::Error> {
        let mut members = Vec::new();
        while let Some((Tagged(key, tag), node)) = access.next_entry::<Tagged<Option<String>>, Node>()? {
            refuse_foreign(tag.as_deref())?;
            members.push((key.unwrap_or_else(|| "null".to_owned()), node));
        }
        Ok(Content::Mapping(members))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn values_keep_their_lines() {
        let node = parse("a: 1\nlist:\n  - name: x\n    on: yes\n  - 2.5\nlast: null\n").unwrap();
        assert_eq!(
            node.to_json(),
            json!({"a": 1, "list": [{"name": "x", "on": "yes"}, 2.5], "last": null})
        );
        assert_eq!(node.line_of("a"), 1);
        assert_eq!(node.line_of("list[0].on"), 4);
        assert_eq!(node.line_of("list[1]"), 5);
        assert_eq!(node.line_of("list[1].absent"), 5);
    }

    #[test]
    fn scalars_are_those_of_yaml_1_2() {
        let node =
            parse("a: 010\nb: 0o10\nc: 1_000\nd: 1e3\ne: +1\nf: 12:30\ng: Null\nh: TRUE\ni: off\nj: .inf\n").unwrap();
        let expected = json!({"a": "010", "b": 8, "c": "1_000", "d": 1000.0, "e": 1, "f": "12:30", "g": null, "h": true,
            "i": "off", "j": ".inf"});
        assert_eq!(node.to_json(), expected);
        let keys = parse("1: a\nnull: b\ntrue: c\n1.50: d\n").unwrap().to_json();
        assert_eq!(keys, json!({"1": "a", "null": "b", "true": "c", "1.50": "d"}));
        assert_eq!(parse("").unwrap().to_json(), Value::Null);
        assert_eq!(parse("# only a comment\n").unwrap().to_json(), Value::Null);
        assert!(parse("a: 1\n...\nb: 2\n").is_err());
    }

    #[test]
    fn spans_show_how_a_scalar_was_written() {
        let text = "é: 1.50\nb: [x]\nc: 'q'\nd: !!str y\ne: &anchor z\nf: *anchor\n";
        let node = parse(text).unwrap();
        for (key, written) in [("é", "1.50"), ("c", "'q'")] {
            let (from, to) = node.get(key).unwrap().span.unwrap();
            assert_eq!(&text[from..to], written, "{key}");
        }
        for (key, shown) in [("b", "[x]"), ("d", "!!str"), ("e", "&anchor"), ("f", "*anchor")] {
            let found = node.get(key).unwrap().unusual_form(text);
            assert!(found.is_some(), "{key} is written as {shown}");
        }
        assert_eq!(
            parse("a: 1.50\nb: [x]\n").unwrap().plain_text("a: 1.50\nb: [x]\n"),
            None
        );
        assert_eq!(node.get("é").unwrap().plain_text(text).as_deref(), Some("1.50"));
        assert_eq!(node.get("é").unwrap().unusual_form(text), None);
    }

    #[test]
    fn a_merge_key_is_read_and_can_be_found() {
        for (text, line) in [
            ("a: 1\n<<: {b: 2}\n", Some(2)),
            ("a: 1\n<<:\n  b: 2\n", Some(2)),
            ("a: 1\nc:\n  d: 1\n  <<: {b: 2}\n", Some(4)),
            ("a: x << y\nb: <<\n", None),
            ("a: 1\n", None),
        ] {
            assert_eq!(merge_key(text), line, "{text}");
        }
        assert_eq!(parse("a: 1\n<<: {b: 2}\n").unwrap().to_json(), json!({"a": 1, "b": 2}));
    }

    #[test]
    fn an_empty_value_has_empty_text() {
        let text = "a:\nb: ~\nc: null # note\n";
        let node = parse(text).unwrap();
        let texts: Vec<_> = ["a", "b", "c"]
            .iter()
            .map(|key| node.get(key).unwrap().plain_text(text))
            .collect();
        assert_eq!(
            texts,
            [Some(String::new()), Some("~".to_owned()), Some("null".to_owned())]
        );
    }

    #[test]
    fn the_last_of_repeated_keys_counts_and_is_reported() {
        let node = parse("a: 1\nb:\n  c: 1\n  c: 2\n").unwrap();
        assert_eq!(node.to_json()["b"]["c"], 2);
        assert_eq!(node.repeated_key(), Some(("c", 4)));
    }

    #[test]
    fn an_alias_bomb_is_an_error() {
        let mut text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (from, to) in [('a', 'b'), ('b', 'c'), ('c', 'd'), ('d', 'e'), ('e', 'f'), ('f', 'g')] {
            let uses = vec![format!("*{from}"); 8].join(", ");
            writeln!(text, "{to}: &{to} [{uses}]").unwrap();
        }
        assert!(parse(&text).is_err());
    }

    #[test]
    fn tags_of_languages_and_applications_are_errors() {
        for (text, line) in [
            ("a: 1\nb: !!python/object/apply:os.system [x]\n", 2),
            ("a: !ruby/object:Foo x\n", 1),
            ("a:\n  b: !!js/function 'x'\n", 2),
            ("a: [1, !env HOME]\n", 1),
            ("a: !include other.yaml\n", 1),
            ("a: !!binary aGk=\n", 1),
            ("a: !!timestamp 2020-01-01\n", 1),
            // The parser names no line for a key's tag, nor for that of the whole document.
            ("!!python/name:x a: 1\n", 0),
            ("--- !!set {a, b}\n", 0),
            ("%TAG !p! tag:python.org,2000:\n---\na: !p!name x\n", 3),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message.contains("tag"), "{text}: {error:?}");
            assert_eq!(error.line.unwrap_or(0), line, "{text}: {error:?}");
        }
        let text = "a: !!str 5\nb: !!int 7\nc: ! x\nd: !!seq [1]\ne: !!map {k: !!null null}\nf: !!bool true\n";
        let expected = json!({"a": "5", "b": 7, "c": "x", "d": [1], "e": {"k": null}, "f": true});
        assert_eq!(parse(text).unwrap().to_json(), expected);
    }

    #[test]
    fn deep_nesting_is_an_error() {
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(parse(&format!("{}1{}", "[".repeat(100), "]".repeat(100))).is_err());
    }

    #[test]
    fn a_tab_is_no_indentation_and_stays_what_it_is_elsewhere() {
        for (text, line) in [
            ("\tname: a\n", 1),
            (" \tname: a\n", 1),
            ("# note\n\n\tname: a\n", 3),
            ("---\n\tname: a\n", 2),
            ("a:\n \tb: 1\n", 2),
            ("é: ü\na:\n  \tb: 1\nc: 2\n", 3),
            ("a:\n- b: 1\n-\tb: 1\n", 3),
            ("a:\n  -\tb: 1\n    c: 2\n", 2),
            ("a:\n \t- b\n", 2),
            ("\t- b\n", 1),
            ("a:\r\n \tb: 1\r\n", 2),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(
                (error.line, error.message.as_str()),
                (Some(line), TAB_INDENTATION),
                "{text:?}"
            );
        }
        // The parser's own refusals: a tab before a later key, or alone before the first.
        for text in ["a:\n\tb: 1\n", "a:\n  b: 1\n\tc: 2\n", "\ta: 1\n\tb: 2\n"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        for (text, expected) in [
            ("a:\tb\n", json!({"a": "b"})),
            ("a:\n-\tb\n", json!({"a": ["b"]})),
            ("a:\n-\t-5\n", json!({"a": [-5]})),
            ("a: |\n  x\n  \ty: 1\n", json!({"a": "x\n\ty: 1\n"})),
            ("a: [b: 1,\n\tc: 2]\n", json!({"a": [{"b": 1}, {"c": 2}]})),
            ("\t\na: 1 \t# note\n\t# note\nb: 2\n", json!({"a": 1, "b": 2})),
            ("?\ta\n:\tb\n", json!({"a": "b"})),
            ("\t{a: 1}\n", json!({"a": 1})),
        ] {
            assert_eq!(parse(text).unwrap().to_json(), expected, "{text:?}");
        }
    }

    #[test]
    fn broken_yaml_is_reported_with_its_line() {
        let error = parse("a: 1\nb: [x\nc: 2\n").unwrap_err();
        assert!(error.line.is_some(), "{error:?}");
        assert!(!error.message.contains('\n'));
    }
}
