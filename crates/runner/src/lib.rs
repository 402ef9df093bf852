//! knack-runner.
