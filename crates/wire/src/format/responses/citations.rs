//! Citations of files that runs made: annotations of the API on the first text that follows them.
//!
//! In a stream they are announced before the text ends, so a text is cited on as soon as it has files before it: whether another
//! one follows is not known.

use std::collections::BTreeMap;

use crate::drive::ContainerFile;
use crate::json::{self, Edits, Span, ValueKind};
use crate::own_files;

/// The type of a citation.
const CITATION: &str = "container_file_citation";

/// Files that no text cites yet, and the text of the running round that cites some.
#[derive(Debug, Default)]
pub(super) struct Citations {
    waiting: Vec<ContainerFile>,
    cited: Option<CitingText>,
    /// How many annotations of the provider a part of an item has so far.
    own: BTreeMap<(u32, usize), usize>,
}

#[derive(Debug)]
struct CitingText {
    item: u32,
    part: usize,
    annotations: Vec<Vec<u8>>,
}

impl Citations {
    pub(super) fn begin_round(&mut self) {
        self.cited = None;
        self.own.clear();
    }

    /// Takes files of a run; one that a run wrote again is cited once.
    pub(super) fn add(&mut self, files: &[ContainerFile]) {
        for file in files {
            self.waiting.retain(|earlier| earlier.path != file.path);
            self.waiting.push(file.clone());
        }
    }

    /// Counts an annotation of the provider.
    pub(super) fn count(&mut self, item: u32, part: usize) {
        *self.own.entry((item, part)).or_default() += 1;
    }

    /// Cites all waiting files on a text. Returns the annotations, and the place of the first one.
    pub(super) fn cite(&mut self, container: &str, (item, part): (u32, usize), text: &str) -> (usize, Vec<Vec<u8>>) {
        if self.waiting.is_empty() {
            return (0, Vec::new());
        }
        let waiting = std::mem::take(&mut self.waiting);
        let annotations: Vec<Vec<u8>> = waiting.iter().map(|file| annotation(container, file, text)).collect();
        self.cited = Some(CitingText {
            item,
            part,
            annotations: annotations.clone(),
        });
        let first = self.own.get(&(item, part)).copied().unwrap_or_default();
        (first, annotations)
    }

    /// Cites all waiting files on the first text of a whole item, if it has one.
    pub(super) fn cite_item(&mut self, container: &str, index: u32, item: &[u8]) {
        if self.waiting.is_empty() {
            return;
        }
        let parts = content(item, Span::new(0, item.len()));
        let is_text = |part: &Span| json::get_text(item, *part, "type").as_deref() == Some("output_text");
        if let Some(at) = parts.iter().position(is_text) {
            let text = json::get_text(item, parts[at], "text").unwrap_or_default();
            self.cite(container, (index, at), &text);
        }
    }

    /// Adds the citations to a part of an item.
    pub(super) fn edit_part(&self, (item, part): (u32, usize), src: &[u8], span: Span, edits: &mut Edits) {
        let Some(cited) = self
            .cited
            .as_ref()
            .filter(|cited| (cited.item, cited.part) == (item, part))
        else {
            return;
        };
        let mut added = cited.annotations.join(&b',');
        let list = json::get(src, span, "annotations");
        match list.filter(|list| json::kind(src, *list) == Some(ValueKind::Array)) {
            Some(list) => {
                if json::first_element(src, list).is_some() {
                    added.insert(0, b',');
                }
                edits.insert(list.end - 1, added);
            }
            // It has its type, so a comma follows.
            None => edits.insert(span.start + 1, [br#""annotations":["#, &*added, b"],"].concat()),
        }
    }

    /// Adds the citations to the text of an item that has them.
    pub(super) fn edit_item(&self, item: u32, src: &[u8], span: Span, edits: &mut Edits) {
        let part = self.cited.as_ref().map(|cited| cited.part);
        if let Some((part, span)) = part.and_then(|part| Some((part, *content(src, span).get(part)?))) {
            self.edit_part((item, part), src, span, edits);
        }
    }
}

/// The parts of an item.
fn content(src: &[u8], item: Span) -> Vec<Span> {
    let list = json::get(src, item, "content").and_then(|span| json::elements(src, span).ok());
    list.unwrap_or_default()
}

/// Where a text has a name that is no part of a longer one. Of languages without spaces a letter beside it may be the sentence's,
/// which counts where nothing stands alone.
fn place(text: &str, name: &str) -> Option<usize> {
    let of_any_language: fn(char) -> bool = char::is_alphanumeric;
    let of_names: fn(char) -> bool = |c| c.is_ascii_alphanumeric();
    [of_any_language, of_names].into_iter().find_map(|is_letter| {
        let is_alone = |at: usize| {
            let before = text[..at].chars().next_back();
            let mut behind = text[at + name.len()..].chars();
            let goes_on = match behind.next() {
                // The end of a sentence, or of another name (a.csv.gz).
                Some('.' | '-') => behind.next().is_some_and(is_letter),
                next => next.is_some_and(|c| is_letter(c) || c == '_'),
            };
            !goes_on && before.is_none_or(|c| !is_letter(c) && !"_-.".contains(c))
        };
        let mut found = text.match_indices(name).map(|(at, _)| at);
        found.find(|at| is_alone(*at))
    })
}

/// A citation where the text names the file, else at its end.
fn annotation(container: &str, file: &ContainerFile, text: &str) -> Vec<u8> {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let found = [file.path.as_str(), name]
        .into_iter()
        .find_map(|word| Some((place(text, word)?, word)));
    let characters = |to: usize| text[..to].chars().count();
    let (start, end) = match found {
        Some((at, word)) => (characters(at), characters(at + word.len())),
        None => (characters(text.len()), characters(text.len())),
    };
    let mut out = format!(r#"{{"type":"{CITATION}","container_id":"#).into_bytes();
    json::push_string(&mut out, container);
    out.extend_from_slice(br#","file_id":"#);
    json::push_string(&mut out, &file.id);
    out.extend_from_slice(br#","filename":"#);
    json::push_string(&mut out, name);
    out.extend_from_slice(format!(r#","start_index":{start},"end_index":{end}}}"#).as_bytes());
    out
}

/// Takes citations of files of this gateway out of an item that a client sends back: its provider knows none of them.
pub(crate) fn remove_own(src: &[u8], item: Span, edits: &mut Edits) {
    for part in content(src, item) {
        let list = json::get(src, part, "annotations").and_then(|span| json::elements(src, span).ok());
        let list = list.unwrap_or_default();
        let is_own = |span: &Span| {
            let container = json::get_text(src, *span, "container_id");
            container.is_some_and(|id| own_files::is_own_container(&id))
        };
        let gone: Vec<usize> = (0..list.len()).filter(|at| is_own(&list[*at])).collect();
        edits.remove_items(&list, &gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> ContainerFile {
        ContainerFile {
            id: format!("cfile_{}", path.len()),
            path: path.to_owned(),
        }
    }

    #[test]
    fn a_file_is_cited_where_the_text_names_it_else_at_its_end() {
        for (path, text, start, end) in [
            ("out/a.csv", "Größe: a.csv.", 7, 12),
            ("out/a.csv", "In out/a.csv.", 3, 12),
            ("a.csv", "Done.", 5, 5),
            // Names of other files are no names of this one.
            ("a.csv", "I made ba.csv then a.csv; a.csv is first.", 19, 24),
            (
                "a.csv",
                "See x-a.csv, y_a.csv, z.a.csv, a.csv.gz, a.csv-1, a.csvs.",
                57,
                57,
            ),
            ("a.csv", "a.csv", 0, 5),
            ("a.csv", "[it](sandbox:/mnt/data/a.csv)", 23, 28),
            ("out/a.csv", "In about/a.csv or out/a.csv.", 18, 27),
            ("a.csv", "文件a.csv已生成。", 2, 7),
            ("a.csv", "文件a.csv已生成：a.csv", 11, 16),
        ] {
            let cited: serde_json::Value =
                serde_json::from_slice(&annotation("cntr_knack_1", &file(path), text)).unwrap();
            assert_eq!(
                (&cited["start_index"], &cited["end_index"], &cited["filename"]),
                (&start.into(), &end.into(), &"a.csv".into()),
                "{path}: {text}"
            );
        }
    }

    #[test]
    fn citations_are_added_once_behind_the_providers_own_and_taken_out_again() {
        let mut citations = Citations::default();
        citations.add(&[file("a"), file("b.c")]);
        citations.add(&[file("a")]);
        for item in [
            r#"{"content":[{"type":"output_text","annotations":[],"text":"x"}]}"#,
            r#"{"content":[{"type":"refusal"},{"type":"output_text","annotations":[{"type":"url_citation"}],"text":"x"}]}"#,
        ] {
            let document = Span::new(0, item.len());
            let mut citations = Citations {
                waiting: citations.waiting.clone(),
                ..Citations::default()
            };
            citations.cite_item("cntr_knack_1", 3, item.as_bytes());
            let mut edits = Edits::new();
            citations.edit_item(3, item.as_bytes(), document, &mut edits);
            citations.edit_item(4, item.as_bytes(), document, &mut edits);
            let shown = edits.apply(item.as_bytes());
            let value: serde_json::Value = serde_json::from_slice(&shown).unwrap();
            let part = value["content"].as_array().unwrap().last().unwrap();
            let all = part["annotations"].as_array().unwrap();
            let ids: Vec<&str> = all.iter().filter_map(|one| one["file_id"].as_str()).collect();
            assert_eq!(ids, ["cfile_3", "cfile_1"]);
            assert!(citations.cite("cntr_knack_1", (5, 0), "more").1.is_empty());
            let mut edits = Edits::new();
            remove_own(&shown, Span::new(0, shown.len()), &mut edits);
            assert_eq!(String::from_utf8(edits.apply(&shown)).unwrap(), item);
        }
    }
}
