//! Base paths of APIs, as clients have them. Pure.

/// Whether segments may be the base path of an API that begins behind them without `v1`, as clients of OpenAI may have it: what is
/// behind a version, or behind the words of other APIs in `others`, is of that API. Directly behind `namespaces` is the name of one.
pub fn is_base_path(segments: &[&str], others: &[&str]) -> bool {
    let is_other = |segment: &&str| segment.starts_with("v1") || others.contains(segment);
    segments.last() != Some(&"namespaces") && !segments.iter().any(is_other)
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
            ("gw/v1", false),
            ("v1beta/gw", false),
            ("models/m", false),
        ] {
            let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
            assert_eq!(is_base_path(&segments, &["models"]), expected, "{path}");
        }
    }
}
