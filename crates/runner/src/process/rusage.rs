//! Resources that the reaped processes of the run have used.

use std::time::Duration;

/// CPU time and memory of all reaped descendants.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// User and system time together.
    pub(crate) cpu: Duration,
    /// The largest resident set of one process.
    pub(crate) max_rss_bytes: u64,
}

/// Reads the usage of every descendant that was reaped so far.
#[expect(unsafe_code, reason = "neither std nor rustix has getrusage")]
pub(crate) fn usage_of_children() -> Usage {
    let mut raw = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for one rusage, which the kernel fills; all-zero bytes are a valid rusage.
    let raw = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, raw.as_mut_ptr());
        raw.assume_init()
    };
    let time = |value: libc::timeval| {
        Duration::from_secs(u64::try_from(value.tv_sec).unwrap_or(0))
            + Duration::from_micros(u64::try_from(value.tv_usec).unwrap_or(0))
    };
    Usage {
        cpu: time(raw.ru_utime) + time(raw.ru_stime),
        max_rss_bytes: u64::try_from(raw.ru_maxrss).unwrap_or(0).saturating_mul(1024),
    }
}
