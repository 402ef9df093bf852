//! How long a client waits for an answer, as its SDK says it.
//!
//! A client that has timed out retries by itself, and the whole loop would run again; behind a proxy that keeps the
//! connection, runs would continue that nobody waits for. So a loop whose answer is sent as a whole ends a moment earlier, with an error
//! that the SDK does not repeat. A stream is left alone: there the SDKs count from one piece to the next, and signs of life
//! come between.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

/// Seconds that a client waits: of the SDKs of OpenAI and Anthropic, and of Google's.
static HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("x-stainless-timeout"),
    HeaderName::from_static("x-stainless-read-timeout"),
    HeaderName::from_static("x-server-timeout"),
];
/// Most of the time that is left for the error to arrive: ten round trips around the world.
const MARGIN: Duration = Duration::from_secs(1);
/// The margin of a short timeout is this part of it.
const MARGIN_PART: u32 = 10;

/// The deadline of a loop whose answer is sent as a whole: that of the runtime, or the shortest that the client names. What is
/// no number of seconds (`NOT_GIVEN`) names none.
pub(crate) fn deadline(runtime: Duration, headers: &HeaderMap) -> Duration {
    let values = HEADERS.iter().filter_map(|name| headers.get(name)?.to_str().ok());
    let times = values.filter_map(|value| Duration::try_from_secs_f64(value.trim().parse().ok()?).ok());
    let shortest = times.filter(|time| !time.is_zero()).min();
    let ends = shortest.map(|time| time.saturating_sub(MARGIN.min(time / MARGIN_PART)));
    ends.map_or(runtime, |ends| runtime.min(ends))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[track_caller]
    fn check(headers: &[(&'static str, &'static str)], expected_ms: u64) {
        let named = headers.iter().map(|(name, value)| {
            let name = http::HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        let runtime = Duration::from_mins(9);
        let found = deadline(runtime, &named.collect());
        assert_eq!(found, Duration::from_millis(expected_ms), "{headers:?}");
    }

    #[test]
    fn the_shortest_time_of_the_client_counts_below_that_of_the_runtime() {
        check(&[], 540_000);
        check(&[("x-stainless-timeout", "600")], 540_000);
        check(&[("x-stainless-timeout", "60")], 59_000);
        check(&[("x-stainless-timeout", "2.5")], 2250);
        check(&[("x-server-timeout", "30")], 29_000);
        check(
            &[("x-stainless-timeout", "60"), ("x-stainless-read-timeout", "20.0")],
            19_000,
        );
        for none in ["NOT_GIVEN", "", "0", "-1", "inf", "nan", "1e400"] {
            check(&[("x-stainless-read-timeout", none)], 540_000);
        }
    }
}
