//! Adapters of `pyschema.json`: Python functions to tool schemas.

use crate::registry::Op;

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[];
