//! The environment of every run.

use std::collections::BTreeMap;

/// The name of every run's user. Its uid has no account, and `getpass.getuser` asks these variables before it looks for one.
const USER_NAME: &str = "knack";

/// The environment of every run, besides what the runner sets (`HOME`, `TMPDIR`, `KNACK_WORK_DIR`) and granted values.
pub fn base_environment(path: &str) -> BTreeMap<String, String> {
    [
        ("PATH", path),
        ("LANG", "C.UTF-8"),
        ("LOGNAME", USER_NAME),
        ("USER", USER_NAME),
        // Skill folders are read-only.
        ("PYTHONDONTWRITEBYTECODE", "1"),
        // Commands are started without `-I`: no module of a home directory, not even of an empty one.
        ("PYTHONNOUSERSITE", "1"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}
