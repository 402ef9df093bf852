//! A folder that gets files whose names somebody else chooses: a program in the sandbox, a skill, a server. What lies in the folder
//! may be theirs too, as in a checkout, so no link in it is followed: each part of a name is opened in the part before it, and a file
//! takes its name by a rename.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use knack_registry::no_link::is_link;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawMode, fchmod, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

/// How a folder below another one is opened.
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// How a new file is opened.
const NEW_FILE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// The permissions of a file that one in its place takes over.
const PERMISSIONS: RawMode = 0o777;

/// Who may read what is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Only the user of this process.
    Owner,
    /// Whoever the umask of this process lets.
    Umask,
}

impl Readers {
    const fn folder(self) -> RawMode {
        match self {
            Self::Owner => 0o700,
            Self::Umask => 0o777,
        }
    }

    const fn file(self) -> RawMode {
        match self {
            Self::Owner => 0o600,
            Self::Umask => 0o666,
        }
    }
}

/// An open folder.
#[derive(Debug)]
pub struct ConfinedFolder {
    path: PathBuf,
    folder: OwnedFd,
    readers: Readers,
}

impl ConfinedFolder {
    /// The folder at a path, which is made if it is not there, with those above it. It must not be a link itself: its name may be a
    /// default, and somebody else's link. Blocks.
    pub fn make(path: &Path, readers: Readers) -> io::Result<Self> {
        // Without the slash at its end, by which the link would be followed.
        let path: PathBuf = path.components().collect();
        if is_link(CWD, path.as_os_str()) {
            return Err(is_a_link(&path, "name the folder that it leads to, or remove the link"));
        }
        Self::open(path, FOLDER, readers)
    }

    /// A folder at a path that the user of this process chose: it may lead through links. Blocks.
    pub fn named(path: &Path, readers: Readers) -> io::Result<Self> {
        Self::open(path.to_owned(), FOLDER.difference(OFlags::NOFOLLOW), readers)
    }

    fn open(path: PathBuf, flags: OFlags, readers: Readers) -> io::Result<Self> {
        let made = DirBuilder::new().recursive(true).mode(readers.folder()).create(&path);
        let opened = made.and_then(|()| open(CWD, &path, flags));
        let folder = opened.map_err(|error| at(&path, &error))?;
        Ok(Self { path, folder, readers })
    }

    /// Writes a file, whole or not at all, and makes the folders of its name. A regular file of that name is replaced by one of the
    /// same permissions. Blocks.
    ///
    /// Errors name the file: the name leaves the folder, a part of it is a link, something else than a file is there, or the disk
    /// fails.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut parts: Vec<&str> = name.split('/').collect();
        if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
            let text = format!("file name {name:?} would leave the folder");
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let file = parts.pop().unwrap_or_default();
        let (mut shown, mut below) = (self.path.clone(), None::<OwnedFd>);
        for part in parts {
            shown.push(part);
            let within = below.as_ref().unwrap_or(&self.folder).as_fd();
            below = Some(self.folder_in(within, part, &shown)?);
        }
        let within = below.as_ref().unwrap_or(&self.folder).as_fd();
        self.replace(within, file, &shown.join(file), bytes)
    }

    /// A folder in another one, which is made if it is not there.
    fn folder_in(&self, within: BorrowedFd<'_>, name: &str, shown: &Path) -> io::Result<OwnedFd> {
        match mkdirat(within, name, Mode::from_raw_mode(self.readers.folder())) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(at(shown, &io::Error::from(error))),
        }
        open(within, Path::new(name), FOLDER).map_err(|error| {
            if is_link(within, OsStr::new(name)) {
                is_a_link(shown, REMOVE)
            } else {
                at(shown, &error)
            }
        })
    }

    fn replace(&self, within: BorrowedFd<'_>, name: &str, shown: &Path, bytes: &[u8]) -> io::Result<()> {
        let there = match statat(within, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => Some(there.st_mode),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(at(shown, &io::Error::from(error))),
        };
        match there.map(FileType::from_raw_mode) {
            None | Some(FileType::RegularFile) => {}
            Some(FileType::Symlink) => return Err(is_a_link(shown, REMOVE)),
            Some(_) => {
                let text = format!("{} is there and is no regular file; {REMOVE}", shown.display());
                return Err(io::Error::new(ErrorKind::AlreadyExists, text));
            }
        }
        let beside = format!(".knack-{}", uuid::Uuid::now_v7().simple());
        let written = openat(within, &beside, NEW_FILE, Mode::from_raw_mode(self.readers.file()))
            .map_err(io::Error::from)
            .and_then(|file| {
                let mut file = File::from(file);
                file.write_all(bytes)?;
                if let Some(there) = there {
                    fchmod(&file, Mode::from_raw_mode(there & PERMISSIONS))?;
                }
                Ok(renameat(within, &beside, within, name)?)
            });
        let Err(error) = written else { return Ok(()) };
        // It is not there where it could not be made.
        let _ = unlinkat(within, &beside, AtFlags::empty());
        let is_closed = matches!(
            error.kind(),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::ResourceBusy
        );
        let error = match there {
            // The folder takes no new files, or the file is mounted by itself: it is written where it is.
            Some(_) if is_closed => overwrite(within, name, bytes).err(),
            _ => Some(error),
        };
        error.map_or(Ok(()), |error| Err(at(shown, &error)))
    }
}

/// Writes a file that is there, and follows no link.
fn overwrite(within: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    File::from(openat(within, name, flags, Mode::empty())?).write_all(bytes)
}

/// What to do about what is in the place of a file.
const REMOVE: &str = "remove it, or name another folder";

fn open(within: impl AsFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(openat(within, path, flags, Mode::empty())?)
}

fn is_a_link(path: &Path, cure: &str) -> io::Error {
    let text = format!(
        "{} is a symbolic link, which would lead the file elsewhere; {cure}",
        path.display()
    );
    io::Error::new(ErrorKind::InvalidInput, text)
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// A folder with a folder `out`, beside which is what nobody but its owner may change.
    fn world() -> (tempfile::TempDir, ConfinedFolder) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("elsewhere")).unwrap();
        fs::write(folder.path().join("victim"), "mine").unwrap();
        let out = ConfinedFolder::make(&folder.path().join("out/"), Readers::Umask).unwrap();
        (folder, out)
    }

    #[test]
    fn no_link_leads_a_file_elsewhere() {
        let (folder, out) = world();
        let path = |name: &str| folder.path().join(name);
        for (link, target) in [
            ("out/file", "../victim"),
            ("out/new", "../elsewhere/new"),
            ("out/below", "../elsewhere"),
            ("out/circle", "circle"),
        ] {
            symlink(target, path(link)).unwrap();
        }
        for (name, named) in [
            ("file", "out/file"),
            ("new", "out/new"),
            ("below/x", "out/below"),
            ("below/a/x", "out/below"),
            ("circle", "out/circle"),
        ] {
            let said = out.write(name, b"theirs").unwrap_err().to_string();
            let shown = path(named).display().to_string();
            assert!(
                said.starts_with(&format!("{shown} is a symbolic link")) && said.contains("remove it"),
                "{name}: {said}"
            );
        }
        assert_eq!(fs::read_to_string(path("victim")).unwrap(), "mine");
        assert_eq!(fs::read_dir(path("elsewhere")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(path("out")).unwrap().count(), 4, "nothing is left");
        for name in ["../x", "/x", "a/../../x", "a//x", "./x", "", "a/"] {
            out.write(name, b"x").unwrap_err();
        }
        assert_eq!(fs::read_dir(path("out")).unwrap().count(), 4, "nor for a bad name");
    }

    #[test]
    fn the_folder_itself_is_no_link_unless_a_person_named_it() {
        let (folder, _) = world();
        let path = |name: &str| folder.path().join(name);
        symlink("elsewhere", path("linked")).unwrap();
        symlink("nowhere", path("dangling")).unwrap();
        for name in ["linked", "linked/", "linked/.", "dangling"] {
            let said = ConfinedFolder::make(&path(name), Readers::Umask)
                .unwrap_err()
                .to_string();
            assert!(
                said.contains("is a symbolic link") && said.contains("name the folder"),
                "{name}: {said}"
            );
        }
        assert!(!path("nowhere").exists());
        let named = ConfinedFolder::named(&path("linked"), Readers::Umask).unwrap();
        named.write("a/x", b"x").unwrap();
        assert_eq!(fs::read(path("elsewhere/a/x")).unwrap(), b"x");
        // A folder above it is where the person says.
        ConfinedFolder::make(&path("linked/new"), Readers::Umask).unwrap();
        let said = ConfinedFolder::make(&path("victim"), Readers::Umask)
            .unwrap_err()
            .to_string();
        assert!(said.starts_with(&path("victim").display().to_string()), "{said}");
    }

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_permissions() {
        let (folder, out) = world();
        let path = |name: &str| folder.path().join(name);
        let mode = |name: &str| path(name).metadata().unwrap().permissions().mode() & 0o777;
        fs::write(path("plain"), "").unwrap();
        out.write("a/b/new", b"new").unwrap();
        assert_eq!(mode("out/a/b/new"), mode("plain"), "as the umask says");
        fs::write(path("out/old"), "before").unwrap();
        fs::set_permissions(path("out/old"), Permissions::from_mode(0o640)).unwrap();
        fs::hard_link(path("out/old"), path("other")).unwrap();
        out.write("old", b"after").unwrap();
        assert_eq!(
            (fs::read(path("out/old")).unwrap(), mode("out/old")),
            (b"after".to_vec(), 0o640)
        );
        assert_eq!(fs::read(path("other")).unwrap(), b"before");
        rustix::fs::mkfifoat(CWD, path("out/pipe"), Mode::RUSR).unwrap();
        for name in ["a", "pipe"] {
            let said = out.write(name, b"x").unwrap_err().to_string();
            assert!(said.contains("is no regular file"), "{name}: {said}");
        }
        let owned = ConfinedFolder::make(&path("owned"), Readers::Owner).unwrap();
        owned.write("a/x", b"x").unwrap();
        assert_eq!(
            [mode("owned"), mode("owned/a"), mode("owned/a/x")],
            [0o700, 0o700, 0o600]
        );
    }
}
