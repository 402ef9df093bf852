//! Values that the replicas of one gateway keep for each other: opaque bytes under opaque keys. One without bytes is a message:
//! a client of the gateway cancels a request, which another replica may serve.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::RuntimeName;

/// Most bytes of one kept value: a result file of the largest size (4 MiB) and what describes it.
pub const KEPT_MAX_BYTES: usize = (4 << 20) + (64 << 10);
/// Most keys of one value: a hidden turn has the chain's and its call ids'.
pub const KEPT_MAX_KEYS: usize = 2;

/// A key of a kept value, or a client of the gateway: a keyed hash that is meaningless without the gateway's secret. 64
/// hexadecimal digits on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeptKey(pub [u8; 32]);

/// A text that is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key must be 64 hexadecimal digits")]
pub struct ReadKeptKeyError;

impl fmt::Display for KeptKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&knack_skill::digest::hex(&self.0))
    }
}

impl fmt::Debug for KeptKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&knack_skill::digest::hex(&self.0[..4]))
    }
}

impl FromStr for KeptKey {
    type Err = ReadKeptKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(ReadKeptKeyError);
        }
        let mut key = [0; 32];
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Self(key))
    }
}

fn digit(letter: u8) -> Result<u8, ReadKeptKeyError> {
    match letter {
        b'0'..=b'9' => Ok(letter - b'0'),
        b'a'..=b'f' => Ok(letter - b'a' + 10),
        _ => Err(ReadKeptKeyError),
    }
}

impl Serialize for KeptKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeptKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// One line of `GET /v1/kept`.
///
/// Order: `hello`, one `kept` for each value that exists, `synced`; then `kept` for each new value, and `ping` when
/// there is none. Dropped values are not announced: a reader that requests one gets 404.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum KeptLine {
    /// Opens the stream.
    Hello(KeptHello),
    /// A value that can be asked for.
    Kept(KeptValue),
    /// Every existing value has been announced.
    Synced,
    /// The stream lives.
    Ping,
    /// A line of a newer hub.
    #[serde(other)]
    Unknown,
}

/// The first line.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptHello {
    /// From this secret the replicas make their keys: one for each account and runtime, the same at every replica of the hub.
    pub secret: KeptKey,
}

impl fmt::Debug for KeptHello {
    /// A secret is never shown.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeptHello").finish_non_exhaustive()
    }
}

/// A value that is kept, without its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptValue {
    /// The client of the gateway that it belongs to.
    pub client: KeptKey,
    /// Where it is found: under each of these, the first one first.
    pub keys: Vec<KeptKey>,
    /// The beginning of the conversation that it belongs to; files have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opening: Option<KeptKey>,
    /// Length of the value in bytes.
    pub bytes: u64,
}

impl KeptValue {
    /// Says to all replicas that a client of the gateway cancels a request that has this key. It has no bytes.
    pub fn cancellation(client: KeptKey, request: KeptKey) -> Self {
        Self {
            client,
            keys: vec![request],
            opening: None,
            bytes: 0,
        }
    }

    /// The key of the request that it cancels. Every other value is sealed, which no empty one is.
    pub fn cancels(&self) -> Option<&KeptKey> {
        self.keys.first().filter(|_| self.bytes == 0)
    }

    /// Where it is written: `PUT` of its bytes.
    pub fn path(&self, runtime: &RuntimeName) -> String {
        let keys: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
        let path = format!("/v1/kept/{}/{}?runtime={runtime}", self.client, keys.join(","));
        match &self.opening {
            Some(opening) => format!("{path}&opening={opening}"),
            None => path,
        }
    }
}

/// Where the value under a key is read: `GET` of its bytes.
pub fn kept_path(client: KeptKey, key: KeptKey, runtime: &RuntimeName) -> String {
    format!("/v1/kept/{client}/{key}?runtime={runtime}")
}

/// The keys of a path: `key[,key]`, at most [`KEPT_MAX_KEYS`].
pub fn read_keys(text: &str) -> Result<Vec<KeptKey>, ReadKeptKeyError> {
    // One more than allowed, so that too many are detected without reading all of a long path.
    let keys: Result<Vec<KeptKey>, _> = text.split(',').take(KEPT_MAX_KEYS + 1).map(str::parse).collect();
    keys.and_then(|keys| {
        if keys.len() <= KEPT_MAX_KEYS {
            Ok(keys)
        } else {
            Err(ReadKeptKeyError)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written_and_nothing_else_is() {
        let key = KeptKey(std::array::from_fn(|at| u8::try_from(at * 7 % 256).unwrap()));
        let text = key.to_string();
        assert_eq!(text.parse(), Ok(key));
        for bad in [
            "",
            "00",
            &text[1..],
            &format!("{text}0"),
            &text.to_uppercase(),
            &"é".repeat(32),
        ] {
            assert_eq!(bad.parse::<KeptKey>(), Err(ReadKeptKeyError), "{bad}");
        }
        assert_eq!(read_keys(&text), Ok(vec![key]));
        assert_eq!(read_keys(&format!("{text},{text}")), Ok(vec![key, key]));
        for bad in [
            String::new(),
            format!("{text},"),
            [text.as_str(); KEPT_MAX_KEYS + 1].join(","),
        ] {
            assert!(read_keys(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_secret_is_in_the_line_and_in_no_log() {
        let hello = KeptLine::Hello(KeptHello {
            secret: KeptKey([0xab; 32]),
        });
        let text = serde_json::to_string(&hello).unwrap();
        assert_eq!(serde_json::from_str::<KeptLine>(&text).unwrap(), hello);
        assert!(
            text.contains("abab") && !format!("{hello:?}").contains("ab, ") && !format!("{hello:?}").contains("abab")
        );
        assert_eq!(
            serde_json::from_str::<KeptLine>(r#"{"type":"later","x":1}"#).unwrap(),
            KeptLine::Unknown
        );
    }
}
