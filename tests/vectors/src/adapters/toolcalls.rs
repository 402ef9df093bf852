//! Adapters of `toolcalls.json`: extraction, results and loops.

use crate::registry::Op;

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[];
