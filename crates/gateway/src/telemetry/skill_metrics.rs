//! Counters by skill: which one a request carried, loaded or ran, how that went, and what it cost in tokens.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use knack_hub_api::{OTHER_SKILLS, SKILL_SERIES_MAX, SkillUseKind, UNUSED_SERIES_MAX, UseLine};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::exemplar::CounterWithExemplar;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::execution_note::CallId;

/// One use of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillUse {
    /// `namespace/name`.
    pub skill: String,
    /// The use.
    pub what: SkillUseKind,
    /// Estimated tokens (bytes / 4) that its text added.
    pub(crate) tokens: usize,
    /// The call that did it, if one did.
    pub call: Option<CallId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UseLabels {
    skill: String,
    r#use: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SkillLabel {
    skill: String,
}

/// The request that was counted last: from a graph to the request's log and trace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabel {
    request_id: String,
}

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct SkillMetrics {
    uses: Family<UseLabels, CounterWithExemplar<RequestLabel>>,
    tokens: Family<SkillLabel, CounterWithExemplar<RequestLabel>>,
    /// The skills with series of their own, with what is not reported to the hub yet.
    known: Mutex<BTreeMap<String, UseLine>>,
}

impl SkillMetrics {
    /// Gives them their names.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "gateway_skill_uses",
            "Uses of skills: carried in the system text, loaded by the model, ran, failed",
            self.uses.clone(),
        );
        registry.register(
            "gateway_skill_tokens",
            "Estimated tokens (bytes / 4) that texts of skills added to requests",
            self.tokens.clone(),
        );
    }

    /// Gives the skills of a catalog their series: Prometheus sees no increase in a counter that begins with its first count.
    pub(crate) fn serve(&self, skills: impl IntoIterator<Item = String>) {
        let mut known = self.known();
        for skill in skills {
            if known.len() >= UNUSED_SERIES_MAX {
                return;
            }
            if let Entry::Vacant(new) = known.entry(skill) {
                self.begin(new.key());
                new.insert(UseLine::default());
            }
        }
    }

    /// Creates the series of a skill, with 0.
    fn begin(&self, skill: &str) {
        for what in SkillUseKind::ALL {
            let (skill, r#use) = (skill.to_owned(), what.as_str());
            drop(self.uses.get_or_create(&UseLabels { skill, r#use }));
        }
        let skill = skill.to_owned();
        drop(self.tokens.get_or_create(&SkillLabel { skill }));
    }

    /// Counts the uses of one request.
    pub(crate) fn count(&self, request_id: &str, uses: &[SkillUse]) {
        for SkillUse {
            skill, what, tokens, ..
        } in uses
        {
            let skill = self.note(request_id, skill, *what, *tokens);
            let labels = UseLabels {
                skill: skill.clone(),
                r#use: what.as_str(),
            };
            let request = RequestLabel {
                request_id: request_id.to_owned(),
            };
            self.uses.get_or_create(&labels).inc_by(1, Some(request.clone()), None);
            if *tokens > 0 {
                let counter = self.tokens.get_or_create(&SkillLabel { skill });
                counter.inc_by(*tokens as u64, Some(request), None);
            }
        }
    }

    /// Notes a use for the next report, and returns the skill's label.
    fn note(&self, request_id: &str, skill: &str, what: SkillUseKind, tokens: usize) -> String {
        let mut known = self.known();
        let is_one_more = !known.contains_key(skill) && known.len() >= SKILL_SERIES_MAX;
        let skill = if is_one_more { OTHER_SKILLS } else { skill };
        let line = known.entry(skill.to_owned()).or_insert_with(|| {
            self.begin(skill);
            UseLine::default()
        });
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        line.add(&UseLine::one(what, request_id, tokens));
        skill.to_owned()
    }

    /// What was counted since it was last taken.
    pub(crate) fn take_unreported(&self) -> Vec<UseLine> {
        let mut known = self.known();
        let counted = known.iter_mut().filter(|(_, line)| **line != UseLine::default());
        let lines = counted.map(|(skill, line)| UseLine {
            skill: skill.clone(),
            ..std::mem::take(line)
        });
        lines.collect()
    }

    /// Keeps what was taken for the next report.
    pub(crate) fn give_back(&self, lines: &[UseLine]) {
        let mut known = self.known();
        for line in lines {
            // Whatever was taken is known.
            if let Some(kept) = known.get_mut(&line.skill) {
                let later = std::mem::take(kept);
                kept.add(line);
                kept.add(&later);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, UseLine>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use knack_hub_api::LastRequests;
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn used(skill: &str, what: SkillUseKind, tokens: usize) -> SkillUse {
        SkillUse {
            skill: skill.to_owned(),
            what,
            tokens,
            call: None,
        }
    }

    fn text(metrics: &SkillMetrics) -> String {
        let mut registry = Registry::with_prefix("knack");
        metrics.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn uses_are_counted_by_skill_and_name_their_last_request() {
        let metrics = SkillMetrics::default();
        metrics.count(
            "r1",
            &[
                used("team/pdf", SkillUseKind::Carried, 40),
                used("team/pdf", SkillUseKind::Loaded, 2),
                used("team/pdf", SkillUseKind::Ran, 0),
            ],
        );
        metrics.count(
            "r2",
            &[
                used("team/pdf", SkillUseKind::Ran, 0),
                used("team/csv", SkillUseKind::Failed, 0),
            ],
        );
        let text = text(&metrics);
        for line in [
            r#"knack_gateway_skill_uses_total{skill="team/pdf",use="carried"} 1 # {request_id="r1"} 1"#,
            r#"knack_gateway_skill_uses_total{skill="team/pdf",use="ran"} 2 # {request_id="r2"} 1"#,
            r#"knack_gateway_skill_uses_total{skill="team/csv",use="failed"} 1 # {request_id="r2"} 1"#,
            r#"knack_gateway_skill_tokens_total{skill="team/pdf"} 42 # {request_id="r1"} 2"#,
        ] {
            assert!(text.lines().any(|found| found.starts_with(line)), "{line} in\n{text}");
        }
    }

    #[test]
    fn a_skill_that_is_served_has_its_series_before_its_first_use() {
        let metrics = SkillMetrics::default();
        metrics.serve(["team/pdf".to_owned()]);
        let series = |count: u32| {
            ["carried", "loaded", "ran", "failed"]
                .map(|used| format!(r#"knack_gateway_skill_uses_total{{skill="team/pdf",use="{used}"}} {count}"#))
        };
        let there = |line: &String, text: &str| text.lines().any(|found| found.starts_with(line));
        let before = text(&metrics);
        for line in series(0) {
            assert!(there(&line, &before), "{line} in\n{before}");
        }
        assert!(
            before.contains(r#"knack_gateway_skill_tokens_total{skill="team/pdf"} 0"#),
            "{before}"
        );
        assert!(metrics.take_unreported().is_empty(), "nothing was used");
        metrics.count("r1", &[used("team/pdf", SkillUseKind::Failed, 0)]);
        // The catalog changes: nothing is set back.
        metrics.serve(
            (0..2 * UNUSED_SERIES_MAX)
                .map(|number| format!("n/{number}"))
                .chain(["team/pdf".to_owned()]),
        );
        let after = text(&metrics);
        assert!(there(&series(1)[3], &after) && there(&series(0)[2], &after), "{after}");
        assert_eq!(after.matches("uses_total{").count(), 4 * UNUSED_SERIES_MAX);
        // One beyond has them from its first use on.
        let last = format!("n/{}", 2 * UNUSED_SERIES_MAX);
        metrics.count("r1", &[used(&last, SkillUseKind::Loaded, 0)]);
        assert!(text(&metrics).contains(&format!(r#"skill="{last}",use="loaded"}} 1 "#)));
    }

    #[test]
    fn names_without_end_make_no_series_without_end() {
        let metrics = SkillMetrics::default();
        for number in 0..2 * SKILL_SERIES_MAX {
            metrics.count("r", &[used(&format!("n/{number}"), SkillUseKind::Loaded, 1)]);
        }
        metrics.count("r", &[used("n/0", SkillUseKind::Loaded, 1)]);
        let text = text(&metrics);
        assert_eq!(text.matches("uses_total{").count(), 4 * (SKILL_SERIES_MAX + 1));
        let other = format!(r#"skill="other",use="loaded"}} {SKILL_SERIES_MAX} "#);
        assert!(text.contains(&other), "{other}");
        assert!(text.contains(r#"skill="n/0",use="loaded"} 2 "#));
    }

    #[test]
    fn each_use_is_reported_once_and_again_only_if_it_is_given_back() {
        let metrics = SkillMetrics::default();
        metrics.count(
            "r1",
            &[
                used("team/pdf", SkillUseKind::Carried, 40),
                used("team/pdf", SkillUseKind::Ran, 0),
            ],
        );
        let first = metrics.take_unreported();
        let last = |ran: &str| LastRequests {
            carried: "r1".to_owned(),
            ran: ran.to_owned(),
            ..LastRequests::default()
        };
        let expected = UseLine {
            skill: "team/pdf".to_owned(),
            carried: 1,
            ran: 1,
            tokens: 40,
            last: last("r1"),
            ..UseLine::default()
        };
        assert_eq!(first, std::slice::from_ref(&expected));
        assert!(metrics.take_unreported().is_empty());
        metrics.give_back(&first);
        metrics.count("r2", &[used("team/pdf", SkillUseKind::Ran, 0)]);
        let again = UseLine {
            ran: 2,
            last: last("r2"),
            ..expected
        };
        metrics.give_back(&metrics.take_unreported());
        assert_eq!(metrics.take_unreported(), [again]);
    }
}
