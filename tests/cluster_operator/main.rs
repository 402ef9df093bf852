//! The controller against a real API server: definitions, Skills, SkillRuntimes, leadership.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on ends by panicking"
)]

// Tests start in the order of their names, and this one takes longer than all others: it waits for four looks a minute apart.
mod after_upgrade;
#[path = "../support/cgroup.rs"]
mod cgroup;
#[path = "../support/chart.rs"]
mod chart;
mod controller;
mod definitions;
mod delivery;
mod leadership;
mod missing;
mod objects;
#[path = "../support/port.rs"]
mod port;
mod quota;
mod revisions;
mod runtimes;
mod sidecars;
mod sources;
mod wait;
mod web;
