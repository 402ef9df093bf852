//! The directories of a run.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};

use crate::protocol::Identity;

/// The temporary directory inside the work directory.
pub(crate) const TEMPORARY: &str = ".tmp";

/// Open directories of one run.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) work: OwnedFd,
    pub(crate) skills: OwnedFd,
    pub(crate) work_path: PathBuf,
    pub(crate) skills_path: PathBuf,
    /// Who owns what is put into the work directory.
    pub(crate) owner: Option<Identity>,
}

/// Flags for a directory that must not be a link.
pub(super) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Place {
    /// Makes the directory where it is missing, and in it `work`, `work/.tmp`, `skills` and the link between them.
    ///
    /// Errors: the directory is relative, missing or not empty where it matters.
    pub(crate) fn make(directory: &str, owner: Option<Identity>) -> Result<Self, String> {
        let base = Path::new(directory);
        if !base.is_absolute() {
            return Err(format!("directory: {directory:?} is not an absolute path"));
        }
        let tell = |what: &str| {
            let what = what.to_owned();
            move |error: rustix::io::Errno| format!("directory {directory:?}: {what}: {}", std::io::Error::from(error))
        };
        // In a pod the work volume is empty at first; whoever made the directory already has set its owner.
        // What cannot be made cannot be opened either, and that error tells more.
        let _ = rustix::fs::mkdir(base, Mode::from_raw_mode(0o711));
        let base_fd = rustix::fs::open(base, DIRECTORY, Mode::empty()).map_err(tell("cannot open"))?;
        let (work, skills) = (
            directory_in(&base_fd, "work", 0o700),
            directory_in(&base_fd, "skills", 0o755),
        );
        let (work, skills) = (work.map_err(tell("work"))?, skills.map_err(tell("skills"))?);
        let temporary = directory_in(&work, TEMPORARY, 0o700).map_err(tell(TEMPORARY))?;
        rustix::fs::symlinkat("../skills", &work, "skills").map_err(tell("link to skills"))?;
        if let Some(owner) = owner {
            let (uid, gid) = (Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)));
            rustix::fs::fchown(&work, uid, gid).map_err(tell("chown work"))?;
            rustix::fs::fchown(&temporary, uid, gid).map_err(tell("chown temporary"))?;
            rustix::fs::chownat(&work, "skills", uid, gid, AtFlags::SYMLINK_NOFOLLOW).map_err(tell("chown link"))?;
        }
        Ok(Self {
            work,
            skills,
            work_path: base.join("work"),
            skills_path: base.join("skills"),
            owner,
        })
    }

    /// Opens the work directory again: reading it moves a position, which the kept descriptor must not share.
    pub(super) fn open_work(&self) -> rustix::io::Result<OwnedFd> {
        rustix::fs::openat(&self.work, ".", DIRECTORY, Mode::empty())
    }
}

/// Makes a directory with exactly these permissions, or opens the one that is there.
fn directory_in(parent: &OwnedFd, name: &str, mode: u32) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    let opened = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())?;
    rustix::fs::fchmod(&opened, Mode::from_raw_mode(mode))?;
    Ok(opened)
}
