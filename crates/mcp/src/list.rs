//! Lists that are sent in pages, each within a bound of items and of bytes.

use std::io;

use serde::Serialize;

/// How the URI of every item begins.
pub(crate) const SCHEME: &str = "skill://";

/// Items of one page of resources or skills. A folder on a laptop is one page; hosts that read the first page only miss nothing
/// of it.
const PAGE: usize = 1000;

/// Bytes of one page as JSON, as hosts refuse answers that are much larger: a skill has a line for each of its files, of which it may have
/// 2,000. An item that is larger is a page of its own.
const PAGE_BYTES: usize = 1 << 20;

/// A list, sorted by URI.
#[derive(Debug)]
pub(crate) struct List<T> {
    items: Vec<Listed<T>>,
    /// The bytes of the largest item, and of all.
    largest_bytes: usize,
    all_bytes: usize,
}

#[derive(Debug)]
struct Listed<T> {
    item: T,
    /// What it takes as JSON.
    bytes: usize,
}

impl<T: Clone + Serialize> List<T> {
    /// A list of items that are sorted by URI.
    pub(crate) fn new(items: Vec<T>) -> Self {
        let items = items.into_iter().map(|item| Listed {
            bytes: json_bytes(&item),
            item,
        });
        let items: Vec<Listed<T>> = items.collect();
        let bytes = || items.iter().map(|listed| listed.bytes);
        Self {
            largest_bytes: bytes().max().unwrap_or_default(),
            all_bytes: bytes().sum(),
            items,
        }
    }

    /// All items.
    pub(crate) fn items(&self) -> impl Iterator<Item = &T> {
        self.items.iter().map(|listed| &listed.item)
    }

    /// The most bytes that an item takes as JSON.
    pub(crate) const fn largest_bytes(&self) -> usize {
        self.largest_bytes
    }

    /// The most bytes that a page takes as JSON.
    pub(crate) fn page_bytes(&self) -> usize {
        self.all_bytes.min(self.largest_bytes.max(PAGE_BYTES))
    }

    /// The items after a cursor, which is the URI of the last item that was sent, and the next cursor. A page is right even if the
    /// catalog changed since the last. `None`: no page ends with this cursor.
    pub(crate) fn page(&self, uri: impl Fn(&T) -> &str, cursor: Option<&str>) -> Option<(Vec<T>, Option<String>)> {
        if cursor.is_some_and(|cursor| !cursor.starts_with(SCHEME)) {
            return None;
        }
        let is_sent = |listed: &Listed<T>| cursor.is_some_and(|cursor| uri(&listed.item) <= cursor);
        let (_, rest) = self.items.split_at(self.items.partition_point(is_sent));
        let (page, later) = rest.split_at(first_page(rest));
        let page: Vec<T> = page.iter().map(|listed| listed.item.clone()).collect();
        let last = page.last().filter(|_| !later.is_empty());
        let next = last.map(|item| uri(item).to_owned());
        Some((page, next))
    }
}

/// How many of the items are one page.
fn first_page<T>(items: &[Listed<T>]) -> usize {
    let mut bytes = 0;
    let fitting = items.iter().take(PAGE).take_while(|listed| {
        bytes += listed.bytes;
        bytes <= PAGE_BYTES
    });
    // An item that is larger than a page has one.
    fitting.count().max(usize::from(!items.is_empty()))
}

/// The bytes of a value as JSON.
fn json_bytes(value: &impl Serialize) -> usize {
    let mut counted = CountedBytes(0);
    // What is listed can be written, and counting never fails.
    let _ = serde_json::to_writer(&mut counted, value);
    counted.0
}

/// A writer that keeps nothing.
struct CountedBytes(usize);

impl io::Write for CountedBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{Skill, SkillFrontmatter, SkillResource, SkillResources};

    use super::*;

    fn page(items: &[String], cursor: Option<&str>) -> Option<(Vec<String>, Option<String>)> {
        List::new(items.to_vec()).page(|item| item, cursor)
    }

    #[test]
    fn pages_have_every_item_once_and_go_on_after_a_change() {
        let mut items: Vec<String> = (0..=2 * PAGE).map(|number| format!("skill://{number:05}")).collect();
        let (first, next) = page(&items, None).unwrap();
        assert_eq!((first.len(), next.as_deref()), (PAGE, Some("skill://00999")));
        // The last item of the previous page is gone, and a new one is before it.
        items.remove(PAGE - 1);
        items.insert(0, "skill://-".to_owned());
        let (second, next) = page(&items, next.as_deref()).unwrap();
        assert_eq!(second.first().map(String::as_str), Some("skill://01000"));
        let (third, next) = page(&items, next.as_deref()).unwrap();
        assert_eq!((third, next), (vec!["skill://02000".to_owned()], None));
        assert_eq!(page(&items, Some("skill://zzz")), Some((Vec::new(), None)));
        for forged in ["zzz", "", "5"] {
            assert_eq!(page(&items, Some(forged)), None, "{forged}");
        }
    }

    /// A skill of so many files, with names of this length.
    fn skill(name: &str, files: usize, length: usize) -> Skill {
        let manifest = (0..files).map(|number| {
            let digest = format!("sha256:{}", "0".repeat(64));
            SkillResource::new(format!("skill://{name}/{number:0length$}"), digest, 1)
        });
        Skill::new(
            format!("skill://{name}/SKILL.md"),
            SkillFrontmatter::new(name, "Counts."),
            SkillResources::Files(manifest.collect()),
        )
    }

    #[test]
    fn a_page_of_skills_with_many_files_ends_at_its_bytes() {
        let uri = |skill: &Skill| -> String { skill.uri.clone() };
        let mut skills: Vec<Skill> = (0..10).map(|number| skill(&format!("s{number}"), 2_000, 20)).collect();
        // One that fits into no page.
        skills.push(skill("t", 2_000, 1_000));
        let expected: Vec<String> = skills.iter().map(uri).collect();
        let all = List::new(skills);
        let (mut sent, mut cursor, mut pages) = (Vec::new(), None, 0);
        loop {
            let (page, next) = all.page(|skill| &skill.uri, cursor.as_deref()).unwrap();
            let bytes = serde_json::to_vec(&page).unwrap().len();
            assert!(bytes <= all.page_bytes() + page.len() + 2, "{bytes}");
            assert!(bytes <= PAGE_BYTES + page.len() + 2 || page.len() == 1, "{bytes}");
            sent.extend(page.iter().map(uri));
            pages += 1;
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(sent, expected);
        assert!((5..=11).contains(&pages), "{pages}");
    }
}
