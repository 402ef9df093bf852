//! Base paths of APIs, as clients have them. Pure.

/// The word in front of the name of a namespace.
const NAMESPACES: &str = "namespaces";

/// The place of the name of a namespace in a path, which may be any word. It may be just behind the end.
pub fn namespace_place(segments: &[&str]) -> Option<usize> {
    let word = segments.iter().position(|word| *word == NAMESPACES)?;
    Some(word + 1)
}

/// Whether segments may be the base path of an API that begins behind them without `v1`, as clients of OpenAI may have it: what is
/// behind a version, or behind the words of other APIs in `others`, is of that API. What is in the place of a namespace's name is one.
pub fn is_base_path(segments: &[&str], others: &[&str]) -> bool {
    namespace_place(segments) != Some(segments.len()) && longest_base(segments, others) == segments.len()
}

/// How many of the first segments no word of another API is among. One look at each: a path may have thousands.
pub(crate) fn longest_base(segments: &[&str], others: &[&str]) -> usize {
    let name = namespace_place(segments);
    let is_other = |(at, word): (usize, &&str)| name != Some(at) && (word.starts_with("v1") || others.contains(word));
    segments.iter().enumerate().position(is_other).unwrap_or(segments.len())
}

/// The segments behind the name of a namespace; all where there is none.
pub(crate) fn behind_namespace<'s>(segments: &'s [&'s str]) -> &'s [&'s str] {
    let name = namespace_place(segments);
    name.and_then(|at| segments.get(at + 1..)).unwrap_or(segments)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use http::{HeaderMap, Method};

    use super::*;
    use crate::route::route;

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

    /// A caller that nobody knows yet chooses the path: twice the segments may cost twice the time, and no more.
    #[test]
    fn a_path_of_many_segments_costs_one_look_at_each() {
        let (done, heard) = mpsc::channel();
        thread::spawn(move || {
            let segments = vec!["skills"; 500_000];
            let is_base = is_base_path(&segments, &["models"]);
            let all = behind_namespace(&segments).len();
            // A head has at most 64 KiB.
            let call = route(
                &Method::GET,
                &format!("/x{}", "/skills".repeat(9_000)),
                None,
                &HeaderMap::new(),
            );
            done.send((is_base, all, call.is_some()))
        });
        let heard = heard.recv_timeout(Duration::from_mins(1));
        assert_eq!(heard, Ok((true, 500_000, true)));
    }
}
