//! Ranges of protocol versions: peers of neighbouring releases understand each other while they are being upgraded.

/// The versions of a protocol that one side speaks, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolRange {
    /// The oldest version that is still understood.
    pub min: u32,
    /// The version that this side writes.
    pub max: u32,
}

impl ProtocolRange {
    /// The range from `min` to `max`.
    pub const fn new(min: u32, max: u32) -> Self {
        Self { min, max }
    }

    /// Whether a message that states `protocol` can be understood.
    pub const fn accepts(self, protocol: u32) -> bool {
        self.min <= protocol && protocol <= self.max
    }

    /// The version to speak with a peer that writes `stated`: this side's newest, or an older one that is the peer's newest.
    pub const fn with(self, stated: u32) -> u32 {
        if self.accepts(stated) { stated } else { self.max }
    }

    /// Whether a peer that speaks `other` and this side have a version in common.
    pub const fn meets(self, other: Self) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

impl std::fmt::Display for ProtocolRange {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.min == self.max {
            write!(formatter, "{}", self.max)
        } else {
            write!(formatter, "{} to {}", self.min, self.max)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_accepts_its_ends_meets_ranges_that_overlap_and_speaks_what_an_older_peer_writes() {
        let range = ProtocolRange::new(2, 4);
        for (peer, accepted) in [
            (0, false),
            (1, false),
            (2, true),
            (4, true),
            (5, false),
            (u32::MAX, false),
        ] {
            assert_eq!(range.accepts(peer), accepted, "{peer}");
        }
        for (stated, spoken) in [(1, 4), (2, 2), (3, 3), (4, 4), (5, 4)] {
            assert_eq!(range.with(stated), spoken, "{stated}");
        }
        for (other, expected) in [
            ((1, 1), false),
            ((1, 2), true),
            ((3, 3), true),
            ((4, 9), true),
            ((5, 9), false),
        ] {
            assert_eq!(range.meets(ProtocolRange::new(other.0, other.1)), expected, "{other:?}");
        }
        assert_eq!(range.to_string(), "2 to 4");
        assert_eq!(ProtocolRange::new(3, 3).to_string(), "3");
    }
}
