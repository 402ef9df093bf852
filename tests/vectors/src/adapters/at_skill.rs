//! Adapters of `at_skill.json`: `@skill text` and input mapping.

use crate::registry::Op;

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[];
