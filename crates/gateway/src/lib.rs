//! The gateway: an HTTP proxy between an application and its LLM provider that injects skills and runs the tool loop.
//!
//! ```text
//! server ─▶ app: host guard ─▶ routes ─▶ model: body, view, plan ─▶ exchange: rounds, runs, answer
//!                                 │                                     │          │
//!                                 ├─▶ proxy (everything else)           ▼          ▼
//!                                 └─▶ files, health, metrics         upstream    tools ─▶ Executor
//! ```
//!
//! The replicas of one gateway find each other's hidden turns and files by way of the hub ([`replicas`]).
//! It never talks to the Kubernetes API, and stores no credential.

pub mod ad_hoc;
pub mod answer_container;
mod app;
pub mod budget;
pub mod caller;
pub mod catalog;
mod claims;
pub mod client_auth;
mod client_timeout;
pub mod code_tools;
pub mod command;
pub mod contents;
mod delivered;
pub mod direct;
pub mod discovery;
pub mod exchange;
pub mod fault;
pub mod file_url;
pub mod files;
pub mod forwarded_headers;
pub mod grants;
mod health;
pub mod hidden;
pub mod history_reports;
pub mod host_guard;
pub mod inject;
pub mod log;
pub mod metrics;
mod model;
pub mod note;
pub mod observe;
pub mod operator_key;
mod own_routes;
mod probing;
pub mod provider;
mod provider_keys;
mod proxy;
pub mod recent;
pub mod recorder;
pub mod records;
pub mod registry_relay;
pub mod replicas;
pub mod report;
pub mod request_files;
pub mod run_history;
pub mod run_lines;
mod run_route;
pub mod secret;
pub mod server;
pub mod skill_calls;
pub mod skill_metrics;
pub mod skill_runs;
pub mod state;
mod stored;
mod temporary;
pub mod tenants;
pub mod timeline;
pub mod tools;
pub mod trace;
mod upload_routes;
pub mod uploads;
pub mod upstream;
mod use_reports;
pub mod user_files;

pub use state::{Gateway, HostPolicy};
