//! Uses of skills, which gateways count and the hub adds up: a sidecar's own counters are not scraped outside of its pod.

use serde::{Deserialize, Serialize};

/// Most lines of one report: the skills that a gateway counts by name, and one line for all others.
pub const USES_MAX: usize = 1_001;
/// Most bytes of one report: [`USES_MAX`] lines with names as long as Kubernetes lets them be.
pub const USES_MAX_BYTES: usize = 1 << 20;
/// Most skills with series of their own, at one gateway and at the hub: more than a cluster usefully has, and what Prometheus bears,
/// which keeps a series for every name that ever was.
pub const SKILL_SERIES_MAX: usize = 10_000;
/// Skills that have series before their first use: of more, most are never used, and each is 5 lines of every scrape.
pub const UNUSED_SERIES_MAX: usize = 1_000;
/// The label of skills beyond [`SKILL_SERIES_MAX`], and at the hub of those that a runtime does not serve.
pub const OTHER_SKILLS: &str = "other";
/// Longest id of a request in a report, bytes: a UUID has 36, and an exemplar of OpenMetrics is at most 128 characters.
const REQUEST_MAX_BYTES: usize = 64;

/// The use of a skill by a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkillUseKind {
    /// Its instructions were in the system text.
    Carried,
    /// The model read its instructions or one of its files.
    Loaded,
    /// Its code ran and succeeded.
    Ran,
    /// Its code ran and failed, or could not run.
    Failed,
}

impl SkillUseKind {
    /// Every use.
    pub const ALL: [Self; 4] = [Self::Carried, Self::Loaded, Self::Ran, Self::Failed];

    /// The word for it in metrics, which is also its member of [`UseLine`] and [`LastRequests`].
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Carried => "carried",
            Self::Loaded => "loaded",
            Self::Ran => "ran",
            Self::Failed => "failed",
        }
    }
}

/// The body of `POST /v1/uses`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsesPost {
    /// At most [`USES_MAX`].
    pub uses: Vec<UseLine>,
}

/// How often one skill was used since the gateway's last report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UseLine {
    /// `namespace/name`.
    pub skill: String,
    /// Requests with its instructions in the system text.
    #[serde(default)]
    pub carried: u32,
    /// Calls by which the model read its instructions or one of its files.
    #[serde(default)]
    pub loaded: u32,
    /// Runs of its code that succeeded.
    #[serde(default)]
    pub ran: u32,
    /// Runs of its code that failed, or could not begin.
    #[serde(default)]
    pub failed: u32,
    /// Estimated tokens (bytes / 4) that its texts added.
    #[serde(default)]
    pub tokens: u32,
    /// Requests that used it last. A hub of an earlier release does not read them, and a gateway of one sends none.
    #[serde(default, skip_serializing_if = "LastRequests::is_empty")]
    pub last: LastRequests,
}

/// Ids of the last requests that used a skill, by use, for logs and traces; empty where there was none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastRequests {
    /// The last request that had the skill's instructions in the system text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub carried: String,
    /// The last request whose model read the instructions or one of the skill's files.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub loaded: String,
    /// The last request whose run of the skill's code succeeded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ran: String,
    /// The last request whose run of the skill's code failed, or could not begin.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failed: String,
}

impl LastRequests {
    /// Whether no request is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// An id as a label: a gateway reports what it likes, and a label is kept with the metric.
    fn label(id: &str) -> Option<&str> {
        let fits = (1..=REQUEST_MAX_BYTES).contains(&id.len());
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (fits && id.bytes().all(is_plain)).then_some(id)
    }

    /// The last request with this use; empty where there was none.
    fn id(&self, kind: SkillUseKind) -> &str {
        match kind {
            SkillUseKind::Carried => &self.carried,
            SkillUseKind::Loaded => &self.loaded,
            SkillUseKind::Ran => &self.ran,
            SkillUseKind::Failed => &self.failed,
        }
    }

    fn id_mut(&mut self, kind: SkillUseKind) -> &mut String {
        match kind {
            SkillUseKind::Carried => &mut self.carried,
            SkillUseKind::Loaded => &mut self.loaded,
            SkillUseKind::Ran => &mut self.ran,
            SkillUseKind::Failed => &mut self.failed,
        }
    }
}

impl UseLine {
    /// One use by a request, which added `tokens`; of a skill that the line does not name yet.
    pub fn one(kind: SkillUseKind, request_id: &str, tokens: u32) -> Self {
        let mut line = Self {
            tokens,
            ..Self::default()
        };
        *line.count_mut(kind) = 1;
        request_id.clone_into(line.last.id_mut(kind));
        line
    }

    /// How often the skill was used so.
    pub fn count(&self, kind: SkillUseKind) -> u32 {
        match kind {
            SkillUseKind::Carried => self.carried,
            SkillUseKind::Loaded => self.loaded,
            SkillUseKind::Ran => self.ran,
            SkillUseKind::Failed => self.failed,
        }
    }

    /// The request that used it so last, as a label; see [`LastRequests::label`].
    pub fn last(&self, kind: SkillUseKind) -> Option<&str> {
        LastRequests::label(self.last.id(kind))
    }

    /// Whether it has any use.
    pub fn is_use(&self) -> bool {
        SkillUseKind::ALL.into_iter().any(|kind| self.count(kind) > 0)
    }

    /// Adds a later line of the same skill; a count stops at its type's largest value.
    pub fn add(&mut self, later: &Self) {
        for kind in SkillUseKind::ALL {
            let count = self.count_mut(kind);
            *count = count.saturating_add(later.count(kind));
            let id = later.last.id(kind);
            if !id.is_empty() {
                id.clone_into(self.last.id_mut(kind));
            }
        }
        self.tokens = self.tokens.saturating_add(later.tokens);
    }

    fn count_mut(&mut self, kind: SkillUseKind) -> &mut u32 {
        match kind {
            SkillUseKind::Carried => &mut self.carried,
            SkillUseKind::Loaded => &mut self.loaded,
            SkillUseKind::Ran => &mut self.ran,
            SkillUseKind::Failed => &mut self.failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn gateways_and_hubs_of_an_earlier_release_know_no_requests() {
        let read = |value: serde_json::Value| serde_json::from_value::<UseLine>(value).unwrap();
        let older = read(json!({"skill": "team/pdf", "ran": 1}));
        assert!(older.last.is_empty());
        assert_eq!(
            serde_json::to_value(&older).unwrap(),
            json!({"skill": "team/pdf", "carried": 0, "loaded": 0, "ran": 1, "failed": 0, "tokens": 0})
        );
        let newer = read(json!({"skill": "team/pdf", "ran": 1, "last": {"ran": "r1", "more": "r2"}, "more": 1}));
        assert_eq!(newer.last.ran, "r1");
    }

    #[test]
    fn a_later_request_takes_the_place_of_an_earlier_one() {
        let line = |last: LastRequests| UseLine {
            last,
            ..UseLine::default()
        };
        let mut first = line(LastRequests {
            carried: "r1".to_owned(),
            ran: "r1".to_owned(),
            ..LastRequests::default()
        });
        first.add(&line(LastRequests {
            carried: "r2".to_owned(),
            ..LastRequests::default()
        }));
        assert_eq!((first.last.carried.as_str(), first.last.ran.as_str()), ("r2", "r1"));
    }

    /// The words of metrics are those of reports.
    #[test]
    fn each_use_has_its_count_and_its_request_under_its_word() {
        assert!(
            !UseLine {
                tokens: 7,
                ..UseLine::default()
            }
            .is_use()
        );
        for kind in SkillUseKind::ALL {
            let line = UseLine::one(kind, "r1", 7);
            assert!(
                line.is_use() && line.count(kind) == 1 && line.last(kind) == Some("r1"),
                "{line:?}"
            );
            let counted = SkillUseKind::ALL.into_iter().filter(|other| line.count(*other) > 0);
            assert_eq!(counted.collect::<Vec<_>>(), [kind]);
            let written = serde_json::to_value(&line).unwrap();
            assert_eq!((&written[kind.as_str()], &written["tokens"]), (&json!(1), &json!(7)));
            assert_eq!(written["last"], json!({(kind.as_str()): "r1"}));
        }
    }

    #[test]
    fn only_what_looks_like_an_id_is_a_label() {
        let longest = "a".repeat(REQUEST_MAX_BYTES);
        for id in ["0192d5a4-7c1e-7d33-9f0e-2b3c4d5e6f70", "r1", &longest] {
            assert_eq!(LastRequests::label(id), Some(id));
        }
        for id in ["", "a b", "r\"} 1", "ü", &format!("{longest}a")] {
            assert_eq!(LastRequests::label(id), None, "{id}");
        }
    }
}
