//! Whether this replica serves a runtime.

use std::sync::Arc;

use super::ownership_term::Term;

/// Whether this replica serves the runtime.
#[derive(Debug, Clone, Default)]
pub(in crate::jobs) enum ServingState {
    /// No owner is known.
    #[default]
    Unknown,
    /// Another replica owns it.
    Standby { owner: Option<String> },
    /// This replica is reading the journals of the last owner.
    TakingOver,
    /// This replica owns it.
    Serving(Arc<Term>),
}
