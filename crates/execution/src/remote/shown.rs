//! The output of an execution for a person who waits: each byte once, whatever breaks.

use bytes::Bytes;
use knack_hub_api::StreamName;

use crate::ExecutionResult;

/// Output for a person who waits while an execution is in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The state of the execution.
    Phase(String),
    /// Bytes as they come, each byte once; what is missing at the end is in the result, at the same offset.
    Output {
        /// Standard error; else standard output.
        error: bool,
        /// The bytes.
        bytes: Bytes,
    },
    /// The hub is called again.
    Again(String),
}

/// Shows each byte of output once, though a repeated request receives all of it again.
pub(super) struct ShownOutput<'s> {
    show: Option<&'s (dyn Fn(Progress) + Send + Sync)>,
    /// Bytes shown of stdout and stderr.
    reported: [usize; 2],
    /// Bytes received in this answer.
    received: [usize; 2],
    /// Some of this answer was not sent: positions are unknown until the result.
    blind: bool,
}

impl<'s> ShownOutput<'s> {
    pub(super) fn new(show: Option<&'s (dyn Fn(Progress) + Send + Sync)>) -> Self {
        Self {
            show,
            reported: [0; 2],
            received: [0; 2],
            blind: false,
        }
    }

    pub(super) fn begin(&mut self) {
        self.received = [0; 2];
        self.blind = false;
    }

    pub(super) fn report(&self, progress: Progress) {
        if let Some(show) = self.show {
            show(progress);
        }
    }

    pub(super) fn skip(&mut self) {
        self.blind = true;
    }

    pub(super) fn output(&mut self, stream: StreamName, bytes: &Bytes) {
        let at = usize::from(stream == StreamName::Stderr);
        let from = self.received[at];
        self.received[at] += bytes.len();
        if self.blind || self.received[at] <= self.reported[at] {
            return;
        }
        let new = bytes.slice(self.reported[at].saturating_sub(from)..);
        self.reported[at] = self.received[at];
        self.report(Progress::Output {
            error: at == 1,
            bytes: new,
        });
    }

    /// Reports the output that was not shown yet.
    pub(super) fn end(&mut self, result: &ExecutionResult) {
        for (at, stream) in [&result.stdout, &result.stderr].into_iter().enumerate() {
            if let Some(rest) = stream.bytes.get(self.reported[at]..)
                && !rest.is_empty()
            {
                let bytes = stream.bytes.slice(self.reported[at]..);
                self.report(Progress::Output { error: at == 1, bytes });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Shows answers of the hub, each a list of outputs (`~` for a skip), then the result's stdout.
    fn shown(answers: &[&[&str]], stdout: &str) -> String {
        let seen = Mutex::new(String::new());
        let show = |progress: Progress| {
            if let Progress::Output { bytes, .. } = progress {
                seen.lock().unwrap().push_str(std::str::from_utf8(&bytes).unwrap());
            }
        };
        let mut shown = ShownOutput::new(Some(&show));
        for answer in answers {
            shown.begin();
            for piece in *answer {
                match *piece {
                    "~" => shown.skip(),
                    text => shown.output(StreamName::Stdout, &Bytes::copy_from_slice(text.as_bytes())),
                }
            }
        }
        let rest = stdout.get(shown.reported[0]..).unwrap_or_default();
        seen.into_inner().unwrap() + rest
    }

    #[test]
    fn each_byte_is_shown_once_whatever_breaks_or_is_skipped() {
        for answers in [
            &[&["abc", "def"][..]][..],
            &[&["ab"], &["abc", "def"]],
            &[&["abcd"], &["ab", "cdef"]],
            &[&["abc"], &["~", "def"]],
            &[&["abc", "~", "f"]],
            &[&[], &["abcdef"]],
        ] {
            assert_eq!(shown(answers, "abcdef"), "abcdef", "{answers:?}");
        }
    }
}
