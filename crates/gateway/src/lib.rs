//! The gateway: an HTTP proxy between an application and its LLM provider that injects skills and runs the tool loop.
//!
//! ```text
//! http_server ─▶ app: host guard ─▶ routes ─▶ model_calls: body, fields, plan ─▶ exchange: rounds, runs, answer
//!                                      │                                           │          │
//!                                      ├─▶ providers: proxy (everything else)      ▼          ▼
//!                                      ├─▶ skills_api                          providers     runs ─▶ Executor
//!                                      └─▶ files, health, metrics
//! ```
//!
//! The replicas of one gateway find each other's hidden turns and files by way of the hub, and cancel each other's requests (`replicas`).
//! It never talks to the Kubernetes API, and stores no credential.

mod app;
pub mod callers;
pub mod catalog;
pub mod command;
pub mod files;
pub mod http_server;
pub mod model_calls;
pub mod providers;
mod replicas;
pub mod runs;
pub mod skills_api;
mod state;
pub mod telemetry;

pub use replicas::Cancellations;
pub use state::{Gateway, HostPolicy};
