//! The records that the store had for turns of a scan, and whether skills take part.

use std::sync::Arc;

use super::record::TurnRecord;

/// A record that the store had for a turn of the scan.
#[derive(Debug, Clone)]
pub struct Hit {
    /// [`super::Lookup::turn`].
    pub turn: usize,
    /// Its record.
    pub record: Arc<TurnRecord>,
}

/// Whether skills take part in this request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectionMode<'a> {
    /// They do: native blocks of ours become calls of this tool and their results.
    Injecting {
        /// Name of the run tool in this request, if it has one; without it the blocks are stripped.
        run_tool: Option<&'a str>,
    },
    /// Injection is off: records are not expanded (pass no hits), and what is ours by its ids is stripped.
    Off,
}
