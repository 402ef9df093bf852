//! The directories of a run.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};

use crate::locks::{NoMounts, Quota, enclose};
use crate::protocol::{Identity, WorkBound};

/// The temporary directory inside the work directory.
pub(crate) const TEMPORARY: &str = ".tmp";
/// The home directory inside the work directory. It is empty when the run begins, so that nothing that was staged can
/// configure a program: interpreters, shells and package managers look for modules and settings there.
pub(crate) const HOME: &str = ".home";

/// Open directories of one run.
#[derive(Debug)]
pub(crate) struct RunFolders {
    pub(crate) work: OwnedFd,
    pub(crate) skills: OwnedFd,
    pub(crate) work_path: PathBuf,
    pub(crate) skills_path: PathBuf,
    /// The owner of the files that are put into the work directory.
    pub(crate) owner: Option<Identity>,
    /// How the bytes and files of the work directory are bounded.
    pub(crate) bound: WorkBound,
}

/// Flags for a directory that must not be a link.
pub(super) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl RunFolders {
    /// Creates the directory where it is missing, and in it `work`, `work/.tmp`, `work/.home`, `skills` and the link
    /// between them. With a quota the work directory becomes a separate file system, where mounts are allowed.
    ///
    /// Errors: the directory is relative, missing or not empty where it matters.
    pub(crate) fn make(directory: &str, owner: Option<Identity>, quota: Option<Quota>) -> Result<Self, String> {
        let base = Path::new(directory);
        if !base.is_absolute() {
            return Err(format!("directory: {directory:?} is not an absolute path"));
        }
        let failed = |what: &str| {
            let what = what.to_owned();
            move |error: rustix::io::Errno| format!("directory {directory:?}: {what}: {}", std::io::Error::from(error))
        };
        // In a pod the work volume is empty at first; the creator of an existing directory has set its owner. A
        // directory that cannot be created cannot be opened either, and the error of opening says more.
        let _ = rustix::fs::mkdir(base, Mode::from_raw_mode(0o711));
        let base_fd = || rustix::fs::open(base, DIRECTORY, Mode::empty()).map_err(failed("cannot open"));
        let outside = base_fd()?;
        for (name, mode) in [("work", 0o700), ("skills", 0o755)] {
            directory_in(&outside, name, mode).map_err(failed(name))?;
        }
        let (work_path, skills_path) = (base.join("work"), base.join("skills"));
        let bound = match quota.map(|quota| enclose(&work_path, &skills_path, quota)) {
            None => WorkBound::Outside,
            Some(Ok(())) => WorkBound::Mounted,
            Some(Err(NoMounts::Refused)) => WorkBound::Watched,
            Some(Err(NoMounts::Broken(what))) => return Err(format!("directory {directory:?}: {what}")),
        };
        // Opened where everything has its place: a descriptor stays on what was there before.
        let base_fd = base_fd()?;
        let open = |name: &str| rustix::fs::openat(&base_fd, name, DIRECTORY, Mode::empty());
        let (work, skills) = (
            open("work").map_err(failed("work"))?,
            open("skills").map_err(failed("skills"))?,
        );
        let temporary = directory_in(&work, TEMPORARY, 0o700).map_err(failed(TEMPORARY))?;
        let home = directory_in(&work, HOME, 0o700).map_err(failed(HOME))?;
        rustix::fs::symlinkat("../skills", &work, "skills").map_err(failed("link to skills"))?;
        if let Some(owner) = owner {
            let (uid, gid) = (Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)));
            rustix::fs::fchown(&work, uid, gid).map_err(failed("chown work"))?;
            rustix::fs::fchown(&temporary, uid, gid).map_err(failed("chown temporary"))?;
            rustix::fs::fchown(&home, uid, gid).map_err(failed("chown home"))?;
            rustix::fs::chownat(&work, "skills", uid, gid, AtFlags::SYMLINK_NOFOLLOW).map_err(failed("chown link"))?;
        }
        Ok(Self {
            work,
            skills,
            work_path,
            skills_path,
            owner,
            bound,
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
