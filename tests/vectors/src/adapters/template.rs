//! Adapters of `template.json`: `{{name}}` templates and inputs.

use crate::registry::Op;

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[];
