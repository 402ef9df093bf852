//! knack-wire.
