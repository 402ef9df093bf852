//! The identity of an execution: a UUIDv7 that a retry makes again, bit by bit.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// UUIDv7 whose time is the gateway request's start and whose random bits are a hash of (gateway request, round,
/// call id) (docs/design/decisions.md#identity-and-at-most-once). The same call of the same request has the
/// same id; it gets another time only where an executor refused the first as ahead of its clock, and so never ran it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionId(Uuid);

/// A text that is not a UUIDv7.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("execution id: not a UUID of version 7 (RFC 9562); make a new id for each execution")]
pub struct ParseExecutionIdError;

impl ExecutionId {
    /// Makes the id of one call.
    ///
    /// `request_start` is time since the Unix epoch, `gateway_request` the gateway's own unique request id, `round`
    /// counts from 0, `call_id` distinguishes the calls of a round.
    #[must_use]
    pub fn new(request_start: Duration, gateway_request: &str, round: u32, call_id: &str) -> Self {
        let mut hash = Sha256::new();
        // Lengths are part of the input, so that no two triples share one byte string.
        hash.update((gateway_request.len() as u64).to_be_bytes());
        hash.update(gateway_request);
        hash.update(round.to_be_bytes());
        hash.update(call_id);
        let digest = hash.finalize();
        let mut random = [0_u8; 10];
        random.copy_from_slice(&digest[..10]);
        let millis = u64::try_from(request_start.as_millis()).unwrap_or(u64::MAX);
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }

    /// Time since the Unix epoch that the id carries, in whole milliseconds.
    #[must_use]
    pub fn time(&self) -> Duration {
        let bytes = self.0.as_bytes();
        let mut millis = [0_u8; 8];
        millis[2..].copy_from_slice(&bytes[..6]);
        Duration::from_millis(u64::from_be_bytes(millis))
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(formatter)
    }
}

impl FromStr for ExecutionId {
    type Err = ParseExecutionIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let id = Uuid::try_parse(text).map_err(|_| ParseExecutionIdError)?;
        if id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122 {
            Ok(Self(id))
        } else {
            Err(ParseExecutionIdError)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_millis(1_763_770_000_123);

    #[test]
    fn is_version_seven_with_the_requests_time() {
        let id = ExecutionId::new(START, "request", 2, "call_1");
        assert_eq!(id.time(), START);
        assert_eq!(id.to_string().parse::<ExecutionId>(), Ok(id));
        assert_eq!(&id.to_string()[14..15], "7");
    }

    #[test]
    fn same_call_has_the_same_id_and_every_part_counts() {
        let id = ExecutionId::new(START, "ab", 1, "c");
        assert_eq!(id, ExecutionId::new(START, "ab", 1, "c"));
        for other in [
            ExecutionId::new(START + Duration::from_millis(1), "ab", 1, "c"),
            ExecutionId::new(START, "a", 1, "bc"),
            ExecutionId::new(START, "ab", 2, "c"),
            ExecutionId::new(START, "ab", 1, "d"),
        ] {
            assert_ne!(id, other);
        }
    }

    #[test]
    fn refuses_what_is_not_version_seven() {
        for text in [
            "",
            "x",
            "5f0c6a1e-2d7b-4a53-9f3c-111111111111",
            "00000000-0000-0000-0000-000000000000",
        ] {
            assert_eq!(text.parse::<ExecutionId>(), Err(ParseExecutionIdError), "{text}");
        }
    }
}
