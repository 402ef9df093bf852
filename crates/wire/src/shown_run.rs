//! A run, as far as a client that was shown it keeps it.

/// Call ids of Knack's shell items (Responses) begin with this; they are recognised by it when the client sends them back.
pub(crate) const OWN_CALL: &str = "call_knack_";

/// How a run ended, as far as the client's form of it shows. `knack-skill` has the same words for its texts: neither crate may know the
/// other (tools/walls.sh), so the gateway copies them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownEnd {
    /// With this code.
    Exit(i32),
    /// Not well; the form has no code (Gemini).
    Failed,
    /// The time limit ended it.
    Timeout,
}

/// A run in the history of a client, whose saved turn is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownRun {
    /// True for the tool that runs programs; false for another tool of Knack, which has words of its own (Messages).
    pub is_code: bool,
    /// How it ended.
    pub end: ShownEnd,
    /// Standard output; of a form that does not part them, errors too.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Ids of the files that it made.
    pub file_ids: Vec<String>,
    /// Files that the client was shown without an id or a name.
    pub unnamed_files: usize,
}

impl ShownRun {
    /// A run without any output.
    pub(crate) fn new(end: ShownEnd) -> Self {
        Self {
            is_code: true,
            end,
            stdout: String::new(),
            stderr: String::new(),
            file_ids: Vec::new(),
            unnamed_files: 0,
        }
    }
}
