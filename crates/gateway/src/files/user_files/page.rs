//! Queries of lists, and their pages. Pure.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use knack_registry::{Paged, parameters};

use super::operation::RemovedIds;
use super::refusal::FilesRefusal;

/// Containers and files of a container on a page that does not say, and at most.
const CONTAINER_LIMITS: (usize, usize) = (20, 100);

/// Which part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Page {
    /// Begins behind the item with this id.
    pub(super) after: Option<String>,
    /// The API's name of that parameter.
    pub(super) after_name: &'static str,
    /// Ends before the item with this id.
    pub(super) before: Option<String>,
    /// Items at most.
    pub(super) limit: usize,
    /// The newest first.
    pub(super) newest_first: bool,
}

impl Page {
    /// The first page.
    pub(super) const fn first(limit: usize) -> Self {
        Self {
            after: None,
            after_name: "after",
            before: None,
            limit,
            newest_first: true,
        }
    }

    /// The ids at which it begins and ends.
    pub(super) fn places(&self) -> Vec<String> {
        self.after.iter().chain(&self.before).cloned().collect()
    }

    /// The part of `items` that is on this page. `key`: when an item was made, and its id. `gone`: the places of those
    /// of [`Page::places`] that no longer exist, so that a client may delete what it lists.
    pub(super) fn of<T>(
        &self,
        mut items: Vec<T>,
        key: impl Fn(&T) -> (Timestamp, String),
        gone: &RemovedIds,
    ) -> Result<Paged<T>, FilesRefusal> {
        let place = |id: &String, name| {
            let there = items.iter().map(&key).find(|(_, item)| item == id);
            let stood = || {
                gone.iter()
                    .find(|(item, _)| item == id)
                    .map(|(_, made)| (*made, id.clone()))
            };
            let found = there.or_else(stood);
            found.ok_or_else(|| FilesRefusal::Invalid(name, format!("{name}: no item of this list has the id {id}")))
        };
        let after = self.after.as_ref().map(|id| place(id, self.after_name)).transpose()?;
        let before = self.before.as_ref().map(|id| place(id, "before_id")).transpose()?;
        // In the order of the list, `later` is behind.
        let behind = |one: &(Timestamp, String), other: &(Timestamp, String)| {
            if self.newest_first { one < other } else { one > other }
        };
        items.retain(|item| {
            let at = key(item);
            after.as_ref().is_none_or(|after| behind(&at, after))
                && before.as_ref().is_none_or(|before| behind(before, &at))
        });
        items.sort_by_key(|item| key(item));
        if self.newest_first {
            items.reverse();
        }
        let more = items.len() > self.limit;
        if before.is_some() {
            items.drain(..items.len().saturating_sub(self.limit));
        } else {
            items.truncate(self.limit);
        }
        Ok(Paged { items, more })
    }
}

/// The `limit` of a page.
pub(super) fn limit(value: &str, bounds: &RangeInclusive<usize>) -> Result<usize, FilesRefusal> {
    let number = value.parse().ok().filter(|number| bounds.contains(number));
    number.ok_or_else(|| {
        let text = format!("limit: must be a number from {} to {}", bounds.start(), bounds.end());
        FilesRefusal::Invalid("limit", text)
    })
}

/// The `order` of OpenAI's lists: whether the newest come first.
pub(super) fn order(value: &str) -> Result<bool, FilesRefusal> {
    match value {
        "desc" => Ok(true),
        "asc" => Ok(false),
        _ => Err(FilesRefusal::Invalid("order", "order: must be asc or desc".to_owned())),
    }
}

/// A page of a list that a container has.
pub(super) fn container_page(query: Option<&str>) -> Result<(Page, Option<String>), FilesRefusal> {
    let (default, most) = CONTAINER_LIMITS;
    let (mut page, mut name) = (Page::first(default), None);
    for (key, value) in parameters(query) {
        match key.as_str() {
            "limit" => page.limit = limit(&value, &(1..=most))?,
            "order" => page.newest_first = order(&value)?,
            "after" => page.after = Some(value),
            "name" => name = Some(value),
            _ => {}
        }
    }
    Ok((page, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(page: &Page) -> Result<(Vec<String>, bool), FilesRefusal> {
        let at = |n: i64| Timestamp::from_second(n).unwrap();
        let items: Vec<(i64, &str)> = vec![(3, "c"), (1, "z"), (2, "b"), (5, "e")];
        // "d" was deleted.
        let gone = vec![("d".to_owned(), at(4))];
        let paged = page.of(items, |(n, id)| (at(*n), (*id).to_owned()), &gone)?;
        Ok((paged.items.iter().map(|(_, id)| (*id).to_owned()).collect(), paged.more))
    }

    #[test]
    fn pages_go_on_behind_and_before_items_and_behind_what_was_deleted() {
        for (after, before, limit, newest_first, expected) in [
            (None, None, 9, true, Ok((vec!["e", "c", "b", "z"], false))),
            (None, None, 2, true, Ok((vec!["e", "c"], true))),
            (Some("c"), None, 2, true, Ok((vec!["b", "z"], false))),
            (Some("d"), None, 1, true, Ok((vec!["c"], true))),
            (None, Some("z"), 2, true, Ok((vec!["c", "b"], true))),
            (None, Some("c"), 2, true, Ok((vec!["e"], false))),
            (None, None, 3, false, Ok((vec!["z", "b", "c"], true))),
            (Some("d"), None, 3, false, Ok((vec!["e"], false))),
            (Some("x"), None, 3, false, Err("page")),
        ] {
            let page = Page {
                after: after.map(str::to_owned),
                after_name: "page",
                before: before.map(str::to_owned),
                limit,
                newest_first,
            };
            match (ids(&page), expected) {
                (Ok(found), Ok((names, more))) => {
                    assert_eq!(found, (names.iter().map(|s| (*s).to_owned()).collect(), more));
                }
                (Err(FilesRefusal::Invalid(name, _)), Err(expected)) => assert_eq!(name, expected),
                (found, expected) => panic!("{found:?} {expected:?}"),
            }
        }
    }
}
