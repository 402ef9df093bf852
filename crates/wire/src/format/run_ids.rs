//! Ids under which a client sees Knack's runs.
//!
//! Ids of one conversation must differ: clients pair results by them, and a provider refuses two calls of one id. Some
//! servers count the calls of each answer (`call_0`, `toolu_1`), so the id of the call alone is not enough: the id of the
//! answer that the client sees and the run's place in it are in an id of Knack too.

use std::collections::VecDeque;

/// Longest id of a call that OpenAI's API takes, and Bedrock's, which may be behind Messages; in bytes.
const MAX_ID: usize = 64;

/// Makes the ids of the runs of one answer, and has those whose results are still to come.
#[derive(Debug, Default)]
pub(super) struct RunIds {
    /// The ids of the running round, in the order of its calls, which is that of its results.
    waiting: VecDeque<String>,
}

impl RunIds {
    /// A new round: what the last one left is not shown any more.
    pub(super) fn begin_round(&mut self) {
        self.waiting.clear();
    }

    /// The id of the next run, behind `prefix`: letters, digits and `_`, and with the prefix no longer than any API takes.
    pub(super) fn of_call(&mut self, prefix: &str, answer_id: &str, index: u64, call_id: &str) -> String {
        let id = bounded(prefix, &format!("{answer_id}_{index}_{call_id}"));
        self.waiting.push_back(id.clone());
        id
    }

    /// The id of the run whose result is shown next; `None`: its call was not shown.
    pub(super) fn of_result(&mut self) -> Option<String> {
        self.waiting.pop_front()
    }
}

/// Whether a run of this call may have been shown under this id, which begins with `prefix`.
pub(super) fn is_of_call(id: &str, prefix: &str, call_id: &str) -> bool {
    let end = bounded(prefix, call_id);
    id.starts_with(prefix) && id[prefix.len()..].ends_with(&end[prefix.len()..])
}

/// The end of an id, where its random part is, as far as it fits behind the prefix.
fn bounded(prefix: &str, id: &str) -> String {
    let legal = |char: char| if char.is_ascii_alphanumeric() { char } else { '_' };
    let legal: String = id.chars().map(legal).collect();
    let fits = MAX_ID.saturating_sub(prefix.len());
    format!("{prefix}{}", &legal[legal.len().saturating_sub(fits)..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_fit_every_api_and_differ_whatever_the_provider_sends() {
        let mut ids = RunIds::default();
        for prefix in ["call_knack_", "srvtoolu_knack_", ""] {
            let mut made = Vec::new();
            for answer in ["", "resp_1", "msg_2", &format!("resp_{}a", "0".repeat(60))] {
                for (index, call) in (0u64..).zip(["call_abc", "toolu_1", "toolu_1", "", "call_é/ü"]) {
                    made.push(ids.of_call(prefix, answer, index, call));
                }
            }
            for id in &made {
                assert!(id.starts_with(prefix) && id.len() <= MAX_ID, "{id}");
                assert!(
                    id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
                    "{id}"
                );
            }
            for id in &made {
                assert_eq!(ids.of_result().as_ref(), Some(id));
            }
            assert!(is_of_call(&made[0], prefix, "call_abc") && !is_of_call(&made[0], prefix, "toolu_1"));
            assert!(!is_of_call("other", prefix, "call_abc"));
            let count = made.len();
            made.sort();
            made.dedup();
            assert_eq!(made.len(), count, "{made:?}");
        }
        let long = ids.of_call("call_knack_", "r", 0, &"x".repeat(200));
        assert!(long.len() <= MAX_ID && is_of_call(&long, "call_knack_", &"x".repeat(200)));
        ids.begin_round();
        assert_eq!(ids.of_result(), None);
    }
}
