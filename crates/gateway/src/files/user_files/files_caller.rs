//! Who a call about files comes from.

use std::net::IpAddr;
use std::time::Duration;

use knack_wire::history::Caller;
use tokio::time::Instant;

use crate::model_calls::turn_store::KeyedHash;

/// The owner of the files, and the caller against whose limits the calls to the store count.
#[derive(Debug, Clone)]
pub struct FilesCaller {
    /// The owner of the files.
    pub caller: Caller,
    /// The caller against whose limits the memory of contents and the calls count.
    pub(crate) counted: KeyedHash,
    /// Where the request comes from, if nobody checked who sent it.
    pub address: Option<IpAddr>,
    /// Until when it waits for its turn at the registry; `None`: not at all.
    pub until: Option<Instant>,
}

impl FilesCaller {
    /// A caller that is refused rather than made to wait.
    pub const fn new(caller: Caller, counted: KeyedHash, address: Option<IpAddr>) -> Self {
        Self {
            caller,
            counted,
            address,
            until: None,
        }
    }

    /// This caller as that of a model request: one that makes many calls is slowed down, not refused in the middle.
    #[must_use]
    pub(crate) fn waiting(self, patience: Duration) -> Self {
        Self {
            until: Some(Instant::now() + patience),
            ..self
        }
    }

    /// The key of the owner of its files.
    pub const fn bucket(&self) -> KeyedHash {
        self.caller.bucket()
    }
}
