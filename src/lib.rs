//! Knack: LLM skills as Kubernetes objects.
//!
//! One binary: the gateway that injects skills into LLM traffic and runs the tool loop, the executors that run what
//! the model calls, and the command line. ARCHITECTURE.md has the map.

pub mod api;
pub mod artifact;
pub mod catalog;
pub mod certificates;
pub mod cli;
pub mod controller;
mod digest;
mod events;
pub mod execution;
pub mod gateway;
pub mod hub;
pub mod hub_api;
pub mod hub_client;
pub mod lease;
pub mod memory;
pub mod mock;
pub mod probes;
pub mod selection;
pub mod serving;
pub mod sources;
pub mod telemetry;
pub mod tool_schema;
