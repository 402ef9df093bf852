//! The HUSK dialect: what its manifest of a served skill demands. See docs/design/dialects.md#husk.
//!
//! Skills here are not served over HTTP: of a manifest a load reads the tools ([`crate::tools`]), and the strict profile demands what HUSK
//! demands of all of it.

mod checks;
mod mode;
mod problems;

pub use mode::Mode;
pub use problems::problems;
