//! What a model reads after a declared tool was run, or was not. HUSK's words (docs/design/dialects.md#results-of-tools).

/// How a call of a declared tool ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolOutcome<'a> {
    /// The process ended by itself.
    Exit {
        /// Exit code.
        code: i32,
        /// Captured text.
        stdout: &'a str,
        /// Captured text.
        stderr: &'a str,
    },
    /// The process was ended by a signal.
    Signal {
        /// Such as `SIGKILL`.
        name: &'a str,
        /// Captured text.
        stdout: &'a str,
        /// Captured text.
        stderr: &'a str,
    },
    /// The process ran longer than it may.
    TimedOut {
        /// The limit (`timeoutSeconds`); `None`: it is not known any more.
        seconds: Option<u64>,
    },
    /// The process could not be started.
    NotStarted {
        /// The reason that it did not start.
        reason: &'a str,
    },
    /// The model called a tool that the skill does not declare.
    UnknownTool {
        /// The name it used.
        name: &'a str,
    },
    /// The arguments were refused before anything ran.
    Rejected {
        /// The reason for the refusal.
        reason: &'a str,
    },
}

/// The text for the model: trimmed stdout on success, else one line that begins with `Error`.
pub fn text(outcome: ToolOutcome<'_>) -> String {
    match outcome {
        ToolOutcome::Exit { code: 0, stdout, .. } => trimmed(stdout).to_owned(),
        ToolOutcome::Exit { code, stdout, stderr } => {
            format!("Error (exit {code}): {}", output_of_failure(stdout, stderr))
        }
        ToolOutcome::Signal { name, stdout, stderr } => {
            format!("Error (signal {name}): {}", output_of_failure(stdout, stderr))
        }
        ToolOutcome::TimedOut { seconds: Some(seconds) } => {
            format!("Error: the tool timed out: it ran for {seconds} s, its time limit (timeoutSeconds)")
        }
        ToolOutcome::TimedOut { seconds: None } => "Error: the tool timed out".to_owned(),
        ToolOutcome::NotStarted { reason } | ToolOutcome::Rejected { reason } => format!("Error: {reason}"),
        ToolOutcome::UnknownTool { name } => format!("Error: unknown tool \"{name}\""),
    }
}

/// The output of a failed process: stderr, or stdout if stderr is blank.
fn output_of_failure<'a>(stdout: &'a str, stderr: &'a str) -> &'a str {
    let stderr = trimmed(stderr);
    if stderr.is_empty() { trimmed(stdout) } else { stderr }
}

/// Without blanks at both ends, and without a byte order mark, which is blank to HUSK's language and which some programs write first.
fn trimmed(text: &str) -> &str {
    text.trim_matches(|each: char| each.is_whitespace() || each == '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_has_its_text() {
        for (outcome, expected) in [
            (
                ToolOutcome::Exit {
                    code: 0,
                    stdout: " a\n",
                    stderr: "w",
                },
                "a",
            ),
            (
                ToolOutcome::Exit {
                    code: 0,
                    stdout: "\u{feff}{\"a\": \"\u{feff}\"}\n\u{feff}",
                    stderr: "",
                },
                "{\"a\": \"\u{feff}\"}",
            ),
            (
                ToolOutcome::Exit {
                    code: 1,
                    stdout: "o",
                    stderr: "\u{feff}\n",
                },
                "Error (exit 1): o",
            ),
            (
                ToolOutcome::Exit {
                    code: 3,
                    stdout: "o",
                    stderr: " e\n",
                },
                "Error (exit 3): e",
            ),
            (
                ToolOutcome::Exit {
                    code: 1,
                    stdout: " o ",
                    stderr: " ",
                },
                "Error (exit 1): o",
            ),
            (
                ToolOutcome::Signal {
                    name: "SIGKILL",
                    stdout: "",
                    stderr: "e",
                },
                "Error (signal SIGKILL): e",
            ),
            (ToolOutcome::TimedOut { seconds: None }, "Error: the tool timed out"),
            (
                ToolOutcome::TimedOut { seconds: Some(30) },
                "Error: the tool timed out: it ran for 30 s, its time limit (timeoutSeconds)",
            ),
            (
                ToolOutcome::NotStarted { reason: "no such file" },
                "Error: no such file",
            ),
            (ToolOutcome::UnknownTool { name: "x" }, "Error: unknown tool \"x\""),
            (ToolOutcome::Rejected { reason: "r" }, "Error: r"),
        ] {
            assert_eq!(text(outcome), expected);
        }
    }
}
