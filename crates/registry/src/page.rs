//! Pages of lists.

/// Which part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Begins behind the item with this id, whether it still exists or not.
    pub after: Option<String>,
    /// Items at most.
    pub limit: usize,
    /// The newest first.
    pub newest_first: bool,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paged<T> {
    /// The items of the page.
    pub items: Vec<T>,
    /// Whether more follow.
    pub more: bool,
}

impl<T> Paged<T> {
    /// A page of items in the order of their ids; `id` returns the id of an item.
    pub fn of(items: impl DoubleEndedIterator<Item = T>, page: &Page, id: impl Fn(&T) -> &str) -> Self {
        let after = page.after.as_deref();
        if page.newest_first {
            let before = |item: &T| after.is_none_or(|after| id(item) < after);
            Self::first(items.rev().filter(before), page.limit)
        } else {
            let behind = |item: &T| after.is_none_or(|after| id(item) > after);
            Self::first(items.filter(behind), page.limit)
        }
    }

    /// This page with something else for each item.
    pub fn map<U>(self, made: impl Fn(T) -> U) -> Paged<U> {
        Paged {
            items: self.items.into_iter().map(made).collect(),
            more: self.more,
        }
    }

    fn first(items: impl Iterator<Item = T>, limit: usize) -> Self {
        let mut items: Vec<T> = items.take(limit.saturating_add(1)).collect();
        let more = items.len() > limit;
        items.truncate(limit);
        Self { items, more }
    }
}
