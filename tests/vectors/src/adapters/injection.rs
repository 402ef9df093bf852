//! Adapters of `injection.json`: what is put into requests.

use crate::registry::Op;

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[];
