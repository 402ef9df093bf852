//! Adapters of `sse.json`: event streams.

use crate::registry::Op;

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[];
