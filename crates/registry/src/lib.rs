//! Skills that programs upload: a store, its rules, and the vendors' Skills APIs over it.
//!
//! ```text
//! request ─▶ route ─▶ dialect (Anthropic, OpenAI, Agent Flow, OmniRoute, LiteLLM) ─▶ Store ─▶ dialect ─▶ answer
//!                        │ upload: multipart, zip
//!                        ▼
//!                      check: knack_skill::load, by the profile of the API
//! ```
//!
//! Knows neither gateway nor Kubernetes: who asks comes as an [`Owner`], the reader of archives as a function, and what
//! fetches from [catalogs](Catalogs) as a [`Web`].

mod agent_flow;
mod answer;
mod anthropic;
mod api_request;
pub mod archive;
mod base_path;
mod catalogs;
mod check;
mod difference;
mod disk;
mod draft;
mod empty_store;
mod error;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
mod folder;
mod history;
pub mod index;
mod json;
mod litellm;
mod methods;
mod mode;
mod model;
pub mod no_link;
mod numbered_page;
mod omniroute;
mod openai;
mod owner;
mod page;
mod query;
mod reader;
mod report;
mod response;
mod route;
mod service;
mod store;
mod upload;
mod volume_threads;

pub use agent_flow::AgentFlow;
pub use answer::{RefusalKind, RepeatRefusal};
pub use api_request::ApiRequest;
pub use archive::BadArchive;
pub use base_path::{is_base_path, namespace_place};
pub use catalogs::{CATALOG_FILES, Catalog, Catalogs, Web, WebError};
pub use check::{attached_skill, load_stored, vendor_problem};
pub use difference::{Difference, ModelView};
pub use disk::{Disk, RealDisk, is_full, lock_alone};
pub use draft::Draft;
pub use error::StoreError;
pub use folder::{FolderStore, OpenedFolder};
pub use history::{
    ClaimFailure, ClaimOutcome, ExecutedSkill, Execution, ExecutionPage, ExecutionQuery, FolderHistory, History,
    HistorySettings, OpenedHistory, Status, StoredHistory, read_folder,
};
pub use json::{JsonBodyError, read_json, weigh_json};
pub use litellm::{LiteLlm, LiteLlmFields, litellm_id};
pub use methods::allowed_methods;
pub use mode::Mode;
pub use model::{ID_PREFIX, SkillEntry, Stamp, VERSION_PREFIX, VERSIONS_MAX, Version};
pub use omniroute::{
    AdHocRun, ClaimError, Claims, IDEMPOTENCY_KEY, Identity, OmniRoute, OnProgress, Progress, Row, RunRefusal, Runs,
    resolve, visible,
};
pub use owner::Owner;
pub use page::{Page, Paged};
pub use query::parameters;
pub use reader::Reader;
pub use report::{CLAIM_EVERY, CLAIM_PATH, REPORT_EXECUTIONS, REPORT_MAX_BYTES, REPORT_PATH, Report};
pub use response::{deny, no_such_path, refuse, refuse_unknown};
pub use route::{ApiCall, BETA as SKILLS_BETA, Dialect, Operation, route};
pub use service::{ElsewhereKept, Registry, execute_shared};
pub use store::{Store, document};
pub use upload::{Unpack, sent_name, zipped, zipped_content};
pub use volume_threads::VolumeThreads;

/// The files of a skill by path relative to its folder.
pub type Files = std::collections::BTreeMap<String, knack_skill::model::SkillFile>;
