//! The hub on a real cluster: tenants, tokens, bad input, slow readers, propagation, outages.
//!
//! Controller, hub and gateway are processes of this build beside the cluster, in its network; sandboxes are real pods.

mod gateway_auth;
mod outage;
mod propagation;
mod requests;
mod slow_reader;
mod support;
mod tenants;
mod tokens;
