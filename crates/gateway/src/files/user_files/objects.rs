//! Uploads and containers as values: in the table, in the entries of a folder, and between gateway and registry.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::model_calls::turn_store::KeyedHash;

/// The owner of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileOwner {
    /// The account of the gateway that keeps it, as the registry proved it; zeros where one process keeps its own.
    pub account: KeyedHash,
    /// The client of that gateway.
    pub caller: KeyedHash,
}

impl FileOwner {
    /// A client of this process.
    pub(crate) const fn here(caller: KeyedHash) -> Self {
        Self {
            account: [0; 32],
            caller,
        }
    }
}

/// One file, as the Files APIs show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// The file's id.
    pub id: String,
    /// Its name; of a file that a run made, its path.
    pub name: String,
    /// The file's media type.
    pub(crate) mime: String,
    /// Length in bytes.
    pub size: u64,
    /// Its purpose, in OpenAI's words.
    pub purpose: String,
    /// When it came.
    pub(crate) created: Timestamp,
    /// When it goes.
    pub expires: Timestamp,
}

/// The source of a container's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The caller whose container it is.
    User,
    /// A run.
    Assistant,
}

/// One file of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerFile {
    /// The file's id.
    pub id: String,
    /// Relative to the working directory of runs.
    pub path: String,
    /// The file's media type.
    pub(crate) mime: String,
    /// Length in bytes.
    pub size: u64,
    /// Who put the file there.
    pub source: Source,
    /// When it came.
    pub(crate) created: Timestamp,
}

/// A container: files that requests which name it have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// The container's id.
    pub id: String,
    /// Its name; empty for one that an answer opened.
    pub name: String,
    /// When it was made.
    pub(crate) created: Timestamp,
    /// When it was used last.
    pub(crate) active: Timestamp,
    /// How long it lives without use.
    pub(crate) idle: SignedDuration,
    /// Memory of its runs at most, as the API spells it.
    pub(crate) memory_limit: Option<String>,
    /// Skills of every request that names it. Empty in lists of containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) skills: Vec<SkillReference>,
    /// Its files, one of each path. Empty in lists of containers.
    pub files: Vec<ContainerFile>,
}

impl Container {
    /// When it goes, if it is not used again.
    pub(crate) fn expires(&self) -> Timestamp {
        self.active.saturating_add(self.idle).unwrap_or(Timestamp::MAX)
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}

/// A skill that is attached to a container by its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillReference {
    /// The id, as requests write it.
    pub(crate) id: String,
    /// The version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
}

/// The settings of a new container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewContainer {
    /// The container's id.
    pub id: String,
    /// The container's name.
    pub name: String,
    /// `None`: as long as the bound allows.
    pub(crate) idle: Option<SignedDuration>,
    /// As the API spells it.
    pub(crate) memory_limit: Option<String>,
    /// Skills of every request that names it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) skills: Vec<SkillReference>,
}

/// An upload that comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewFile {
    /// The file's name.
    pub name: String,
    /// The file's media type.
    pub(crate) mime: String,
    /// The purpose that the upload named.
    pub purpose: String,
    /// How long it is to be kept; `None`: as long as the bound allows.
    pub(crate) lasts: Option<SignedDuration>,
}

/// A file on its way into a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewContainerFile {
    /// Relative to the working directory of runs.
    pub path: String,
    /// The file's media type.
    pub(crate) mime: String,
    /// Who puts the file there.
    pub source: Source,
}

/// One object with everything that is kept of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Object {
    /// An upload.
    File(FileInfo),
    /// A container with the list of its files.
    Container(Container),
}

impl Object {
    /// The id of the file or container.
    pub(super) fn id(&self) -> &str {
        match self {
            Self::File(file) => &file.id,
            Self::Container(one) => &one.id,
        }
    }

    /// Bytes of its contents.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::File(file) => file.size,
            Self::Container(one) => one.bytes(),
        }
    }

    /// Names of its contents: the ids of its files.
    pub(super) fn contents(&self) -> Vec<&str> {
        match self {
            Self::File(file) => vec![&file.id],
            Self::Container(one) => one.files.iter().map(|file| &*file.id).collect(),
        }
    }
}
