//! What is known of the nodes that sandboxes run on: whether the network is cut off there, and so whether a run may start.

pub(super) mod isolation_results;
pub(super) mod node_gate;
pub(super) mod probe_results;
