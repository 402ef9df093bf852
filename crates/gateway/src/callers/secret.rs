//! Secrets that live as long as the process.

use knack_wire::history::HistorySecret;

/// A secret for callers' identities that lives as long as the process.
pub fn random_secret() -> HistorySecret {
    // Two version 4 UUIDs hold 244 random bits from the operating system.
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    bytes[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    HistorySecret::new(bytes)
}
