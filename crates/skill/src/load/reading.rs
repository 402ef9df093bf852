//! A frontmatter that is being read.

use super::document::Document;
use crate::problem::{Problem, Profile};

/// A frontmatter that is being read, and what was found wrong with it.
pub(super) struct Fields<'a> {
    pub(super) document: &'a Document,
    pub(super) profile: Profile,
    pub(super) problems: Vec<Problem>,
}
