//! Texts inside frames, whose length is bounded as JSON writes it.

/// Marks the text that was left out.
const CUT: &str = "…";

/// The length of a text inside JSON, without its quotes.
pub(crate) fn json_bytes(text: &str) -> u64 {
    text.chars().map(|character| width(character) as u64).sum()
}

const fn width(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

/// The text, with its middle left out if JSON would write more than `limit` bytes: both ends of a path are the most
/// useful parts.
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    if json_bytes(text) <= limit as u64 {
        return text.to_owned();
    }
    let half = limit.saturating_sub(CUT.len()) / 2;
    let fitting = |characters: &mut dyn Iterator<Item = char>| {
        let mut used = 0;
        let fits = |character: &char| {
            used += width(*character);
            used <= half
        };
        characters.take_while(fits).map(char::len_utf8).sum::<usize>()
    };
    let head = fitting(&mut text.chars());
    let tail = text.len() - fitting(&mut text.chars().rev());
    let part = |part: Option<&str>| part.unwrap_or_default().to_owned();
    part(text.get(..head)) + CUT + &part(text.get(tail..))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_path_keeps_both_ends() {
        assert_eq!(shorten("a/b.txt", 255), "a/b.txt");
        assert_eq!(
            shorten(&format!("start/{}/end.txt", "x".repeat(400)), 23),
            "start/xxxx…xx/end.txt"
        );
        assert_eq!(shorten("abcdef", 3), CUT);
    }

    proptest! {
        #[test]
        fn what_json_writes_is_bounded(text in prop_oneof!["\\PC{0,300}", "[\u{0}-\u{7f}]{0,300}", ".{0,100}"], limit in 3_usize..400) {
            let quoted = |text: &str| serde_json::to_string(text).unwrap().len() - 2;
            prop_assert_eq!(json_bytes(&text), quoted(&text) as u64);
            let short = shorten(&text, limit);
            prop_assert!(quoted(&short) <= limit, "{}", short);
            prop_assert!(quoted(&text) > limit || short == text);
        }
    }
}
