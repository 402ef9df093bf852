//! A mount namespace for the run: its working directory is a separate file system, with a maximum size and number of
//! files; everything else is mounted read-only.
//!
//! ```text
//! unshare ─▶ private ─▶ tmpfs and a copy of skills/, attached nowhere ─▶ everything read-only ─▶ both attached
//! ```
//!
//! Root creates it directly; a normal user creates a user namespace first, which has no other user. Where neither is
//! allowed (a container, a distribution that keeps user namespaces for chosen programs) nothing is changed, and the
//! runner counts files and bytes instead.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags};
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};

/// Files that the runner makes itself: the directory, its temporary one, the link to the skills.
const OWN_FILES: u64 = 8;

/// The bounds of a working directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quota {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
}

/// Why there is no namespace.
#[derive(Debug)]
pub(crate) enum NoMounts {
    /// It is not allowed here, and nothing has changed.
    Refused,
    /// It broke off in the middle: nothing may run.
    Broken(String),
}

impl NoMounts {
    fn broken(what: &str, error: rustix::io::Errno) -> Self {
        Self::Broken(format!("{what}: {}", std::io::Error::from(error)))
    }
}

/// Moves the runner, and so every process that it starts, into a new mount namespace, in which `work` is a new and
/// empty file system and `skills` is unchanged.
pub(crate) fn enclose(work: &Path, skills: &Path, quota: Quota) -> Result<(), NoMounts> {
    let mounted = arrange(work, skills, quota);
    forget_rights().map_err(|error| NoMounts::broken("capabilities", error))?;
    mounted
}

fn arrange(work: &Path, skills: &Path, quota: Quota) -> Result<(), NoMounts> {
    let refused = |_: rustix::io::Errno| NoMounts::Refused;
    enter().map_err(refused)?;
    let file_system = new_file_system(quota).map_err(refused)?;
    let skills_copy = copy_of(skills).map_err(refused)?;
    make_read_only().map_err(refused)?;
    attach(&file_system, work).map_err(|error| NoMounts::broken("mount work", error))?;
    attach(&skills_copy, skills).map_err(|error| NoMounts::broken("mount skills", error))
}

/// A new mount namespace; for a normal user in a new user namespace, which gives the right to it.
fn enter() -> rustix::io::Result<()> {
    if rustix::process::geteuid().is_root() {
        unshare(UnshareFlags::NEWNS)?;
    } else {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
        // The files below belong to root as long as the process is not dumpable.
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        let mapped = map("setgroups", "deny")
            .and_then(|()| map("uid_map", &format!("{0} {0} 1", uid.as_raw())))
            .and_then(|()| map("gid_map", &format!("{0} {0} 1", gid.as_raw())));
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        mapped?;
    }
    // Or the mounts below would be seen, and stay, outside.
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
}

#[expect(unsafe_code, reason = "rustix leaves it to the caller that no thread is surprised")]
fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: the runner has one thread, and its table of descriptors is not unshared.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

fn map(file: &str, text: &str) -> rustix::io::Result<()> {
    std::fs::write(format!("/proc/self/{file}"), text)
        .map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
}

/// An empty file system in memory, attached nowhere.
fn new_file_system(quota: Quota) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let files = quota.files.saturating_add(OWN_FILES);
    for (name, value) in [
        ("size", quota.bytes.to_string()),
        ("nr_inodes", files.to_string()),
        ("mode", "0700".to_owned()),
    ] {
        rustix::mount::fsconfig_set_string(context.as_fd(), name, value)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// A detached copy of the mount at the path: it stays writable, for the runner alone.
fn copy_of(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    rustix::mount::open_tree(CWD, path, flags)
}

fn attach(mount: &OwnedFd, path: &Path) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(mount.as_fd(), "", CWD, path, flags)
}

/// Every mount of the namespace, but /proc: there a child says that it is to die first when memory ends.
fn make_read_only() -> rustix::io::Result<()> {
    set_attributes(c"/", libc::AT_RECURSIVE, READ_ONLY, 0)?;
    // Without it that is all that is lost.
    let _ = set_attributes(c"/proc", 0, 0, READ_ONLY);
    Ok(())
}

/// `MOUNT_ATTR_RDONLY`.
const READ_ONLY: u64 = 1;

/// `struct mount_attr` (linux/mount.h).
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

#[expect(unsafe_code, reason = "neither std nor rustix has mount_setattr")]
fn set_attributes(path: &std::ffi::CStr, flags: i32, set: u64, clear: u64) -> rustix::io::Result<()> {
    let attributes = MountAttributes {
        set,
        clear,
        propagation: 0,
        user_namespace: 0,
    };
    // SAFETY: path and attributes are valid for the call, which reads as many bytes of the latter as its size argument
    // says.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    if outcome == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::NOSYS))
}

/// Gives up what the user namespace gave, if there is one. Root needs its rights to become the user of the run.
fn forget_rights() -> rustix::io::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none)
}
