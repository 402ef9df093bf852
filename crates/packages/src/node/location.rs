//! Names of packages, and their locations below `node_modules`.

/// Longest name, that of npm's registry.
const MAX_NAME: usize = 214;

/// Longest location in bytes: nesting as deep as npm makes it, and paths of packages still fit below it.
const MAX_LOCATION: usize = 600;

/// Whether a text is a name: `name` or `@scope/name`.
pub(super) fn is_name(text: &str) -> bool {
    let parts = match text.strip_prefix('@') {
        Some(scoped) => match scoped.split_once('/') {
            Some((scope, name)) => [Some(scope), Some(name)],
            None => return false,
        },
        None => [Some(text), None],
    };
    text.len() <= MAX_NAME && parts.into_iter().flatten().all(is_part) && !is_reserved(text)
}

/// Names that npm does not take for packages.
fn is_reserved(text: &str) -> bool {
    text == "node_modules"
}

/// One part of a name: it is a name of a folder, so neither hidden nor a way out.
fn is_part(part: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    !part.is_empty() && !part.starts_with('.') && part.bytes().all(is_letter)
}

/// The name at the end of `node_modules/a/node_modules/@b/c`; `None` if a location has another form.
pub(super) fn name_of(location: &str) -> Option<&str> {
    let mut rest = location;
    if location.len() > MAX_LOCATION {
        return None;
    }
    loop {
        rest = rest.strip_prefix("node_modules/")?;
        let Some((name, deeper)) = rest.split_once("/node_modules/") else {
            return is_name(rest).then_some(rest);
        };
        if !is_name(name) {
            return None;
        }
        rest = &rest[rest.len() - deeper.len() - "node_modules/".len()..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_chain_of_names_below_node_modules() {
        for (location, name) in [
            ("node_modules/a", Some("a")),
            ("node_modules/@s/a.b_c~d", Some("@s/a.b_c~d")),
            ("node_modules/a/node_modules/@s/b", Some("@s/b")),
            ("node_modules/a/node_modules/b/node_modules/c", Some("c")),
            ("", None),
            ("a", None),
            ("node_modules", None),
            ("node_modules/", None),
            ("node_modules/..", None),
            ("node_modules/a/../b", None),
            ("node_modules/a/lib", None),
            ("node_modules/@s", None),
            ("node_modules/@s/..", None),
            ("node_modules/@../a", None),
            ("node_modules/.bin", None),
            ("node_modules/.package-lock.json", None),
            ("node_modules/node_modules", None),
            ("node_modules/a/node_modules/", None),
            ("node_modules/a//node_modules/b", None),
            ("/node_modules/a", None),
            ("../node_modules/a", None),
            ("packages/a/node_modules/b", None),
            ("node_modules/a\\b", None),
            ("node_modules/a\0", None),
        ] {
            assert_eq!(name_of(location), name, "{location:?}");
        }
        assert_eq!(name_of(&format!("node_modules/{}", "a".repeat(215))), None);
        let deep = "node_modules/a/".repeat(60);
        assert_eq!(name_of(deep.trim_end_matches('/')), None);
    }
}
