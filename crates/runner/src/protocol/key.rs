//! The key of one conversation.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Data;

/// Length of a key.
pub const KEY_BYTES: usize = 32;

/// The secret that an owner shares with one runner, for one conversation.
///
/// It is sent in `claim` alone, on the runner's stdin, which only the owner's node and API server can read. It is never
/// printed: `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

impl Key {
    /// A key of these bytes, which must be unpredictable.
    pub const fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    pub(super) const fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Key(..)")
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Data::from(&self.0[..]).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let data = Data::deserialize(deserializer)?;
        // Not the value: errors are logged.
        let wrong = || serde::de::Error::custom("a key has 32 bytes");
        data.0.try_into().map(Self).map_err(|_| wrong())
    }
}
