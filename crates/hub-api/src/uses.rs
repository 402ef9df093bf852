//! Uses of skills, which gateways count and the hub adds up: a sidecar's own counters are not scraped outside of its pod.

use serde::{Deserialize, Serialize};

/// Most lines of one report: the skills that a gateway counts by name, and one line for all others.
pub const USES_MAX: usize = 1_001;
/// Most bytes of one report: [`USES_MAX`] lines with names as long as Kubernetes lets them be.
pub const USES_MAX_BYTES: usize = 1 << 20;
/// Longest id of a request in a report, bytes: a UUID has 36, and an exemplar of OpenMetrics is at most 128 characters.
const REQUEST_MAX_BYTES: usize = 64;

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
    pub fn label(id: &str) -> Option<&str> {
        let fits = (1..=REQUEST_MAX_BYTES).contains(&id.len());
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (fits && id.bytes().all(is_plain)).then_some(id)
    }

    /// Takes the ids of later requests, where there are some.
    fn follow(&mut self, later: &Self) {
        for (own, later) in [
            (&mut self.carried, &later.carried),
            (&mut self.loaded, &later.loaded),
            (&mut self.ran, &later.ran),
            (&mut self.failed, &later.failed),
        ] {
            if !later.is_empty() {
                own.clone_from(later);
            }
        }
    }
}

impl UseLine {
    /// Adds a later line of the same skill; a count stops at its type's largest value.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in [
            (&mut self.carried, other.carried),
            (&mut self.loaded, other.loaded),
            (&mut self.ran, other.ran),
            (&mut self.failed, other.failed),
            (&mut self.tokens, other.tokens),
        ] {
            *count = count.saturating_add(more);
        }
        self.last.follow(&other.last);
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
