//! The reports of a cluster's gateways to the registry, which keeps the history of executions.

use serde::{Deserialize, Serialize};

use crate::history::Execution;

/// Where executions are reported: `POST`, with a ServiceAccount token for the audience `knack`. Answers: 204; 404 where no history
/// is kept; 401, 413, 429 and 503 as for all requests.
pub const REPORT_PATH: &str = "/knack/v1/executions";
/// Where an execution with an idempotency key is claimed before it is run: `POST` of it, pending. Answers: a
/// [`ClaimOutcome`](crate::ClaimOutcome); 503 where it cannot be kept; all others as of [`REPORT_PATH`].
pub const CLAIM_PATH: &str = "/knack/v1/executions/claims";
/// How often a gateway claims again what it runs.
pub const CLAIM_EVERY: std::time::Duration = std::time::Duration::from_secs(25);
/// Executions of one report.
pub const REPORT_EXECUTIONS: usize = 64;
/// Bytes of one report.
pub const REPORT_MAX_BYTES: usize = 4 << 20;

/// Executions as they are now.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// At most [`REPORT_EXECUTIONS`]; the caller of each is the hash of a client of the account that reports it.
    pub executions: Vec<Execution>,
}

impl Report {
    /// The JSON of a report, of executions that are JSON already.
    #[must_use]
    pub fn of_lines(lines: &[String]) -> String {
        format!("{{\"executions\":[{}]}}", lines.join(","))
    }
}
