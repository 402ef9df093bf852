//! The words of the isolation probe, which a sandbox pod sends to the hub.

/// The first bytes of a probe. No TLS record begins with the first of them, so a TLS port can distinguish a probe from
/// a client.
pub const PROBE_GREETING: &str = "knack-probe ";
/// Longest question or answer, bytes: both are 32 hexadecimal digits.
pub const PROBE_WORD_BYTES: usize = 64;
