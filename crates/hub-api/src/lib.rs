//! The protocol between a hub and its clients: values only, versioned, read leniently.
//!
//! ```text
//! GET    /v1/version                             Version
//! GET    /v1/catalog?runtime=ns/name&watch=true  NDJSON of CatalogLine: hello, runtime, skills, synced, then changes
//! GET    /v1/content/{digest}?runtime=ns/name    ContentIndex
//! GET    /v1/content/{digest}/{path}?runtime=..  the file's bytes
//! POST   /v1/executions                          ExecutionPost in, NDJSON of ExecutionFrame out
//! GET    /v1/executions/{id}?runtime=ns/name     ExecutionState
//! DELETE /v1/executions/{id}?runtime=ns/name     204
//! POST   /v1/clients                             ClientCheck in, ClientAuthorization out
//! GET    /v1/kept?runtime=ns/name                NDJSON of KeptLine, for ever
//! PUT    /v1/kept/{client}/{key},..?runtime=..   bytes in, 204
//! GET    /v1/kept/{client}/{key}?runtime=..      the bytes
//! POST   /v1/uses?runtime=ns/name                UsesPost in, 204
//! ```
//!
//! Every request carries `Authorization: Bearer <token>` with the audience [`knack_vocabulary::TOKEN_AUDIENCE`].
//! Refusals are [`HubRefusal`] bodies. Rules of evolution: unknown members and unknown `type` words are ignored, members
//! are only ever added, and [`PROTOCOL`] changes when a reader of the last two minor versions could misunderstand.
//!
//! Nothing here depends on Kubernetes, HTTP or the executor.

mod catalog;
#[cfg(feature = "client")]
pub mod client;
mod content;
pub mod convert;
mod data;
mod execution;
#[cfg(feature = "fixture")]
pub mod fixture;
mod identity;
mod names;
mod protocol;
mod refusal;
mod shared_values;
mod uses;

pub use catalog::{
    ActivationName, CatalogLine, Hello, InputLine, Overrides, ParameterLine, PinLine, Removed, RiskName, RuntimeLine,
    SandboxLine, SkillLine, Synced, ToolLine, UNSERVED_MAX, UnservedSkill, UnservedSkills, UploadLine,
};
pub use content::{ContentFile, ContentIndex};
pub use data::Data;
pub use execution::{
    AcceptedFrame, EndWord, ExecutionFrame, ExecutionPost, ExecutionState, FileErrorLine, FileFrame, InputLineFile,
    LimitsLine, LocksLine, MountLine, OutputFrame, ProgramLine, ResultFrame, StreamName, TimingsLine,
    WorkingDirectoryLine,
};
pub use identity::{
    ClientAuthorization, ClientCheck, ReadRuntimeNameError, ReadServiceAccountNameError, RuntimeName,
    ServiceAccountName, Version,
};
pub use knack_vocabulary::is_label;
pub use names::name_owner;
pub use protocol::ProtocolRange;
pub use refusal::{FailureLine, HubRefusal, RefusalCode};
pub use shared_values::{
    KEPT_MAX_BYTES, KEPT_MAX_KEYS, KeptHello, KeptKey, KeptLine, KeptValue, ReadKeptKeyError, kept_path, read_keys,
};
pub use uses::{
    LastRequests, OTHER_SKILLS, SKILL_SERIES_MAX, SkillUseKind, UNUSED_SERIES_MAX, USES_MAX, USES_MAX_BYTES, UseLine,
    UsesPost,
};

/// Version of this protocol: the first line of every stream and `GET /v1/version` carry it.
///
/// 2: `POST /v1/executions` names a declared tool and its arguments; a command line never gets environment grants.
pub const PROTOCOL: u32 = 2;
/// Oldest version that is still understood: that of the last two minor releases.
pub const PROTOCOL_MIN: u32 = 1;
/// The protocols that this build understands of its peers, whether they are older or newer.
pub const PROTOCOLS: ProtocolRange = ProtocolRange::new(PROTOCOL_MIN, PROTOCOL);
/// Header of a response or request that says which [`PROTOCOL`] its sender speaks.
pub const HEADER_PROTOCOL: &str = "x-knack-protocol";
/// Port of the hub's TLS listener.
pub const DEFAULT_PORT: u16 = 8443;
/// Media type of the streams.
pub const NDJSON: &str = "application/x-ndjson";
