//! Files that callers upload, and containers, which carry files from one request to the next (docs/files.md).
//!
//! ```text
//! POST /v1/files, /v1/containers… ─▶ route ─▶ serve ─▶ store ─▶ local: table (who has what, within bounds) + vault (a folder)
//!                                                        └────▶ remote: the registry of the cluster, which has a local one
//! a model request that names an id of Knack ─▶ named ─▶ inputs of its runs; what they write goes into the container
//! ```
//!
//! A store is asked for what [`Op`] says, wherever it is: ids, ages and bounds are the table's, pages and shapes the gateway's.

mod bounds;
mod caller_calls;
mod containers;
mod files_caller;
mod files_request;
mod folder_files;
mod form;
mod info;
mod local;
pub(crate) mod named;
mod objects;
mod operation;
mod page;
mod refusal;
mod remote;
mod route;
mod serve;
mod shapes;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod tombstones;
mod vault;

pub use bounds::Bounds;
pub use files_caller::FilesCaller;
pub use local::LocalFiles;
pub use objects::{Container, ContainerFile, FileInfo, FileOwner, NewContainer, SkillReference, Source};
pub use operation::{Answer, AskedCall, FILES_PATH, Op, Reply, answered, read_asked};
pub use refusal::FilesRefusal;
pub(crate) use remote::MADE_TIMEOUT;
pub use remote::RemoteFiles;
pub use route::{FilesCall, route};
pub use serve::serve;
pub use shapes::content;
pub(crate) use shapes::text_time;
pub use store::{Clock, UploadStore, UserFiles};
pub use table::StoreUsage;

/// Where OpenAI's API shows the files of a container; runs find them in their working directory.
const CONTAINER_FOLDER: &str = "/mnt/data/";
