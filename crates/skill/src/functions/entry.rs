//! An entry of `tools` that names a Python file.

use serde_json::{Map, Value};

use crate::inputs::shortened;

/// The members that such an entry has.
const MEMBERS: [&str; 3] = ["python", "env", "hidden"];

/// The file of an entry, as the skill's files are named.
pub fn path(written: &str) -> String {
    written.trim_start_matches("./").to_owned()
}

/// The members that say what the functions say themselves: each as a field, with a message and its help.
pub(crate) fn ignored(index: usize, members: &Map<String, Value>) -> Vec<(String, String, &'static str)> {
    let others = members.keys().filter(|member| !MEMBERS.contains(&member.as_str()));
    let lines = others.map(|member| {
        let member = shortened(member);
        let message =
            format!("tools[{index}] has `python`, so its `{member}` has no effect: each function declares it");
        let help = "remove it, or write an entry with a command";
        (format!(".{member}"), message, help)
    });
    lines.collect()
}

/// Why a path names no file with functions, and what to do.
pub(crate) fn problem(index: usize, path: &str) -> Option<(String, &'static str)> {
    path.strip_suffix(".py").is_none().then(|| {
        let message = format!(
            "tools[{index}].python is {:?}, which is not a Python file",
            shortened(path)
        );
        (message, "name a file of the skill that ends with .py")
    })
}
