//! The requests of Jobs whose builders have not begun. A Job may have no request: it is created after the Job, so that call may have
//! failed, or the process may have ended between the two calls. And the request of a deleted Job is garbage collected
//! after it, also if the next Job of that name exists by then.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use knack_packages::EnvironmentKey;

/// A request is made once more this often while a builder has not begun: it begins within seconds, and where no node has room the
/// calls are few.
const AGAIN: Duration = Duration::from_secs(10);

/// When the requests of Jobs were made last, by the uid of the Job.
#[derive(Debug, Default)]
pub(super) struct Requests(BTreeMap<String, Instant>);

impl Requests {
    /// The request of a Job was made.
    pub(super) fn made(&mut self, uid: &str, now: Instant) {
        self.0.insert(uid.to_owned(), now);
    }

    /// The keys whose requests are made now, with the uid of the Job; `waiting` has all Jobs whose builders have not begun.
    pub(super) fn due<'a>(
        &mut self,
        waiting: &'a BTreeMap<EnvironmentKey, String>,
        now: Instant,
    ) -> Vec<(&'a EnvironmentKey, &'a str)> {
        self.0.retain(|uid, _| waiting.values().any(|waits| waits == uid));
        let due = waiting.iter().filter(|(_, uid)| {
            let made = self.0.get(*uid);
            made.is_none_or(|made| now.duration_since(*made) >= AGAIN)
        });
        let due: Vec<(&EnvironmentKey, &str)> = due.map(|(key, uid)| (key, uid.as_str())).collect();
        for (_, uid) in &due {
            self.made(uid, now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_gets_its_request_and_is_asked_about_seldom() {
        let waiting = |jobs: &[(&str, &str)]| -> BTreeMap<EnvironmentKey, String> {
            let jobs = jobs.iter();
            jobs.map(|(key, uid)| ((*key).into(), (*uid).to_owned())).collect()
        };
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut requests = Requests::default();
        requests.made("1", start);
        for (what, seconds, jobs, expected) in [
            ("it was made just now", 1, &[("a", "1")][..], &[][..]),
            (
                "a Job of an earlier process",
                1,
                &[("a", "1"), ("b", "2")],
                &[("b", "2")],
            ),
            ("soon after", 9, &[("a", "1"), ("b", "2")], &[]),
            ("it still waits", 10, &[("a", "1"), ("b", "2")], &[("a", "1")]),
            ("another Job of its name", 10, &[("a", "3")], &[("a", "3")]),
            ("all have begun", 99, &[], &[]),
        ] {
            let waiting = waiting(jobs);
            let due = requests.due(&waiting, at(seconds));
            let due: Vec<(&str, &str)> = due.into_iter().map(|(key, uid)| (key.as_str(), uid)).collect();
            assert_eq!(due, expected, "{what}");
        }
        assert!(requests.0.is_empty(), "nothing is kept of Jobs that have begun");
    }
}
