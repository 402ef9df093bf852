//! The controller against a real API server: definitions, Skills, SkillRuntimes, leadership.

mod controller;
mod definitions;
mod leadership;
mod objects;
mod revisions;
mod runtimes;
mod sources;
mod wait;
mod web;
