//! The state that a mock keeps between requests.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;

use super::log::MockHandle;
use super::script::Script;
use super::stored::{Completions, ConversationStates};

/// Most keys of failures with `times` that are counted; a script with more restarts the counts.
pub(super) const MAX_COUNTED_FAILURES: usize = 10_000;

/// Gives seconds since 1970.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Script, clock, log and counters of one mock.
pub(super) struct Inner {
    pub(super) script: Arc<Script>,
    pub(super) clock: Clock,
    pub(super) handle: MockHandle,
    pub(super) answers: AtomicU64,
    pub(super) failed: Mutex<HashMap<(String, Bytes), usize>>,
    pub(super) stored: ConversationStates,
    pub(super) completions: Completions,
}
