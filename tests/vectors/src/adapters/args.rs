//! Adapters of `args.json`: HUSK tool declarations, argv and result texts.

use crate::registry::Op;

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[];
