//! Skills whose content could not be read when a build of them was to start. Such a build would take a place at every
//! reconcile, and four of one namespace all of its places.

use std::collections::BTreeMap;

use knack_skill::model::SkillRef;

use super::wanted::NeededEnvironment;

/// The first pause of a skill, seconds: its status and its content may be of two revisions for a moment.
const FIRST_SECONDS: i64 = 2;
/// The longest, seconds: as often as other failures that may pass are retried.
const LAST_SECONDS: i64 = 5 * 60;

/// The skills, each with the digest of the content that could not be read: other content is read at once.
#[derive(Debug, Default)]
pub(super) struct Unread(BTreeMap<(SkillRef, String), Pause>);

#[derive(Debug, Clone, Copy)]
struct Pause {
    seconds: i64,
    until: i64,
}

impl Unread {
    /// The content of an environment could not be read. All environments of it wait, twice as long as the last time.
    pub(super) fn failed(&mut self, asked: &NeededEnvironment, now: i64) {
        let before = self.0.get(&content(asked)).copied();
        // Several environments of one content, of which each was tried in one reconcile, are one failure.
        if before.is_some_and(|pause| now < pause.until) {
            return;
        }
        let seconds = before.map_or(FIRST_SECONDS, |pause| (pause.seconds * 2).min(LAST_SECONDS));
        let until = now + seconds;
        self.0.insert(content(asked), Pause { seconds, until });
    }

    /// It was read.
    pub(super) fn succeeded(&mut self, asked: &NeededEnvironment) {
        self.0.remove(&content(asked));
    }

    /// Whether the content of an environment is not tried now.
    pub(super) fn waits(&self, asked: &NeededEnvironment, now: i64) -> bool {
        self.0.get(&content(asked)).is_some_and(|pause| now < pause.until)
    }

    /// Forgets what nothing needs any more.
    pub(super) fn keep(&mut self, wanted: &BTreeMap<String, NeededEnvironment>) {
        if !self.0.is_empty() {
            let needed: Vec<_> = wanted.values().map(content).collect();
            self.0.retain(|known, _| needed.contains(known));
        }
    }
}

fn content(asked: &NeededEnvironment) -> (SkillRef, String) {
    (asked.skill.clone(), asked.artifact.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::EnvironmentRequest;

    fn asked(skill: &str, artifact: &str) -> NeededEnvironment {
        NeededEnvironment {
            asked: EnvironmentRequest {
                key: "k".to_owned(),
                base: "b@sha256:0".to_owned(),
                constraints: Vec::new(),
                exclude_newer: None,
            },
            skill: SkillRef {
                namespace: "n".to_owned(),
                name: skill.to_owned(),
            },
            skills: Vec::new(),
            digest: "d".to_owned(),
            artifact: artifact.to_owned(),
            is_listed: true,
            is_earlier: false,
            runtimes: Vec::new(),
        }
    }

    #[test]
    fn content_that_cannot_be_read_is_tried_less_and_less_often() {
        let (mut unread, one) = (Unread::default(), asked("a", "1"));
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
        for other in [asked("b", "1"), asked("a", "2")] {
            assert!(!unread.waits(&other, now), "{other:?}");
        }
        unread.succeeded(&one);
        assert!(!unread.waits(&one, now));
        unread.failed(&one, now);
        unread.keep(&BTreeMap::from([("k".to_owned(), asked("a", "1"))]));
        assert!(unread.waits(&one, now + 1));
        unread.keep(&BTreeMap::from([("k".to_owned(), asked("a", "2"))]));
        assert!(unread.0.is_empty());
    }
}
