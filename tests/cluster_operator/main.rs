//! The controller against a real API server: definitions, Skills, SkillRuntimes, leadership.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on ends by panicking"
)]

mod controller;
mod definitions;
mod delivery;
mod leadership;
mod missing;
mod objects;
mod quota;
mod revisions;
mod runtimes;
mod sidecars;
mod sources;
mod stale;
mod wait;
mod web;
