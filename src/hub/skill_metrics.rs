//! Uses of skills: what gateways report, added up.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use knack_hub_api::{OTHER_SKILLS, SKILL_SERIES_MAX, SkillUseKind, UNUSED_SERIES_MAX, UseLine};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::exemplar::CounterWithExemplar;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Labels of a use of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UseLabels {
    runtime: String,
    skill: String,
    r#use: &'static str,
}

/// Labels of a skill.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct SkillLabels {
    runtime: String,
    skill: String,
}

/// The request that a gateway reported last: from a graph to the request's log and trace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabel {
    request_id: String,
}

/// The counters.
#[derive(Debug, Default)]
pub struct SkillUses {
    uses: Family<UseLabels, CounterWithExemplar<RequestLabel>>,
    tokens: Family<SkillLabels, CounterWithExemplar<RequestLabel>>,
    /// Skills with series of their own.
    known: Mutex<BTreeSet<SkillLabels>>,
}

impl SkillUses {
    /// Gives them their names.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "skill_uses",
            "Uses of skills as gateways report them: carried in the system text, loaded by the model, ran, failed",
            self.uses.clone(),
        );
        registry.register(
            "skill_tokens",
            "Estimated tokens (bytes / 4) that texts of skills added to requests, as gateways report them",
            self.tokens.clone(),
        );
    }

    /// Gives skills that a runtime serves their series: Prometheus sees no increase in a counter that begins with its first count.
    pub fn serve(&self, runtime: &str, skills: impl IntoIterator<Item = String>) {
        let mut known = self.known();
        for skill in skills {
            if known.len() >= UNUSED_SERIES_MAX {
                return;
            }
            let labels = SkillLabels {
                runtime: runtime.to_owned(),
                skill,
            };
            if !known.contains(&labels) {
                self.begin(&labels);
                known.insert(labels);
            }
        }
    }

    /// Creates the series of a skill, with 0.
    fn begin(&self, labels: &SkillLabels) {
        for kind in SkillUseKind::ALL {
            let SkillLabels { runtime, skill } = labels.clone();
            let r#use = kind.as_str();
            drop(self.uses.get_or_create(&UseLabels { runtime, skill, r#use }));
        }
        drop(self.tokens.get_or_create(labels));
    }

    /// Counts what a gateway reports of a skill at a runtime; `None`: of one that the runtime does not serve.
    pub fn count(&self, runtime: &str, skill: Option<&str>, line: &UseLine) {
        let labels = self.labels(runtime, skill);
        for kind in SkillUseKind::ALL {
            let count = line.count(kind);
            if count > 0 {
                let labels = UseLabels {
                    runtime: labels.runtime.clone(),
                    skill: labels.skill.clone(),
                    r#use: kind.as_str(),
                };
                let counter = self.uses.get_or_create(&labels);
                counter.inc_by(count.into(), request(line, kind), None);
            }
        }
        if line.tokens > 0 {
            // Texts are added by these two uses.
            let last = request(line, SkillUseKind::Loaded).or_else(|| request(line, SkillUseKind::Carried));
            let counter = self.tokens.get_or_create(&labels);
            counter.inc_by(line.tokens.into(), last, None);
        }
    }

    fn labels(&self, runtime: &str, skill: Option<&str>) -> SkillLabels {
        let named = |skill: &str| SkillLabels {
            runtime: runtime.to_owned(),
            skill: skill.to_owned(),
        };
        let Some(own) = skill.map(named) else {
            return named(OTHER_SKILLS);
        };
        let mut known = self.known();
        if !known.contains(&own) {
            if known.len() >= SKILL_SERIES_MAX {
                return named(OTHER_SKILLS);
            }
            self.begin(&own);
            known.insert(own.clone());
        }
        own
    }

    fn known(&self) -> MutexGuard<'_, BTreeSet<SkillLabels>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The exemplar of a use; `None`: its request is not known, or is not an id.
fn request(line: &UseLine, kind: SkillUseKind) -> Option<RequestLabel> {
    let request_id = line.last(kind)?.to_owned();
    Some(RequestLabel { request_id })
}

#[cfg(test)]
mod tests {
    use knack_hub_api::LastRequests;
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn uses_of_skills_are_added_up_and_names_without_end_make_no_series_without_end() {
        let (uses, mut registry) = (SkillUses::default(), Registry::with_prefix("knack_hub"));
        uses.register(&mut registry);
        let used = UseLine {
            ran: 2,
            failed: 1,
            tokens: 40,
            ..UseLine::default()
        };
        uses.count("team/small", Some("team/pdf"), &used);
        uses.count("team/small", Some("team/pdf"), &used);
        for number in 0..SKILL_SERIES_MAX {
            uses.count("team/small", Some(&format!("n/{number}")), &used);
        }
        uses.count("team/small", None, &used);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            r#"knack_hub_skill_uses_total{runtime="team/small",skill="team/pdf",use="ran"} 4"#,
            r#"knack_hub_skill_uses_total{runtime="team/small",skill="team/pdf",use="failed"} 2"#,
            r#"knack_hub_skill_tokens_total{runtime="team/small",skill="team/pdf"} 80"#,
            r#"knack_hub_skill_uses_total{runtime="team/small",skill="other",use="ran"} 4"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}");
        }
        // Every use of a known skill has a series, so that the first one of its kind is an increase.
        let unused = r#"knack_hub_skill_uses_total{runtime="team/small",skill="team/pdf",use="carried"} 0"#;
        assert!(text.lines().any(|found| found == unused), "{unused}");
        assert_eq!(text.matches("use=\"ran\"").count(), SKILL_SERIES_MAX + 1);
    }

    #[test]
    fn counts_have_the_last_request_as_their_exemplar_where_a_gateway_tells_one() {
        let (uses, mut registry) = (SkillUses::default(), Registry::with_prefix("knack_hub"));
        uses.register(&mut registry);
        let used = UseLine {
            carried: 2,
            ran: 1,
            tokens: 40,
            last: LastRequests {
                carried: "r2".to_owned(),
                ran: "no id".to_owned(),
                ..LastRequests::default()
            },
            ..UseLine::default()
        };
        uses.count("team/small", Some("team/pdf"), &used);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            r#"knack_hub_skill_uses_total{runtime="team/small",skill="team/pdf",use="carried"} 2 # {request_id="r2"} 2"#,
            r#"knack_hub_skill_tokens_total{runtime="team/small",skill="team/pdf"} 40 # {request_id="r2"} 40"#,
        ] {
            assert!(text.lines().any(|found| found.starts_with(line)), "{line} in\n{text}");
        }
        let without = r#"knack_hub_skill_uses_total{runtime="team/small",skill="team/pdf",use="ran"} 1"#;
        assert!(text.lines().any(|found| found == without), "{without} in\n{text}");
    }

    #[test]
    fn a_skill_that_a_runtime_serves_has_its_series_before_its_first_use() {
        let (uses, mut registry) = (SkillUses::default(), Registry::with_prefix("knack_hub"));
        uses.register(&mut registry);
        let rendered = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        let series =
            |name: &str| format!(r#"knack_hub_skill_uses_total{{runtime="team/small",skill="team/pdf",use="{name}"}}"#);
        uses.serve("team/small", ["team/pdf".to_owned()]);
        for kind in SkillUseKind::ALL {
            let line = format!("{} 0", series(kind.as_str()));
            assert!(rendered().lines().any(|found| found == line), "{line}");
        }
        let tokens = r#"knack_hub_skill_tokens_total{runtime="team/small",skill="team/pdf"} 0"#;
        assert!(rendered().lines().any(|found| found == tokens), "{tokens}");
        let used = UseLine {
            failed: 1,
            ..UseLine::default()
        };
        uses.count("team/small", Some("team/pdf"), &used);
        // Another gateway reads the catalog: nothing is set back, and there is a bound.
        let many = (0..2 * UNUSED_SERIES_MAX).map(|number| format!("n/{number}"));
        uses.serve("team/small", ["team/pdf".to_owned()].into_iter().chain(many));
        let line = format!("{} 1", series("failed"));
        assert!(rendered().lines().any(|found| found == line), "{line}");
        assert_eq!(rendered().matches("use=\"ran\"").count(), UNUSED_SERIES_MAX);
    }
}
