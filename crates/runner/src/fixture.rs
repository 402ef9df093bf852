//! Values for tests.

use crate::protocol::{Exit, FromRunner, RunResult, RunnerLink, StreamReport};

/// The result of a run that ended so and did nothing that is counted.
pub fn mk_result(id: &str, exit: Exit) -> RunResult {
    RunResult {
        id: id.to_owned(),
        digest: String::new(),
        exit,
        stdout: StreamReport::default(),
        stderr: StreamReport::default(),
        wall_us: 0,
        cpu_us: 0,
        max_rss_bytes: 0,
        killed: 0,
        files: 0,
        file_errors: 0,
        locks: None,
    }
}

impl RunnerLink {
    /// The line of a frame that goes out.
    pub fn encode(&mut self, frame: &FromRunner) -> Vec<u8> {
        let line = self.line(frame);
        self.sent();
        line
    }
}
