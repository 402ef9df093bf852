//! Why a call about files is not served.

/// Why a call about files is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilesRefusal {
    /// There is no such object of this caller: what it is called in the API, and its id.
    Missing(&'static str, String),
    /// The file was here.
    Expired(String),
    /// A parameter or field is wrong.
    Invalid(&'static str, String),
    /// It is larger than a bound.
    TooLarge(String),
    /// There is no room.
    Full(String),
    /// The API has no such method on this path: the message, and the methods of the path.
    NotAllowed(&'static str, &'static str),
    /// The API has no such path.
    NoSuchPath,
    /// The disk did not take it.
    Failed,
    /// The registry that keeps files gives no answer.
    Away,
    /// This gateway, or the registry, has too much to do, or its volume does not answer.
    Busy,
    /// This caller has asked too often: the message, with its limit.
    TooOften(String),
}
