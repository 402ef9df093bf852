//! Files of skills for tests.

use std::collections::BTreeMap;

use knack_skill::model::SkillFile;

/// Text files by path.
pub(crate) fn files(list: &[(&str, &str)]) -> BTreeMap<String, SkillFile> {
    let file = |text: &str| SkillFile {
        bytes: text.as_bytes().into(),
        executable: false,
    };
    list.iter()
        .map(|(path, text)| ((*path).to_owned(), file(text)))
        .collect()
}
