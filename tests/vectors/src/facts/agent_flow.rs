//! Lists by the user that a document names. The product's API lists what a caller has stored, and its callers have no such ids.

use knack_skill::agent_flow::get;

/// Names that a user sees, newest update first; no user is an administrator, who sees all. `stored` is in the order of updates,
/// newest last. Unreadable skills are left out; placeholders that no input declares are no hindrance to reading.
pub(crate) fn list<'a>(stored: impl IntoIterator<Item = (&'a str, &'a str)>, user_id: Option<&str>) -> Vec<String> {
    let read = stored
        .into_iter()
        .filter_map(|(folder, content)| get(folder, Some(content)).ok());
    let of_user = read.filter(|skill| user_id.is_none() || skill.user_id.as_deref() == user_id);
    let mut names: Vec<String> = of_user.map(|skill| skill.name).collect();
    names.reverse();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_administrator_sees_what_can_be_read() {
        let stored = [
            ("a", "---\nname: a\nuser_id: \"1\"\n---\n{{undeclared}}"),
            ("b", "---\nname: other\n---\nB"),
            ("c", "---\nname: c\n---\nB"),
        ];
        assert_eq!(list(stored, None), ["c", "a"]);
        assert_eq!(list(stored, Some("1")), ["a"]);
        assert!(list(stored, Some("2")).is_empty());
    }
}
