//! Adapters of `semver.json`: versions, constraints and registration.

use crate::registry::Op;

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[];
