//! Files by paths on which no link is followed. A folder that keeps something may be somebody else's, as one in a checkout, whose links
//! would lead reads and writes elsewhere. Each part of a path is opened in the part before it, from its root on, since not every
//! container lets a process call `openat2`: so a path begins with [`named`], which follows what the user of this process chose.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};

/// How a folder on the way is opened: to go through it takes no right to list it.
const WAY: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// How a folder is opened that is listed, or brought to the disk.
const LISTED: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// How every file is opened; a pipe in its place keeps nobody waiting.
const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);
/// New files are for their user only.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The path of a folder without the links that lead to it, for the user of this process named it. It need not be there.
pub fn named(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => below_named(path),
        found => found,
    }
}

/// The path of a folder whose last name was not chosen by the user, without the links that lead to the folder above it: the last one may
/// be a link, which is then not followed.
pub fn below_named(path: &Path) -> io::Result<PathBuf> {
    let name = name_of(path)?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    Ok(fs::canonicalize(above.unwrap_or(Path::new(".")))?.join(name))
}

/// The content of a regular file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, OFlags::RDONLY)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The names in a folder.
pub fn names(path: &Path) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::new(listed(path)?)? {
        let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Whether there is a folder. Error: something else is in its place.
pub fn is_folder(path: &Path) -> io::Result<bool> {
    match folder(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a regular file is there.
pub fn is_file(path: &Path) -> bool {
    let found = parent(path).and_then(|(within, name)| kind(within.as_fd(), name));
    found.is_ok_and(|kind| kind == FileType::RegularFile)
}

/// A regular file; one that is made is for its user only.
pub(crate) fn open(path: &Path, how: OFlags) -> io::Result<File> {
    let (within, name) = parent(path)?;
    let opened = openat(&within, name, FILE.union(how), FILE_MODE);
    let file = File::from(opened.map_err(|error| told(within.as_fd(), name, path, error.into()))?);
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let text = format!("{} is no regular file; remove it", path.display());
    Err(io::Error::new(ErrorKind::InvalidInput, text))
}

/// The open folder that a path is in, and its name there.
pub(crate) fn parent(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let above = path.parent().unwrap_or(Path::new(""));
    Ok((folder(above)?, name_of(path)?))
}

/// A folder that can be listed, and brought to the disk.
pub(crate) fn listed(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(folder(path)?, ".", LISTED, Mode::empty())?)
}

/// What is in a folder by a name.
pub(crate) fn kind(within: BorrowedFd<'_>, name: &OsStr) -> io::Result<FileType> {
    let there = statat(within, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(there.st_mode))
}

/// Whether a link is in a folder by a name.
pub fn is_link(within: BorrowedFd<'_>, name: &OsStr) -> bool {
    kind(within, name).is_ok_and(|kind| kind == FileType::Symlink)
}

fn folder(path: &Path) -> io::Result<OwnedFd> {
    let (start, mut shown) = if path.is_absolute() {
        ("/", PathBuf::from("/"))
    } else {
        (".", PathBuf::new())
    };
    let mut at = openat(CWD, start, WAY, Mode::empty())?;
    for part in path.components() {
        shown.push(part);
        match part {
            Component::RootDir | Component::CurDir => continue,
            Component::ParentDir => {
                let text = format!("{} leads above its folder", shown.display());
                return Err(io::Error::new(ErrorKind::InvalidInput, text));
            }
            Component::Normal(_) | Component::Prefix(_) => {}
        }
        let next = openat(&at, part.as_os_str(), WAY, Mode::empty());
        at = next.map_err(|error| told(at.as_fd(), part.as_os_str(), &shown, error.into()))?;
    }
    Ok(at)
}

fn name_of(path: &Path) -> io::Result<&OsStr> {
    let name = path.file_name();
    name.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, format!("{} has no name", path.display())))
}

/// An error that says that a link is why.
fn told(within: BorrowedFd<'_>, name: &OsStr, path: &Path, error: io::Error) -> io::Error {
    if !is_link(within, name) {
        return error;
    }
    let text = format!(
        "{} is a symbolic link, which would lead elsewhere; remove it",
        path.display()
    );
    io::Error::new(ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_to_the_folder_that_was_named_and_not_below_it() {
        let work = tempfile::tempdir().unwrap();
        let path = |name: &str| work.path().join(name);
        fs::create_dir_all(path("real/inner")).unwrap();
        fs::write(path("real/file"), "x").unwrap();
        fs::write(path("victim"), "mine").unwrap();
        for (target, link) in [
            ("real", "link"),
            ("../victim", "real/leaf"),
            ("inner", "real/way"),
            ("nowhere", "real/gone"),
        ] {
            symlink(target, path(link)).unwrap();
        }
        let root = named(&path("link")).unwrap();
        assert_eq!(root, fs::canonicalize(path("real")).unwrap());
        assert_eq!(named(&path("link/new")).unwrap(), root.join("new"));
        assert_eq!(below_named(&path("link/way")).unwrap(), root.join("way"));
        assert_eq!(read(&root.join("file")).unwrap(), b"x");
        assert_eq!(
            (is_file(&root.join("file")), is_file(&root.join("leaf"))),
            (true, false)
        );
        assert!(is_folder(&root.join("inner")).unwrap() && !is_folder(&root.join("none")).unwrap());
        let mut all = names(&root).unwrap();
        all.sort();
        assert_eq!(all, ["file", "gone", "inner", "leaf", "way"]);

        let make = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        for refused in [
            read(&root.join("leaf")).map(drop),
            open(&root.join("leaf"), make).map(drop),
            open(&root.join("gone"), make).map(drop),
            open(&root.join("way/x"), make).map(drop),
            names(&root.join("way")).map(drop),
            is_folder(&root.join("way")).map(drop),
            read(&root.join("../victim")).map(drop),
            // By the name with the link, which is not what `named` gives.
            read(&path("link/file")).map(drop),
        ] {
            let said = refused.unwrap_err().to_string();
            assert!(
                said.contains("is a symbolic link") || said.contains("leads above"),
                "{said}"
            );
        }
        assert_eq!(fs::read_to_string(path("victim")).unwrap(), "mine");
        assert!(!path("real/nowhere").exists() && !path("real/inner/x").exists());
    }

    #[test]
    fn what_is_no_file_is_not_read() {
        let work = tempfile::tempdir().unwrap();
        let root = named(work.path()).unwrap();
        rustix::fs::mkfifoat(CWD, root.join("pipe"), FILE_MODE).unwrap();
        let said = read(&root.join("pipe")).unwrap_err().to_string();
        assert!(said.contains("is no regular file"), "{said}");
        open(&root.join("pipe"), OFlags::WRONLY).unwrap_err();
        read(&root).unwrap_err();
    }
}
