//! Why a store did not do what it was asked.

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No such skill or version, or it has another owner: callers cannot distinguish the two.
    #[error("not found")]
    NotFound,
    /// The owner has a skill of this name.
    #[error("a skill named \"{name}\" already exists ({id}); upload a new version of it, or delete it first")]
    NameTaken {
        /// The name.
        name: String,
        /// The skill that has it.
        id: String,
    },
    /// The skill has a version that says the same of itself.
    #[error("{name}@{version} is installed ({id}); delete it first, or install another version")]
    VersionTaken {
        /// The skill's name.
        name: String,
        /// The version.
        version: String,
        /// The skill that has it.
        id: String,
    },
    /// A version must keep the name of its skill.
    #[error(
        "the upload is named \"{given}\", but this skill is named \"{had}\"; all versions of a skill have the same name"
    )]
    OtherName {
        /// The skill's.
        had: String,
        /// The upload's.
        given: String,
    },
    /// The store has no room for such a name.
    #[error("the name \"{name}\" has {} characters, and {most} are the most here; choose a shorter one", name.len())]
    LongName {
        /// The upload's.
        name: String,
        /// Characters of a name.
        most: usize,
    },
    /// It has as many versions as it may.
    #[error("this skill has {most} versions, the maximum; delete one first")]
    TooManyVersions {
        /// Versions of one skill.
        most: usize,
    },
    /// The store has no room; the text says of what.
    #[error("{0}")]
    Full(String),
    /// The store keeps no such skill; the text says why and what to send instead.
    #[error("{0}")]
    Unfit(String),
    /// The caller may not do this; the text says what it takes.
    #[error("{0}")]
    Forbidden(String),
    /// Others manage the skill, and would undo a change.
    #[error("skill \"{name}\" is managed by {by}; change it there")]
    Managed {
        /// The skill's name.
        name: String,
        /// The manager, in words.
        by: String,
    },
    /// Another writer changed the skill at the same time.
    #[error("skill \"{name}\" was changed by another writer at the same time; read it again and repeat the change")]
    Conflict {
        /// The skill's name.
        name: String,
    },
    /// It cannot be done at this moment; the same call may work soon.
    #[error("{0}")]
    Unavailable(String),
    /// The disk failed; the text is for the log, not for callers.
    #[error("the store failed: {0}")]
    Failed(String),
}
