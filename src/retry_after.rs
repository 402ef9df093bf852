//! The pause that a server asks for before it is called again.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};

/// Longest pause that a server may ask for. Builds, which wait for it, have minutes.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// `Retry-After`, in seconds or as a date, bounded. One in the past asks for no pause.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let asked = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let until = || {
        let until = httpdate::parse_http_date(asked).ok()?;
        Some(until.duration_since(SystemTime::now()).unwrap_or_default())
    };
    let pause = asked.trim().parse().ok().map(Duration::from_secs).or_else(until);
    pause.map(|pause| pause.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_in_seconds_or_until_a_date_and_has_a_bound() {
        let asked = |text: &str| {
            let headers = [(RETRY_AFTER, text.parse().unwrap())];
            retry_after(&headers.into_iter().collect())
        };
        let date = |from_now: i64| {
            let now = SystemTime::now();
            let by = Duration::from_secs(from_now.unsigned_abs());
            httpdate::fmt_http_date(if from_now < 0 { now - by } else { now + by })
        };
        assert_eq!(asked("7"), Some(Duration::from_secs(7)));
        assert_eq!(asked("0"), Some(Duration::ZERO));
        assert_eq!(asked("3600"), Some(RETRY_AFTER_MAX));
        assert_eq!(asked(&date(-60)), Some(Duration::ZERO));
        assert_eq!(asked(&date(3600)), Some(RETRY_AFTER_MAX));
        let begun = std::time::Instant::now();
        let soon = asked(&date(20)).unwrap();
        // A date has whole seconds.
        let least = Duration::from_secs(19).saturating_sub(begun.elapsed());
        assert!((least..=Duration::from_secs(20)).contains(&soon), "{soon:?}");
        for other in ["", "soon", "-1", "1.5"] {
            assert_eq!(asked(other), None, "{other}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
