//! Texts of results that are put back into a history. The caller makes them: it knows skills and files.

use super::saved_turn::FileNote;
use crate::shown_run::ShownRun;

/// Asked in the order of the conversation.
pub trait ResultTexts {
    /// The text of a load result by its reference, or the text that says why there is none.
    fn load(&mut self, reference: &str) -> String;
    /// The text for the model about a run whose saved turn is lost.
    fn run(&mut self, run: &ShownRun) -> RunText;
}

/// A turn taken apart whose runs only the client remembers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReplacedTurn {
    /// The messages that replace it; none if it had nothing of the upstream's.
    pub(super) messages: Vec<Vec<u8>>,
    /// Results that belong into the client's next message.
    pub(super) open_results: Vec<Vec<u8>>,
    /// Files of its runs.
    pub(super) files: Vec<FileNote>,
}

/// A run as the model reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunText {
    /// For the model.
    pub text: String,
    /// Its files, as far as they are known: they are staged again while they are kept.
    pub files: Vec<FileNote>,
}
