//! Pages of lists that are counted.

use serde_json::{Value, json};

use crate::answer::Refusal;
use crate::query::from_one;

/// A page of a list that has numbered pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NumberedPage {
    /// Counted from 1.
    pub(crate) number: usize,
    /// Items at most.
    pub(crate) limit: usize,
}

impl NumberedPage {
    /// Items of a page at most.
    const LIMIT_MAX: usize = 100;

    /// The first page.
    pub(crate) const fn first(limit: usize) -> Self {
        Self { number: 1, limit }
    }

    /// Takes a parameter of a query if it is about the page.
    pub(crate) fn read(&mut self, key: &str, value: &str) -> Result<(), Refusal> {
        match key {
            "page" => self.number = from_one(key, value, usize::MAX / Self::LIMIT_MAX)?,
            "limit" => self.limit = from_one(key, value, Self::LIMIT_MAX)?,
            _ => {}
        }
        Ok(())
    }

    /// Items before it.
    pub(crate) const fn skip(self) -> usize {
        (self.number - 1) * self.limit
    }

    /// The answer with its items, of `total` in all.
    pub(crate) fn answer(self, data: &[Value], total: usize) -> Value {
        json!({
            "data": data, "total": total, "page": self.number, "limit": self.limit,
            "totalPages": total.div_ceil(self.limit),
        })
    }
}
