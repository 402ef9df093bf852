//! Moments until which an index counts, in one form: `2026-07-01T23:59:59Z`. Earlier ones are smaller texts.

use toml::value::{Datetime, Offset};

use crate::finding::shown;

/// Minutes of a day.
const DAY: i64 = 24 * 60;

/// Reads a day, which lasts to its end in UTC, or a time with its zone. Errors: one clause.
pub(crate) fn read(text: &str) -> Result<String, String> {
    let none = || {
        format!(
            "{} is neither a day nor a time with its zone; write one such as 2026-07-01 or 2026-07-01T12:00:00Z",
            shown(text)
        )
    };
    let moment: Datetime = text.parse().map_err(|_| none())?;
    let date = moment.date.ok_or_else(none)?;
    let (time, zone) = match (moment.time, moment.offset) {
        (None, _) => return Ok(format!("{date}T23:59:59Z")),
        (Some(time), Some(Offset::Z)) => (time, 0),
        (Some(time), Some(Offset::Custom { minutes })) => (time, i64::from(minutes)),
        (Some(_), None) => return Err(none()),
    };
    let days = days(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let minutes = days * DAY + i64::from(time.hour) * 60 + i64::from(time.minute) - zone;
    let (year, month, day) = date_of(minutes.div_euclid(DAY));
    if !(0..=9999).contains(&year) {
        return Err(none());
    }
    let minute = minutes.rem_euclid(DAY);
    // No second of a day is later than 59 for an installer.
    let second = time.second.unwrap_or_default().min(59);
    let (hour, minute) = (minute / 60, minute % 60);
    Ok(format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
    ))
}

/// Days from 0000-03-01 to a date, by years that begin in March, so that a leap day is the last one.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month < 3 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year
}

/// The date of such a number.
fn date_of(days: i64) -> (i64, i64, i64) {
    /// Days of 400 years, after which dates repeat.
    const CYCLE: i64 = 146_097;
    let of_cycle = days.rem_euclid(CYCLE);
    let of_years = (of_cycle - of_cycle / 1_460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * of_years + of_years / 4 - of_years / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = of_years + days.div_euclid(CYCLE) * 400;
    (if month < 3 { year + 1 } else { year }, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_ends_in_utc_and_a_time_is_written_in_it() {
        for (text, expected) in [
            ("2026-07-01", "2026-07-01T23:59:59Z"),
            ("2023-10-16T00:00:00Z", "2023-10-16T00:00:00Z"),
            ("2026-07-01 12:30:15.75Z", "2026-07-01T12:30:15Z"),
            ("2026-07-01T00:30:00+02:00", "2026-06-30T22:30:00Z"),
            ("2023-12-31T23:30:00-01:00", "2024-01-01T00:30:00Z"),
            ("2024-02-29T00:00:00+00:01", "2024-02-28T23:59:00Z"),
            ("2024-02-28T23:59:00-00:01", "2024-02-29T00:00:00Z"),
            ("2100-02-28T23:59:00-00:01", "2100-03-01T00:00:00Z"),
            ("2000-03-01T00:00:00+00:01", "2000-02-29T23:59:00Z"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "yesterday",
            "1 week",
            "P7D",
            "12:00:00",
            "2026-07-01T12:00:00",
            "2026-02-30",
            "0000-01-01T00:00:00+10:00",
            "9999-12-31T23:00:00-10:00",
        ] {
            let why = read(text).unwrap_err();
            assert!(
                why.ends_with("write one such as 2026-07-01 or 2026-07-01T12:00:00Z"),
                "{why}"
            );
        }
    }

    #[test]
    fn every_day_is_read_back() {
        for number in 0..800_000 {
            let (year, month, day) = date_of(number);
            assert_eq!(days(year, month, day), number);
        }
    }
}
