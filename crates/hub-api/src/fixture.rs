//! Values for tests.

use std::collections::BTreeMap;

use crate::{ActivationName, RuntimeLine};

/// The settings of a runtime that has none of its own.
pub fn runtime_line() -> RuntimeLine {
    RuntimeLine {
        uid: "r".to_owned(),
        resource_version: "5".to_owned(),
        suspend: false,
        max_activation: ActivationName::Listed,
        model_code: true,
        max_risk: None,
        node: false,
        timeout_seconds: 10,
        max_timeout_seconds: 60,
        memory_bytes: None,
        max_tool_rounds: 10,
        deadline_seconds: 540,
        max_listing_tokens: 4000,
        models: Vec::new(),
        min_max_tokens: 64,
        max_snapshot_age_seconds: 3600,
        pins: Vec::new(),
        upstreams: BTreeMap::new(),
    }
}

/// The lines of an answer that did not come from a hub.
#[cfg(feature = "client")]
pub fn lines_of(response: impl Into<reqwest::Response>) -> crate::client::LineReader {
    crate::client::LineReader::new(response.into())
}
