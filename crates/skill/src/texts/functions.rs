//! What answers a call of a Python function.

use super::results::declared_result;
use crate::call::{End, Outcome};

/// Follows the error of a function that says of itself that it is idempotent.
const REPEATABLE: &str = "Calling it again with the same arguments is safe.";

/// The text of the error that a function raised, which its program writes to standard output; `None`: the program returned a
/// value, or ended in another way. `code`: its exit code, if it has one.
pub fn function_error(code: Option<i32>, stdout: &str) -> Option<&str> {
    let error = stdout.trim();
    (code.is_some_and(|code| code != 0) && !error.is_empty()).then_some(error)
}

/// Reports the outcome of a function of a Python file: what it returned, or the text of its error. What it printed is
/// for its author, and is shown only if the program ended by something else than an error of the function.
pub fn function_result(outcome: &Outcome, retryable: bool) -> String {
    let code = match outcome.end {
        End::Exit(code) => Some(code),
        _ => None,
    };
    if let Some(error) = function_error(code, &outcome.stdout) {
        let repeat = if retryable {
            format!("\n{REPEATABLE}")
        } else {
            String::new()
        };
        // Files that were written before the error are reported as for every tool.
        declared_result(&Outcome {
            end: End::Exit(0),
            stdout: format!("Error: {error}{repeat}"),
            ..outcome.clone()
        })
    } else {
        declared_result(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_an_error_and_an_end_from_outside_have_their_texts() {
        let outcome = |end, stdout: &str, stderr: &str| Outcome {
            end,
            duration_ms: 1,
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            truncated: false,
            files: Vec::new(),
            file_errors: Vec::new(),
        };
        for (ended, retryable, expected) in [
            (outcome(End::Exit(0), "{\"a\": 1}", "progress"), false, "{\"a\": 1}"),
            (outcome(End::Exit(0), "", ""), true, ""),
            (
                outcome(End::Exit(1), "boom", "progress\nTraceback"),
                false,
                "Error: boom",
            ),
            (
                outcome(End::Exit(1), "boom\n", ""),
                true,
                "Error: boom\nCalling it again with the same arguments is safe.",
            ),
            (outcome(End::Exit(7), "", "gone"), true, "Error (exit 7): gone"),
            (outcome(End::Signal(9), "", "gone"), true, "Error (signal 9): gone"),
            (
                outcome(End::Timeout { seconds: 1 }, "", ""),
                true,
                "Error: the tool timed out: it ran for 1 s, its time limit (timeoutSeconds)",
            ),
        ] {
            assert_eq!(function_result(&ended, retryable), expected);
        }
    }
}
