//! The wall clock that execution ids carry.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time since the Unix epoch.
pub fn now() -> Duration {
    // A clock before 1970 makes every id one from the future, which is refused with a hint at the clock.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
