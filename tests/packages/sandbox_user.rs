//! Where environments are made: a folder that the sandbox's user can enter, and who that user is.

use knack_execution::interpreter::CodeUser;

/// Who must be able to read an environment.
pub(crate) fn sandbox_user() -> CodeUser {
    if rustix::process::geteuid().is_root() {
        CodeUser::Stranger
    } else {
        CodeUser::SameUser
    }
}

/// A folder that everybody can enter. Not below the folder for temporary files, which a sandbox has of its own.
pub(crate) fn open_folder(prefix: &str) -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir_in("/var/tmp").unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    folder
}
