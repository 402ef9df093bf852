//! Base paths of APIs, as clients have them. Pure.

/// The word in front of the name of a namespace.
const NAMESPACES: &str = "namespaces";

/// Whether segments may be the base path of an API that begins behind them without `v1`, as clients of OpenAI may have it: what is
/// behind a version, or behind the words of other APIs in `others`, is of that API. Directly behind `namespaces` is the name of one,
/// which may be any of these words.
pub fn is_base_path(segments: &[&str], others: &[&str]) -> bool {
    let is_other =
        |at: usize, word: &str| !is_namespace(segments, at) && (word.starts_with("v1") || others.contains(&word));
    let mut numbered = segments.iter().enumerate();
    !is_namespace(segments, segments.len()) && !numbered.any(|(at, word)| is_other(at, word))
}

/// Whether what is, or would be, at this place of a path is the name of a namespace.
pub fn is_namespace(segments: &[&str], at: usize) -> bool {
    at.checked_sub(1) == segments.iter().position(|word| *word == NAMESPACES) && at > 0
}

/// The segments behind the name of a namespace; all where there is none.
pub(crate) fn behind_namespace<'s>(segments: &'s [&'s str]) -> &'s [&'s str] {
    let name = (0..segments.len()).find(|at| is_namespace(segments, *at));
    name.and_then(|at| segments.get(at + 1..)).unwrap_or(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_begins_behind_any_words_but_those_of_another() {
        for (path, expected) in [
            ("", true),
            ("gw", true),
            ("namespaces/team", true),
            ("namespaces", false),
            ("namespaces/models", true),
            ("namespaces/v1-team", true),
            ("gw/namespaces/v1", true),
            ("namespaces/namespaces", true),
            ("models/namespaces/team", false),
            ("gw/v1", false),
            ("v1beta/gw", false),
            ("models/m", false),
        ] {
            let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
            assert_eq!(is_base_path(&segments, &["models"]), expected, "{path}");
        }
    }
}
