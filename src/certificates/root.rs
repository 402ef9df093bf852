//! The root of a release: the authority that signs its certificates for ten years.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Life of a root. What clients trust changes once in it: a pod, or a copy of the ConfigMap made by hand, outlives
/// every certificate.
pub(super) const ROOT_VALIDITY: Duration = Duration::from_hours(10 * 365 * 24);
/// A root with less time left than this is replaced: longer than any certificate that it signs lives.
const RENEWED_BEFORE: Duration = Duration::from_hours(365 * 24);

/// An authority and its key. Times are seconds since the Unix epoch.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// PEM of its certificate.
    pub certificate: String,
    /// PEM of its key.
    pub key: String,
    /// Valid from.
    pub not_before: u64,
    /// Valid until.
    pub not_after: u64,
}

impl std::fmt::Debug for Root {
    /// The key is not shown.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Root")
            .field("not_before", &self.not_before)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl Root {
    /// Whether certificates are signed by it at this time.
    pub(super) fn signs(&self, now: u64) -> bool {
        self.not_before <= now && now + RENEWED_BEFORE.as_secs() < self.not_after
    }
}

#[cfg(test)]
mod tests {
    use crate::certificates::issue::issue_root;

    const DAY: u64 = 24 * 3600;

    #[test]
    fn a_root_signs_for_nine_years() {
        let root = issue_root(100 * DAY).unwrap();
        for (day, signs) in [
            (99, false),
            (100, true),
            (100 + 9 * 365 - 1, true),
            (100 + 9 * 365, false),
            (100 + 11 * 365, false),
        ] {
            assert_eq!(root.signs(day * DAY), signs, "day {day}");
        }
    }

    #[test]
    fn the_key_is_never_shown() {
        assert!(!format!("{:?}", issue_root(DAY).unwrap()).contains("PRIVATE"));
    }
}
