//! Files that a person names and a command writes: whole under their names, or not at all. Those whose names somebody else chooses are
//! written by [`ConfinedFolder`](knack_gateway::files::confined_folder::ConfinedFolder), which follows no link.

use std::fs::Permissions;
use std::io::{Error, ErrorKind, Result, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The mode of a new file, of which the umask takes away.
const MODE: u32 = 0o666;

/// Writes a temporary file in the same folder and renames it: an error, such as that of a full disk, leaves what was there before.
/// A device, a pipe, or what a link stands for is written as it is.
pub(super) async fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let (path, bytes) = (path.to_owned(), bytes.to_vec());
    tokio::task::spawn_blocking(move || replace(path, &bytes)).await?
}

fn replace(path: PathBuf, bytes: &[u8]) -> Result<()> {
    let permissions = match path.symlink_metadata() {
        Ok(there) if there.is_file() => Some(there.permissions()),
        Ok(_) => return std::fs::write(path, bytes),
        Err(_) => None,
    };
    let is_closed = |kind: ErrorKind| {
        permissions.is_some()
            && matches!(
                kind,
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::ResourceBusy
            )
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    let made = tempfile::Builder::new()
        .prefix(".knack-")
        .permissions(Permissions::from_mode(MODE))
        .tempfile_in(folder);
    let mut file = match made {
        Ok(file) => file,
        // The folder may be closed, and the file in it open.
        Err(error) if is_closed(error.kind()) => return std::fs::write(path, bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let text = format!("the folder {} does not exist", folder.display());
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        Err(error) => return Err(error.kind().into()),
    };
    file.write_all(bytes)?;
    if let Some(permissions) = &permissions {
        file.as_file().set_permissions(permissions.clone())?;
    }
    match file.persist(&path) {
        Ok(_) => Ok(()),
        // A file that is mounted by itself cannot be replaced.
        Err(error) if is_closed(error.error.kind()) => std::fs::write(path, bytes),
        Err(error) => Err(error.error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_cannot_be_written_whole_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("old"), "before").unwrap();
        std::fs::set_permissions(path("old"), Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("old", path("link")).unwrap();
        let mode = |name: &str| path(name).metadata().unwrap().permissions().mode() & 0o777;
        for name in ["new", "old", "link"] {
            write(&path(name), name.as_bytes()).await.unwrap();
            assert_eq!(std::fs::read(path(name)).unwrap(), name.as_bytes());
        }
        assert!(path("link").is_symlink());
        assert_eq!(mode("old"), 0o600);
        std::fs::write(path("plain"), "").unwrap();
        assert_eq!(mode("new"), mode("plain"), "as the umask says");
        assert_eq!(
            write(Path::new("/dev/full"), b"x").await.unwrap_err().kind(),
            ErrorKind::StorageFull
        );
        let message = write(&path("nope/new"), b"x").await.unwrap_err().to_string();
        assert_eq!(message, format!("the folder {} does not exist", path("nope").display()));
        std::fs::create_dir(path("folder")).unwrap();
        write(&path("folder"), b"x").await.unwrap_err();
        let names = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 5, "nothing is left");
    }
}
