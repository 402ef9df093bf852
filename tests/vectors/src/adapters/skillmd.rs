//! Adapters of `skillmd.json`: SKILL.md in three dialects.

use crate::registry::Op;

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[];
