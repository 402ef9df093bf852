//! Contracts of the module.
