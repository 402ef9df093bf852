//! Adapters of `autoscore.json`: AUTO scoring and selection.

use crate::registry::Op;

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[];
