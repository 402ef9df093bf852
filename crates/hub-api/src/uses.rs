//! Uses of skills, which gateways count and the hub adds up: a sidecar's own counters are not scraped outside of its pod.

use serde::{Deserialize, Serialize};

/// Most lines of one report: the skills that a gateway counts by name, and one line for all others.
pub const USES_MAX: usize = 1_001;
/// Most bytes of one report: [`USES_MAX`] lines with names as long as Kubernetes lets them be.
pub const USES_MAX_BYTES: usize = 1 << 20;

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
}

impl UseLine {
    /// Adds another line of the same skill; a count stops at its type's largest value.
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
    }
}
