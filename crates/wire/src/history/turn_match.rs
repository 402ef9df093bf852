//! The saved turns that the store had for turns of a scan, and whether skills take part.

use std::sync::Arc;

use super::saved_turn::SavedTurn;

/// A saved turn that the store had for a turn of the scan.
#[derive(Debug, Clone)]
pub struct TurnMatch {
    /// [`super::Lookup::turn`].
    pub turn: usize,
    /// The saved turn.
    pub saved: Arc<SavedTurn>,
}

/// Whether skills take part in this request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectionMode<'a> {
    /// They do: Knack's native blocks become calls of this tool and their results.
    Injecting {
        /// Name of the run tool in this request, if it has one; without it the blocks are stripped.
        run_tool: Option<&'a str>,
    },
    /// Injection is off: saved turns are not expanded (pass no hits), and what is Knack's by its ids is stripped.
    Off,
}
