//! Skills whose content could not be read when a build of them was to start. Such a build would take a place at every
//! reconcile, and four of one namespace all of its places. What other skills need too is built from the content of one of those.

use std::collections::{BTreeMap, BTreeSet};

use super::wanted::{Asker, NeededEnvironment, NeededEnvironments};

/// The first pause of a skill, seconds: its status and its content may be of two revisions for a moment.
const FIRST_SECONDS: i64 = 2;
/// The longest, seconds: as often as other failures that may pass are retried.
const LAST_SECONDS: i64 = 5 * 60;

/// The skills, each with the digest of the content that could not be read: other content is read at once.
#[derive(Debug, Default)]
pub(super) struct Unread(BTreeMap<Asker, Pause>);

#[derive(Debug, Clone, Copy)]
struct Pause {
    seconds: i64,
    until: i64,
}

impl Unread {
    /// The content of a skill could not be read. It waits, twice as long as the last time.
    pub(super) fn failed(&mut self, asker: &Asker, now: i64) {
        let before = self.0.get(asker).copied();
        // Several environments of one content, of which each was tried in one reconcile, are one failure.
        if before.is_some_and(|pause| now < pause.until) {
            return;
        }
        let seconds = before.map_or(FIRST_SECONDS, |pause| (pause.seconds * 2).min(LAST_SECONDS));
        let until = now + seconds;
        self.0.insert(asker.clone(), Pause { seconds, until });
    }

    /// It was read.
    pub(super) fn succeeded(&mut self, asker: &Asker) {
        self.0.remove(asker);
    }

    /// Whether the content of a skill is not tried now.
    pub(super) fn waits(&self, asker: &Asker, now: i64) -> bool {
        self.0.get(asker).is_some_and(|pause| now < pause.until)
    }

    /// Whether no content of an environment is tried now.
    pub(super) fn holds(&self, needed: &NeededEnvironment, now: i64) -> bool {
        needed.sources().all(|asker| self.waits(asker, now))
    }

    /// Forgets what nothing needs any more.
    pub(super) fn keep(&mut self, wanted: &NeededEnvironments) {
        if !self.0.is_empty() {
            let needed: BTreeSet<&Asker> = wanted.values().flat_map(NeededEnvironment::sources).collect();
            self.0.retain(|known, _| needed.contains(known));
        }
    }
}

#[cfg(test)]
mod tests {
    use knack_skill::model::SkillRef;

    use super::*;
    use crate::selection::EnvironmentRequest;

    fn asker(skill: &str, artifact: &str) -> Asker {
        Asker {
            skill: SkillRef {
                namespace: "n".to_owned(),
                name: skill.to_owned(),
            },
            artifact: artifact.to_owned(),
        }
    }

    /// What is wanted where these skills need one environment.
    fn wanted(askers: Vec<Asker>) -> NeededEnvironments {
        let needed = NeededEnvironment {
            asked: EnvironmentRequest {
                key: "k".into(),
                base: "b@sha256:0".to_owned(),
                constraints: Vec::new(),
                exclude_newer: None,
            },
            askers: BTreeMap::from([("n".to_owned(), askers)]),
            skills: Vec::new(),
            digest: "d".to_owned(),
            is_listed: true,
            is_earlier: false,
            runtimes: Vec::new(),
        };
        NeededEnvironments::from([("k".into(), needed)])
    }

    #[test]
    fn content_that_cannot_be_read_is_tried_less_and_less_often() {
        let (mut unread, one) = (Unread::default(), asker("a", "1"));
        let mut now = 0;
        for pause in [2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            unread.failed(&one, now);
            // Another environment of it, in the same reconcile.
            unread.failed(&one, now);
            assert!(unread.waits(&one, now + pause - 1), "{pause}");
            assert!(!unread.waits(&one, now + pause), "{pause}");
            now += pause;
        }
        unread.failed(&one, now);
        for other in [asker("b", "1"), asker("a", "2")] {
            assert!(!unread.waits(&other, now), "{other:?}");
        }
        unread.succeeded(&one);
        assert!(!unread.waits(&one, now));
        unread.failed(&one, now);
        unread.keep(&wanted(vec![asker("b", "1"), asker("a", "1")]));
        assert!(unread.waits(&one, now + 1));
        unread.keep(&wanted(vec![asker("a", "2")]));
        assert!(unread.0.is_empty());
    }
}
