//! A short sleep.

use std::time::Duration;

/// Sleeps for less than a second.
pub(super) fn nap(pause: Duration) {
    let pause = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(pause.subsec_nanos()),
    };
    let _ = rustix::event::poll(&mut [], Some(&pause));
}
