//! The environment of a tool that runs in the server's own, as HUSK passes it on. A tool of the product runs in a sandbox, where a
//! value comes from a grant or not at all.

use std::collections::BTreeSet;

use knack_skill::tool_env::{is_operational, may_request};

/// The names among `present` that a tool gets: allowed ones, and those in `requested`, but no provider key.
pub(crate) fn allowed<'a>(present: impl IntoIterator<Item = &'a str>, requested: &[String]) -> BTreeSet<&'a str> {
    let passes =
        |name: &&str| is_operational(name) || (requested.iter().any(|wanted| wanted == name) && may_request(name));
    present.into_iter().filter(passes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_keys_are_never_passed() {
        let requested = ["OPENAI_API_KEY".to_owned(), "WEATHER".to_owned(), "ABSENT".to_owned()];
        let names = allowed(
            ["PATH", "path", "LC_ALL", "LCX", "OPENAI_API_KEY", "WEATHER", "TOKEN"],
            &requested,
        );
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["LC_ALL", "PATH", "WEATHER"]);
    }
}
