//! The span scanner and the frame reader, against serde_json and against any split.

use knack_wire::frame::{MAX_EVENT, SseDecoder, SseEvent};
use knack_wire::json::{self, Edits, JsonError, Span};
use proptest::prelude::*;
use serde_json::Value;

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i32>().prop_map(|n| Value::from(f64::from(n) / 4.0)),
        any::<String>().prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(any::<String>(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        ]
    })
}

proptest! {
    #[test]
    fn the_scanner_agrees_with_serde_json(value in values(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let src = text.as_bytes();
        let span = json::document(src).unwrap();
        prop_assert_eq!(span.of(src), src);
        match &value {
            Value::Object(map) => {
                let members = json::object(src).unwrap();
                prop_assert_eq!(members.len(), map.len());
                for (key, value) in map {
                    let found = json::get(src, span, key).unwrap();
                    prop_assert_eq!(&serde_json::from_slice::<Value>(found.of(src)).unwrap(), value);
                }
            }
            Value::Array(list) => prop_assert_eq!(json::elements(src, span).unwrap().len(), list.len()),
            Value::String(text) => prop_assert_eq!(json::text(src, span).unwrap(), text.as_str()),
            _ => {}
        }
    }

    #[test]
    fn what_the_scanner_takes_serde_json_takes(bytes in "[\\[\\]{}:,\" a\\\\u0-9.eE+truefalsn\\-\n\t\\x01]{0,24}") {
        if json::document(bytes.as_bytes()).is_ok() {
            let read = serde_json::from_str::<Value>(&bytes);
            let harmless = read.as_ref().err().is_none_or(|error| error.to_string().contains("number out of range") || error.to_string().contains("surrogate") || error.to_string().contains("hex escape"));
            prop_assert!(harmless, "{bytes}: {read:?}");
        } else {
            prop_assert!(serde_json::from_str::<Value>(&bytes).is_err(), "{bytes}");
        }
    }

    #[test]
    fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let whole = Span::new(0, bytes.len());
        let _ = (json::document(&bytes), json::object(&bytes), json::members(&bytes, whole), json::elements(&bytes, whole), json::text(&bytes, whole));
        prop_assert!(json::unescape(&bytes).len() <= bytes.len() * 3);
    }

    #[test]
    fn quoted_text_comes_back(text in any::<String>()) {
        let quoted = json::quoted(&text);
        prop_assert_eq!(serde_json::from_slice::<String>(&quoted).unwrap(), text.clone());
        prop_assert_eq!(json::text(&quoted, Span::new(0, quoted.len())).unwrap(), text);
    }

    #[test]
    fn removed_items_take_their_commas(count in 1..7usize, gone in prop::collection::btree_set(0..7usize, 0..7)) {
        let text = format!("[{}]", (0..count).map(|at| format!(" {at} ")).collect::<Vec<_>>().join(","));
        let all = json::elements(text.as_bytes(), Span::new(0, text.len())).unwrap();
        let gone: Vec<usize> = gone.into_iter().filter(|at| *at < count).collect();
        let mut edits = Edits::new();
        edits.remove_items(&all, &gone);
        let left: Vec<usize> = serde_json::from_slice(&edits.apply(text.as_bytes())).unwrap();
        prop_assert_eq!(left, (0..count).filter(|at| !gone.contains(at)).collect::<Vec<_>>());
    }

    #[test]
    fn any_split_gives_the_same_events(piece in 1..12usize, ends in prop::sample::select(vec!["\n", "\r\n", "\r"])) {
        let text = "\u{feff}: hi\nevent: a\ndata: {\"x\":\"ü\"}\n\ndata:one\ndata: two\n\n\n\nid: 3\ndata\n\nevent: b\ndata: last".replace('\n', ends);
        let mut events = Vec::new();
        let mut decoder = SseDecoder::new();
        for piece in text.as_bytes().chunks(piece) {
            decoder.push(piece, &mut events).unwrap();
        }
        decoder.finish(&mut events).unwrap();
        let event = |name: &str, data: &str| SseEvent { name: name.to_owned().into(), data: data.to_owned().into() };
        prop_assert_eq!(events, vec![event("a", "{\"x\":\"ü\"}"), event("", "one\ntwo"), event("", ""), event("b", "last")]);
    }
}

/// The scanner reads strings eight bytes at a time; what surrounds a byte must not decide about it.
#[test]
fn the_end_and_a_control_character_are_found_wherever_they_are_in_a_string() {
    // Behind 128 bytes a string is searched in another way.
    let lengths = (1..48).chain(124..146).chain(200..202);
    for (length, fill) in lengths.flat_map(|length| [0x20, 0x7f, 0x80, 0xff].map(|fill| (length, fill))) {
        let bytes = [0, 1, 0x1f, 0x20, 0x21, b'"', 0x23, 0x7f, 0x80, 0xff];
        for (at, byte) in (1..=length).flat_map(|at| bytes.map(|byte| (at, byte))) {
            let mut text = vec![fill; length + 2];
            text[at] = byte;
            (text[0], text[length + 1]) = (b'"', b'"');
            let expected = match byte {
                0..0x20 => Err(JsonError::Syntax { at }),
                b'"' => Ok(at + 1),
                _ => Ok(length + 2),
            };
            assert_eq!(json::skip(&text, 0), expected, "{text:?}");
        }
    }
}

#[test]
fn depth_and_errors() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(json::document(nested(128).as_bytes()).is_ok());
    assert!(matches!(
        json::document(nested(129).as_bytes()),
        Err(JsonError::Depth { .. })
    ));
    for bad in [
        "",
        " ",
        "[1,]",
        "{\"a\"}",
        "{\"a\":1,}",
        "01",
        "1.",
        "-",
        "\"\\x\"",
        "\"\\u12\"",
        "tru",
        "[1}",
        "1 2",
        "{a:1}",
        "\"\n\"",
        "{\"a\u{1f}\":1}",
        "[\"sixteen bytes and more\u{0}\"]",
        "[\"sixteen bytes and more\t\\\"\"]",
    ] {
        assert!(json::document(bad.as_bytes()).is_err(), "{bad}");
    }
    assert!(json::document("[\"\u{7f}\u{80}\",\n\t\r 1]".as_bytes()).is_ok());
    assert_eq!(json::unescape(br"\ud83d\ude00 \ud83d x"), "\u{1f600} \u{fffd} x");
}

#[test]
fn events_are_bounded() {
    let mut decoder = SseDecoder::new();
    let line = [b"data: ".as_slice(), &vec![b'x'; 1 << 20], b"\n"].concat();
    let mut events = Vec::new();
    let refused = (0..=MAX_EVENT >> 20).any(|_| decoder.push(&line, &mut events).is_err());
    assert!(refused && events.is_empty());
}

#[test]
fn overlapping_edits_are_left_out() {
    let mut edits = Edits::new();
    edits.replace(Span::new(1, 4), "X");
    edits.replace(Span::new(2, 3), "Y");
    edits.insert(4, "Z");
    edits.replace(Span::new(90, 95), "far");
    assert_eq!(edits.apply(b"012345"), b"0XZ45");
}

/// A client may send millions of parts that are left out.
#[test]
fn many_items_are_removed_in_one_pass() {
    let count = 200_000;
    let src = format!("[{}1]", "0,".repeat(count));
    let all = json::elements(src.as_bytes(), Span::new(0, src.len())).unwrap();
    let gone: Vec<usize> = (0..count).collect();
    let mut edits = Edits::new();
    let begun = std::time::Instant::now();
    edits.remove_items(&all, &gone);
    assert_eq!(edits.apply(src.as_bytes()), b"[1]");
    // Far above what it needs; a search through all of `gone` for each item takes minutes.
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

/// The fast check must not miss an empty object that the reader finds.
#[test]
fn an_empty_object_is_mentioned_however_it_is_written() {
    for (text, is_empty) in [
        ("{}", true),
        ("{ \r\n\t}", true),
        ("[1,{\n}]", true),
        (r#"{"text":"{}"}"#, true),
        (r#"{"a":{"b":1}}"#, false),
        ("[]", false),
        (r#""}""#, false),
    ] {
        assert_eq!(json::mentions_empty_object(text.as_bytes()), is_empty, "{text}");
        let span = json::document(text.as_bytes()).unwrap();
        let members = json::members(text.as_bytes(), span);
        let reads_empty = members.is_ok_and(|members| members.is_empty());
        assert_eq!(json::is_empty_object(text.as_bytes(), span), reads_empty, "{text}");
    }
}
