//! Uses of skills: what gateways report, added up.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use knack_hub_api::UseLine;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Most skills with series of their own, at all runtimes together: more than a cluster usefully has, and what Prometheus bears.
const SKILLS_MAX: usize = 10_000;
/// The label of skills beyond [`SKILLS_MAX`], and of those that a runtime does not serve.
const OTHER: &str = "other";

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

/// The counters.
#[derive(Debug, Default)]
pub struct SkillUses {
    uses: Family<UseLabels, Counter>,
    tokens: Family<SkillLabels, Counter>,
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

    /// Counts what a gateway reports of a skill at a runtime; `None`: of one that the runtime does not serve.
    pub fn count(&self, runtime: &str, skill: Option<&str>, line: &UseLine) {
        let labels = self.labels(runtime, skill);
        for (name, count) in [
            ("carried", line.carried),
            ("loaded", line.loaded),
            ("ran", line.ran),
            ("failed", line.failed),
        ] {
            if count > 0 {
                let labels = UseLabels {
                    runtime: labels.runtime.clone(),
                    skill: labels.skill.clone(),
                    r#use: name,
                };
                self.uses.get_or_create(&labels).inc_by(count.into());
            }
        }
        if line.tokens > 0 {
            self.tokens.get_or_create(&labels).inc_by(line.tokens.into());
        }
    }

    fn labels(&self, runtime: &str, skill: Option<&str>) -> SkillLabels {
        let named = |skill: &str| SkillLabels {
            runtime: runtime.to_owned(),
            skill: skill.to_owned(),
        };
        let Some(own) = skill.map(named) else {
            return named(OTHER);
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(&own) {
            if known.len() >= SKILLS_MAX {
                return named(OTHER);
            }
            known.insert(own.clone());
        }
        own
    }
}

#[cfg(test)]
mod tests {
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
        for number in 0..SKILLS_MAX {
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
        assert!(!text.contains("carried\""), "a use that never was has no series");
        assert_eq!(text.matches("use=\"ran\"").count(), SKILLS_MAX + 1);
    }
}
