//! Which skill gets a name that skills of several namespaces have.

/// The namespace whose skill has the bare name; the others are called `namespace/name`. Candidates are namespaces with
/// the creation time of their skill.
///
/// A later skill cannot take a name away: the client's own namespace comes first, then the runtime's, whose skills its
/// administrator gives to all callers, and then the oldest skill.
pub fn name_owner<'a>(
    candidates: impl IntoIterator<Item = (&'a str, i64)>,
    home: Option<&str>,
    runtime_namespace: &str,
) -> Option<&'a str> {
    let rank = |namespace: &str| match namespace {
        _ if Some(namespace) == home => 0,
        _ if namespace == runtime_namespace => 1,
        _ => 2,
    };
    candidates
        .into_iter()
        .min_by_key(|(namespace, created)| (rank(namespace), *created, *namespace))
        .map(|(namespace, _)| namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_skill_takes_no_name_away() {
        let all = [("late", 30), ("early", 10), ("run", 40), ("mine", 50)];
        for (home, runtime, count, expected) in [
            (Some("mine"), "run", 4, "mine"),
            (Some("elsewhere"), "run", 4, "run"),
            (None, "run", 4, "run"),
            (None, "run", 2, "early"),
            (Some("late"), "run", 2, "late"),
        ] {
            let candidates = all.into_iter().take(count);
            assert_eq!(
                name_owner(candidates, home, runtime),
                Some(expected),
                "{home:?} {runtime}"
            );
        }
        // Made in the same second, or by a hub that does not say when.
        assert_eq!(name_owner([("b", 0), ("a", 0)], None, "run"), Some("a"));
        assert_eq!(name_owner([], None, "run"), None);
    }
}
