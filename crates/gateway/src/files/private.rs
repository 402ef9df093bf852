//! Files and folders that only the user of this process may read: they hold prompts, answers, and what runs made.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use tokio::io::AsyncWriteExt as _;

/// The mode of a new folder.
const FOLDER: u32 = 0o700;
/// The mode of a new file.
const FILE: u32 = 0o600;

/// Makes a folder and those above it. Folders that exist keep their mode, which their owner chose.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let created = std::fs::DirBuilder::new().recursive(true).mode(FOLDER).create(path);
    created.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => io::Error::new(io::ErrorKind::NotADirectory, "is a file; name a folder"),
        _ => error,
    })
}

/// Writes a file. One that exists keeps its mode; a link in its place is an error, since the folder may be somebody else's checkout.
pub(crate) async fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(FILE);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let mut file = options.open(path).await?;
    file.write_all(bytes).await?;
    file.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_link_is_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("victim"), "mine").unwrap();
        std::os::unix::fs::symlink("victim", path("link")).unwrap();
        write(&path("link"), b"theirs").await.unwrap_err();
        assert_eq!(std::fs::read_to_string(path("victim")).unwrap(), "mine");
    }
}
