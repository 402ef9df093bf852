//! Lists by the user that a document names. The product's API lists what a caller has stored, and its callers have no such ids.

use knack_skill::agent_flow::get;

/// Names that a user sees, newest update first. `stored` is in the order of updates, newest last. Unreadable skills are left out.
pub(crate) fn list<'a>(stored: impl IntoIterator<Item = (&'a str, &'a str)>, user_id: &str) -> Vec<String> {
    let read = stored
        .into_iter()
        .filter_map(|(folder, content)| get(folder, Some(content)).ok());
    let of_user = read.filter(|skill| skill.user_id.as_deref() == Some(user_id));
    let mut names: Vec<String> = of_user.map(|skill| skill.name).collect();
    names.reverse();
    names
}
