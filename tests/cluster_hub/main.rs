//! The hub on a real cluster: tenants, tokens, bad input, slow readers, propagation, outages.
//!
//! Controller, hub and gateway are processes of this build beside the cluster, in its network; sandboxes are real pods.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of test functions, fail the test that calls them"
)]

mod again;
mod answer;
#[path = "../support/cgroup.rs"]
mod cgroup;
#[path = "../support/chart.rs"]
mod chart;
mod chat;
mod clocks;
#[cfg(feature = "otel")]
#[path = "../otel/collector.rs"]
#[expect(dead_code, reason = "some of it is for tests/otel")]
mod collector;
mod configured;
mod drain;
mod floor;
mod gateway_auth;
mod gateway_replicas;
mod gateway_tenants;
mod idle;
mod judged;
mod last_used;
mod limited;
mod limits;
mod many;
mod metrics;
mod named_images;
mod outage;
mod planted;
#[path = "../support/port.rs"]
mod port;
mod propagation;
mod protocols;
#[path = "../support/released.rs"]
mod released;
mod repeats;
mod requests;
mod restart;
mod skew;
mod slow_reader;
mod stored_chat;
mod support;
mod takeover;
mod tenants;
mod tokens;
#[cfg(feature = "otel")]
mod trace;
mod uploads;
