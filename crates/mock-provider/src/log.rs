//! The log that tests read back: the requests that came and the failures of `expect`. Bounded, so that a mock can run for days.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Most requests kept; older ones are dropped. More than any one test sends.
const MAX_REQUESTS: usize = 2_000;
/// Most bytes of request bodies kept; older requests are dropped. Two bodies of the largest size a gateway takes.
const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;
/// Most failures and most refusals kept; later ones are dropped, because the first ones explain a test.
const MAX_FAILURES: usize = 500;

/// One request as it arrived.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// Method, for instance `POST`.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Headers in the order of arrival, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Bytes,
}

impl RecordedRequest {
    /// The first value of a header; the name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The body as JSON; `null` if it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

#[derive(Debug, Default)]
struct Log {
    requests: VecDeque<RecordedRequest>,
    request_bytes: usize,
    failures: Vec<String>,
    refusals: Vec<(&'static str, String)>,
}

/// Reads what a mock has seen. Clones share one log.
#[derive(Debug, Clone, Default)]
pub struct MockHandle {
    log: Arc<Mutex<Log>>,
}

impl MockHandle {
    /// The failures so far: every `script:` answer, with the step it belongs to.
    pub fn failures(&self) -> Vec<String> {
        self.lock().failures.clone()
    }

    /// The refusals so far: the name of the rule and the text. Empty after a run means that the provider took everything.
    pub fn refusals(&self) -> Vec<(&'static str, String)> {
        self.lock().refusals.clone()
    }

    /// The requests so far, oldest first; at most 2,000 and 64 MiB of bodies.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.lock().requests.iter().cloned().collect()
    }

    /// The requests whose body contains a text, for tests that share one mock.
    pub fn requests_with(&self, text: &str) -> Vec<RecordedRequest> {
        let finder = memchr::memmem::Finder::new(text);
        self.lock()
            .requests
            .iter()
            .filter(|request| finder.find(&request.body).is_some())
            .cloned()
            .collect()
    }

    /// Forgets requests and failures.
    pub fn clear(&self) {
        *self.lock() = Log::default();
    }

    pub(super) fn record(&self, request: RecordedRequest) {
        let mut log = self.lock();
        log.request_bytes += request.body.len();
        log.requests.push_back(request);
        while log.requests.len() > MAX_REQUESTS || log.request_bytes > MAX_REQUEST_BYTES {
            let Some(dropped) = log.requests.pop_front() else { break };
            log.request_bytes -= dropped.body.len();
        }
    }

    pub(super) fn fail(&self, failure: String) {
        let mut log = self.lock();
        if log.failures.len() < MAX_FAILURES {
            log.failures.push(failure);
        }
    }

    pub(super) fn refuse(&self, rule: &'static str, message: String) {
        let mut log = self.lock();
        if log.refusals.len() < MAX_FAILURES {
            log.refusals.push((rule, message));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        // A panic of another thread leaves the log usable: every change is complete or absent.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: usize) -> RecordedRequest {
        RecordedRequest {
            method: "POST".into(),
            path: "/".into(),
            headers: vec![("a".into(), "b".into())],
            body: Bytes::from(vec![b'x'; bytes]),
        }
    }

    #[test]
    fn the_log_is_bounded_in_number_and_bytes() {
        let handle = MockHandle::default();
        for _ in 0..=MAX_REQUESTS {
            handle.record(request(1));
        }
        assert_eq!(handle.requests().len(), MAX_REQUESTS);
        handle.record(request(MAX_REQUEST_BYTES - 10));
        assert_eq!(handle.requests().len(), 11);
        for _ in 0..=MAX_FAILURES {
            handle.fail("f".into());
        }
        assert_eq!(handle.failures().len(), MAX_FAILURES);
        handle.clear();
        assert!(handle.requests().is_empty() && handle.failures().is_empty());
    }

    #[test]
    fn requests_are_found_by_a_text() {
        let handle = MockHandle::default();
        handle.record(RecordedRequest {
            body: Bytes::from_static(b"{\"a\":\"zebra\"}"),
            ..request(0)
        });
        handle.record(request(3));
        let found = handle.requests_with("zebra");
        assert_eq!(
            (found.len(), found[0].header("a"), found[0].json()["a"].as_str()),
            (1, Some("b"), Some("zebra"))
        );
    }
}
