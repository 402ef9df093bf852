//! AUTO: scores skills against one request, exactly as OmniRoute does (`seeds/5`, its table, threshold and ties).

/// The parts of a request that AUTO reads, all roles included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AutoContext {
    /// The client's `tools` member as JSON text; empty: none (which counts as `[]`).
    pub tools_json: String,
    /// Model id.
    pub model: String,
    /// Wire format words of OmniRoute (`sourceFormat`, `targetFormat`); usually empty.
    pub formats: Vec<String>,
    /// Why a background request was made, if the client says so.
    pub background_reason: String,
    /// Every message in order.
    pub messages: Vec<AutoMessage>,
}

/// The texts of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoMessage {
    /// Whether a selection is made after this message (role `user`).
    pub user: bool,
    /// Its text parts joined by one space; `None` if it has no text part.
    pub text: Option<String>,
}
