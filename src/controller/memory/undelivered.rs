//! Versions of skills that are chosen and not served: which of them were reported.

use super::bounded_map::BoundedMap;

/// The reported versions.
#[derive(Debug, Default)]
pub(in crate::controller) struct Undelivered {
    /// By uid of a skill and number of a version: the last reported reason why the version is not served.
    reported: BoundedMap<(String, u32), String>,
}

impl Undelivered {
    /// True once per version and cause, and remembers the report.
    pub(in crate::controller) fn first_report(&self, uid: &str, version: u32, cause: &str) -> bool {
        let key = (uid.to_owned(), version);
        let reported = self.reported.lock();
        if reported.get(&key).is_some_and(|reported| reported == cause) {
            return false;
        }
        drop(reported);
        self.reported.remember(key, cause.to_owned());
        true
    }

    /// Forgets the failures of versions that are not chosen: once one is chosen again, its failure is reported again.
    pub(in crate::controller) fn forget_unchosen(&self, uid: &str, chosen: &[u32]) {
        let mut reported = self.reported.lock();
        if !reported.is_empty() {
            reported.retain(|(of, version), _| of != uid || chosen.contains(version));
        }
    }

    /// A version of a skill is served: its next failure is reported again.
    pub(in crate::controller) fn forget(&self, uid: &str, version: u32) {
        let mut reported = self.reported.lock();
        reported.remove(&(uid.to_owned(), version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undelivered_version_is_reported_once_per_cause() {
        let undelivered = Undelivered::default();
        assert!(undelivered.first_report("u", 1, "no ConfigMap"));
        assert!(!undelivered.first_report("u", 1, "no ConfigMap"));
        assert!(undelivered.first_report("u", 2, "no ConfigMap"), "another version");
        assert!(undelivered.first_report("u", 1, "too large"), "another cause");
        undelivered.forget("u", 1);
        assert!(
            undelivered.first_report("u", 1, "too large"),
            "it was served in between"
        );
        undelivered.forget_unchosen("u", &[2]);
        assert!(
            undelivered.first_report("u", 1, "too large"),
            "it was not chosen in between"
        );
        assert!(!undelivered.first_report("u", 2, "no ConfigMap"));
    }
}
