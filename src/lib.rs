//! Knack: LLM skills as Kubernetes objects.
//!
//! This crate is the operator and the command line; what processes without Kubernetes need is in `crates/`.
//! ARCHITECTURE.md has the map.

mod access_review;
pub mod account_auth;
mod api_call;
mod api_client;
pub mod artifact;
#[cfg(target_os = "linux")]
pub mod builds;
mod catalogs;
pub mod certificates;
pub mod cli;
pub mod cluster_reader;
mod condition_value;
pub mod controller;
mod counted;
pub mod dev;
mod environments;
mod events;
mod fence;
#[cfg(test)]
mod fixture;
pub mod hub;
mod installer_index;
#[cfg(target_os = "linux")]
pub mod jobs;
mod last_uses;
pub mod lease;
mod object_name;
pub mod packages;
pub mod registry;
mod regular_file;
mod request_bodies;
mod retry_after;
pub mod selection;
mod shortened;
pub mod sources;
mod status_write;

use knack_serving::tasks;
