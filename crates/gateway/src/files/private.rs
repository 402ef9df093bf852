//! Files and folders that only the user of this process may read: they hold prompts, answers, and what runs made.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

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

/// The same without blocking.
pub(crate) async fn create_folder_aside(path: &Path) -> io::Result<()> {
    tokio::fs::DirBuilder::new()
        .recursive(true)
        .mode(FOLDER)
        .create(path)
        .await
}

/// Writes a file. One that exists keeps its mode.
pub(crate) async fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(FILE);
    let mut file = options.open(path).await?;
    file.write_all(bytes).await?;
    file.flush().await
}
