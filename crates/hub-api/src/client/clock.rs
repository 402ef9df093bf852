//! The hub's clock, as its answers show it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, header};

/// A difference from the hub's clock that is logged: less than certificates and tokens forgive, more than an answer takes.
const WARNED_FROM_MS: u64 = 30_000;
/// The time in an answer is in whole seconds (RFC 9110, section 6.6.1).
const PRECISION_MS: i64 = 1000;

/// The difference between the hub's clock and this machine's.
#[derive(Debug, Default)]
pub(super) struct HubClock {
    ahead_ms: AtomicI64,
    is_warned: AtomicBool,
}

/// Time since the Unix epoch by this machine's clock.
pub(super) fn own() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl HubClock {
    /// `own`, by this machine's clock, as the hub's clock has it; times are since the Unix epoch.
    pub(super) fn at(&self, own: Duration) -> Duration {
        let ahead = self.ahead_ms.load(Ordering::Relaxed);
        let difference = Duration::from_millis(ahead.unsigned_abs());
        if ahead < 0 {
            own.saturating_sub(difference)
        } else {
            own + difference
        }
    }

    /// Takes the time of an answer that was made between `asked` and `answered`, by this machine's clock.
    pub(super) fn note(&self, headers: &HeaderMap, asked: Duration, answered: Duration) {
        let date = headers.get(header::DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
        let Some(date) = date.and_then(|date| date.duration_since(UNIX_EPOCH).ok()) else {
            return;
        };
        let ahead = ahead_ms(millis(date), millis(asked), millis(answered));
        self.ahead_ms.store(ahead, Ordering::Relaxed);
        let is_far = ahead.unsigned_abs() >= WARNED_FROM_MS;
        if is_far && !self.is_warned.swap(true, Ordering::Relaxed) {
            let (seconds, direction) = (
                ahead.unsigned_abs() / 1000,
                if ahead < 0 { "ahead of" } else { "behind" },
            );
            tracing::warn!(
                "the clock of this machine is {seconds} s {direction} the hub's; executions use the hub's time, but each machine checks certificates and tokens by its own clock: synchronize the clocks by NTP"
            );
        } else if !is_far {
            self.is_warned.store(false, Ordering::Relaxed);
        }
    }
}

/// The difference that is nearest to none with which an answer of `date`, in whole seconds, can have been made between `asked`
/// and `answered`. All in milliseconds.
fn ahead_ms(date: i64, asked: i64, answered: i64) -> i64 {
    let least = date.saturating_sub(answered);
    let most = date.saturating_add(PRECISION_MS).saturating_sub(asked);
    if least > 0 { least } else { most.min(0) }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
    /// [`DATE`], in milliseconds since the Unix epoch.
    const TIME: u64 = 1_767_225_600_000;

    /// What the hub's clock has at [`TIME`] of this machine's, milliseconds after it, once an answer of `date` was noted that was
    /// asked for and came so many milliseconds after [`TIME`].
    fn noted(date: &str, asked: i64, answered: i64) -> i64 {
        let (clock, mut headers) = (HubClock::default(), HeaderMap::new());
        headers.insert(header::DATE, date.parse().unwrap());
        let at = |after| Duration::from_millis(TIME.saturating_add_signed(after));
        clock.note(&headers, at(asked), at(answered));
        millis(clock.at(at(0))) - millis(at(0))
    }

    #[test]
    fn clocks_that_agree_as_far_as_an_answer_tells_are_taken_as_one() {
        for (asked, answered) in [(0, 0), (999, 999), (-500, 0), (-30_000, 30_000)] {
            assert_eq!(noted(DATE, asked, answered), 0, "{asked} {answered}");
        }
    }

    #[test]
    fn a_clock_that_is_ahead_or_behind_is_corrected_to_within_a_second_and_the_time_of_an_answer() {
        assert_eq!(noted(DATE, 240_000, 241_000), -239_000);
        assert_eq!(noted(DATE, -240_000, -239_000), 239_000);
    }

    #[test]
    fn an_answer_without_a_time_says_nothing() {
        for date in ["", "yesterday", "Thu, 01 Jan 1960 00:00:00 GMT"] {
            assert_eq!(noted(date, 3_600_000, 3_600_000), 0, "{date:?}");
        }
    }
}
