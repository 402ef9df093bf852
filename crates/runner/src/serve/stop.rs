//! SIGTERM, where the runner is PID 1: a pod that is to end.

use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// Length of `struct signalfd_siginfo`.
const INFO_BYTES: usize = size_of::<libc::signalfd_siginfo>();
/// Signals taken at once; the kernel keeps one of a kind.
const INFOS: usize = 4;

/// Where the signal arrives. Elsewhere than as PID 1 it ends the runner at once, as any program, and the kernel its run.
#[derive(Debug)]
pub(super) struct Stop(Option<OwnedFd>);

impl Stop {
    /// Takes the signal from now on. Children set their own mask back.
    pub(super) fn listen() -> std::io::Result<Self> {
        if std::process::id() == 1 {
            Ok(Self(Some(listen()?)))
        } else {
            Ok(Self(None))
        }
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(OwnedFd::as_fd)
    }

    /// Whether the signal came from outside of the pod. Inside, only the run and a client that may `exec` can send it,
    /// and a run must not end its own pod: the kernel reports the sender's pid, which is 0 for one outside of the
    /// namespace.
    pub(super) fn is_asked(&self) -> bool {
        let Some(descriptor) = &self.0 else { return false };
        let mut buffer = [0_u8; INFO_BYTES * INFOS];
        let count = rustix::io::read(descriptor, &mut buffer[..]).unwrap_or(0);
        let infos = buffer.get(..count).unwrap_or_default().chunks_exact(INFO_BYTES);
        infos.filter_map(sender).any(|sender| sender == 0)
    }
}

/// `ssi_pid`, which follows three other numbers of four bytes.
fn sender(info: &[u8]) -> Option<u32> {
    let bytes = info.get(12..16)?.try_into().ok()?;
    Some(u32::from_ne_bytes(bytes))
}

#[expect(unsafe_code, reason = "neither std nor rustix has signalfd")]
fn listen() -> std::io::Result<OwnedFd> {
    // SAFETY: the set is a valid sigset_t for each call; the descriptor is new and has no other owner.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let descriptor = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if descriptor < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}
