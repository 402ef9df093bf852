//! Uploads: multipart forms and archives to the files of one folder.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};

use bytes::Bytes;
use http::HeaderMap;
use knack_skill::model::SkillFile;
use knack_skill::{names, tree};
use multer::Multipart;
use zip::write::SimpleFileOptions;

use crate::Files;
use crate::answer::{Refusal, RefusalKind};
use crate::archive::{BadArchive, is_zip};

/// Reads an archive within bounds.
pub type Unpack = fn(&[u8]) -> Result<Files, BadArchive>;

/// Files of one upload, as OpenAI's API has it.
const FILES_MAX: usize = 500;
/// Fields of a form beside its files.
const FIELDS_MAX: usize = 32;
/// Bytes of one such field: titles, words, and the instructions of an entry of LiteLLM's.
const FIELD_MAX_BYTES: usize = 64 << 10;
/// Longest title, characters.
const TITLE_MAX_CHARS: usize = 255;
/// The names of parts with files.
const FILE_PARTS: [&str; 3] = ["files[]", "files", "file"];
/// The message for a folder without its document, in the words of Anthropic's API.
const NO_DOCUMENT: &str = "SKILL.md file must be exactly in the top-level folder.";
/// Said of a folder with a document under each of its names: which one counts differs between readers.
const TWO_DOCUMENTS: &str = "The folder has both SKILL.md and skill.md; send one of them.";

/// A form as it came.
#[derive(Debug, Default)]
pub(crate) struct Form {
    /// Text fields; the last of one name.
    pub(crate) fields: BTreeMap<String, String>,
    /// Files with their whole name.
    parts: Vec<(String, Bytes)>,
    /// The media type of the first file.
    media_type: Option<String>,
}

/// A folder that was uploaded.
#[derive(Debug)]
pub(crate) struct Folder {
    /// The folder's name.
    pub(crate) name: String,
    /// The folder's files.
    pub(crate) files: Files,
}

impl Folder {
    /// This folder. Errors: it has more files than a skill may have.
    pub(crate) fn within(self) -> Result<Self, Refusal> {
        if self.files.len() > FILES_MAX {
            return Err(too_many_files());
        }
        Ok(self)
    }
}

impl Form {
    /// Reads a multipart body. File names keep their folders.
    pub(crate) async fn read(headers: &HeaderMap, body: Bytes) -> Result<Self, Refusal> {
        let content_type = headers
            .get(http::header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let boundary = multer::parse_boundary(content_type.unwrap_or_default()).map_err(|_| {
            let text = "send the files as multipart/form-data with a boundary, in parts named files[]";
            Refusal::invalid("content-type", text)
        })?;
        let stream = futures::stream::once(async move { Ok::<_, std::io::Error>(body) });
        let mut parts = Multipart::new(stream, boundary);
        let mut form = Self::default();
        let broken = |error: multer::Error| Refusal::invalid("body", format!("the form cannot be read: {error}"));
        while let Some(part) = parts.next_field().await.map_err(broken)? {
            let name = part.name().unwrap_or_default().to_owned();
            let path = part.file_name().map(sent_name);
            if form.parts.is_empty() {
                form.media_type = part.content_type().map(ToString::to_string);
            }
            let bytes = part.bytes().await.map_err(broken)?;
            form.add(name, path, bytes)?;
        }
        Ok(form)
    }

    fn add(&mut self, name: String, path: Option<String>, bytes: Bytes) -> Result<(), Refusal> {
        if FILE_PARTS.contains(&name.as_str()) {
            let Some(path) = path else {
                return Err(Refusal::invalid(&name, "a file has no filename"));
            };
            if self.parts.len() >= FILES_MAX {
                return Err(too_many_files());
            }
            self.parts.push((path, bytes));
            return Ok(());
        }
        if self.fields.len() >= FIELDS_MAX || bytes.len() > FIELD_MAX_BYTES {
            let text =
                format!("a form has at most {FIELDS_MAX} fields besides its files, of {FIELD_MAX_BYTES} bytes each");
            return Err(Refusal::invalid("body", text));
        }
        let text = String::from_utf8(bytes.to_vec())
            .map_err(|_| Refusal::invalid("body", "a field of the form is not UTF-8"))?;
        self.fields.insert(name, text);
        Ok(())
    }

    /// The field of a title; `None`: it is not there, or empty.
    pub(crate) fn title(&self, field: &str) -> Result<Option<String>, Refusal> {
        let title = self.fields.get(field).filter(|title| !title.is_empty());
        if title.is_some_and(|title| title.chars().count() > TITLE_MAX_CHARS || title.chars().any(char::is_control)) {
            let text = format!("{field} must be one line of at most {TITLE_MAX_CHARS} characters");
            return Err(Refusal::invalid(field, text));
        }
        Ok(title.cloned())
    }

    /// Name and media type of the first file.
    pub(crate) fn first_file(&self) -> Option<(String, Option<String>)> {
        let (name, _) = self.parts.first()?;
        Some((name.clone(), self.media_type.clone()))
    }

    /// The one folder that was uploaded, as files or as a zip.
    pub(crate) fn folder(self, unpack: Unpack) -> Result<Folder, Refusal> {
        self.files(unpack).and_then(top_folder)
    }

    /// The one folder that was uploaded, or a zip of what is in a folder: it has the name of the archive, as where it is unpacked.
    pub(crate) fn folder_or_its_content(self, unpack: Unpack) -> Result<Folder, Refusal> {
        let name = self.parts.first().and_then(|(name, _)| {
            let name = name.rsplit('/').next().unwrap_or(name);
            let (stem, ending) = name.rsplit_once('.')?;
            ending.eq_ignore_ascii_case("zip").then(|| names::normalize(stem))
        });
        let files = self.files(unpack)?;
        match name.filter(|_| files.contains_key(tree::DOCUMENT_NAMES[0])) {
            Some(name) => folder_of(name, files),
            None => top_folder(files),
        }
    }

    /// The files of an upload, with their paths.
    fn files(self, unpack: Unpack) -> Result<Files, Refusal> {
        let files = match self.parts.as_slice() {
            [] => {
                let text = "no file received; send the skill's files, or one zip of its folder, in parts named files[]";
                return Err(Refusal::invalid("files", text));
            }
            [(name, bytes)] if is_archive(name, bytes) => unpack(bytes).map_err(|bad| {
                let kind = if bad.too_large {
                    RefusalKind::TooLarge
                } else {
                    RefusalKind::Invalid
                };
                Refusal::new(kind, "files", bad.message)
            })?,
            parts => plain(parts)?,
        };
        if files.len() > FILES_MAX {
            return Err(too_many_files());
        }
        Ok(files)
    }
}

/// The file name of a part, of which forms escape these three characters (the multipart/form-data encoding of the WHATWG).
pub fn sent_name(name: &str) -> String {
    let escaped = [("%22", "\""), ("%0D", "\r"), ("%0A", "\n")];
    let unescape = |name: String, (code, text): (&str, &str)| name.replace(code, text);
    escaped.into_iter().fold(name.to_owned(), unescape)
}

fn too_many_files() -> Refusal {
    Refusal::invalid(
        "files",
        format!(
            "more than {FILES_MAX} files; a skill holds instructions and scripts, and no .git, .venv or node_modules"
        ),
    )
}

/// Whether a part is a zip by its name or its first bytes.
fn is_archive(name: &str, bytes: &[u8]) -> bool {
    is_zip(bytes) || name.to_ascii_lowercase().ends_with(".zip")
}

fn plain(parts: &[(String, Bytes)]) -> Result<Files, Refusal> {
    let mut files = Files::new();
    for (path, bytes) in parts {
        tree::check_received_path(path).map_err(|why| Refusal::invalid("files", format!("{path:?}: {why}")))?;
        let file = SkillFile {
            bytes: bytes.as_ref().into(),
            executable: false,
        };
        if files.insert(path.clone(), file).is_some() {
            return Err(Refusal::invalid("files", format!("{path:?} was sent twice")));
        }
    }
    Ok(files)
}

/// All files are in one folder, and its SKILL.md at the folder's root.
pub(crate) fn top_folder(files: Files) -> Result<Folder, Refusal> {
    let outside = |path: &str| {
        let text = format!("{NO_DOCUMENT} All files are in one folder; {path:?} is not.");
        Refusal::invalid("files", text)
    };
    let mut name: Option<String> = None;
    let mut inside = Files::new();
    for (path, file) in files {
        let Some((top, rest)) = path.split_once('/') else {
            return Err(outside(&path));
        };
        if *name.get_or_insert_with(|| top.to_owned()) != top {
            return Err(outside(&path));
        }
        inside.insert(rest.to_owned(), file);
    }
    match name {
        Some(name) => folder_of(name, inside),
        None => Err(Refusal::invalid("files", NO_DOCUMENT)),
    }
}

/// A folder with its SKILL.md at the root.
pub(crate) fn folder_of(name: String, files: Files) -> Result<Folder, Refusal> {
    if tree::DOCUMENT_NAMES.iter().all(|name| files.contains_key(*name)) {
        return Err(Refusal::invalid("files", TWO_DOCUMENTS));
    }
    if files.contains_key(tree::DOCUMENT_NAMES[0]) {
        return Ok(Folder { name, files });
    }
    let text = format!("{NO_DOCUMENT} The folder {name:?} has none.");
    Err(Refusal::invalid("files", text))
}

/// A skill's folder as a zip, as uploads and downloads have it.
///
/// # Errors
///
/// A path, or an amount of bytes, that no zip holds.
pub fn zipped(name: &str, files: &Files) -> Result<Vec<u8>, zip::result::ZipError> {
    packed(&format!("{name}/"), files)
}

/// This archive with the folder's content at the root, as archives of an index of skills have it.
///
/// # Errors
///
/// Those of [`zipped`].
pub fn zipped_content(files: &Files) -> Result<Vec<u8>, zip::result::ZipError> {
    packed("", files)
}

/// The bytes depend on paths, contents and execute bits only, so that a digest of them holds as long as the files do.
fn packed(before: &str, files: &Files) -> Result<Vec<u8>, zip::result::ZipError> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (path, file) in files {
        let mode = if file.executable { 0o755 } else { 0o644 };
        let options = SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated)
            .last_modified_time(zip::DateTime::DEFAULT)
            .unix_permissions(mode);
        writer.start_file(format!("{before}{path}"), options)?;
        writer.write_all(&file.bytes)?;
    }
    Ok(writer.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(paths: &[&str]) -> Result<String, Refusal> {
        let parts: Vec<_> = paths.iter().map(|path| ((*path).to_owned(), Bytes::new())).collect();
        plain(&parts).and_then(top_folder).map(|folder| folder.name)
    }

    #[tokio::test]
    async fn a_file_name_of_a_form_is_unescaped() {
        let part = |name: &str| {
            format!("--b\r\ncontent-disposition: form-data; name=\"files[]\"; filename=\"{name}\"\r\n\r\nx\r\n")
        };
        let read = async |name: &str| {
            let body = format!("{}{}--b--\r\n", part("a/SKILL.md"), part(name));
            let headers = HeaderMap::from_iter([(
                http::header::CONTENT_TYPE,
                http::HeaderValue::from_static("multipart/form-data; boundary=b"),
            )]);
            let form = Form::read(&headers, Bytes::from(body)).await.unwrap();
            form.folder(|_| unreachable!())
                .map(|folder| folder.files.into_keys().next_back().unwrap())
        };
        assert_eq!(read("a/b%22c%2522.txt").await.unwrap(), "b\"c%2522.txt");
        for name in ["a/b%0Ac", "a/b%0D"] {
            assert!(read(name).await.is_err(), "{name}");
        }
    }

    #[test]
    fn an_upload_is_one_folder_with_its_document_at_the_root() {
        assert_eq!(folder(&["a/SKILL.md", "a/b/c.py"]).unwrap(), "a");
        for (paths, expected) in [
            (&["SKILL.md"][..], NO_DOCUMENT),
            (&["a/b/SKILL.md"], NO_DOCUMENT),
            (&["a/SKILL.md", "b/x"], "\"b/x\" is not"),
            (&["a/SKILL.md", "b/SKILL.md"], "\"b/SKILL.md\" is not"),
            (&["a/SKILL.md", "a/skill.md"], TWO_DOCUMENTS),
            (&["a/skill.txt"], NO_DOCUMENT),
            (&["a/skill.txt"], "The folder \"a\" has none"),
            (&["a/SKILL.md", "a/../x"], ". or .."),
            (&["/a/SKILL.md"], "absolute"),
            (&["a/SKILL.md", "a/SKILL.md"], "was sent twice"),
        ] {
            let refused = folder(paths).unwrap_err();
            assert!(refused.message.contains(expected), "{paths:?}: {}", refused.message);
        }
    }

    #[test]
    fn a_zip_of_what_is_in_a_folder_has_the_name_of_the_archive() {
        fn of(paths: &[&str]) -> Files {
            let parts: Vec<_> = paths.iter().map(|path| ((*path).to_owned(), Bytes::new())).collect();
            plain(&parts).unwrap()
        }
        let flat: Unpack = |_| Ok(of(&["SKILL.md", "scripts/a.py"]));
        let deep: Unpack = |_| Ok(of(&["b/SKILL.md", "b/scripts/a.py"]));
        let twice: Unpack = |_| Ok(of(&["SKILL.md", "skill.md"]));
        let other: Unpack = |_| Ok(of(&["README.md"]));
        for (name, unpack, expected) in [
            ("My Word.ZIP", flat, Ok("my-word")),
            ("folder/word.zip", flat, Ok("word")),
            ("word.zip", deep, Ok("b")),
            ("word.zip", twice, Err(TWO_DOCUMENTS)),
            ("word.zip", other, Err(NO_DOCUMENT)),
            ("word", flat, Err(NO_DOCUMENT)),
        ] {
            let form = || Form {
                parts: vec![(name.to_owned(), Bytes::from_static(b"PK\x03\x04"))],
                ..Form::default()
            };
            let folder = form().folder_or_its_content(unpack);
            match expected {
                Ok(expected) => {
                    let folder = folder.unwrap();
                    let has_script = folder.files.contains_key("scripts/a.py");
                    assert_eq!((&*folder.name, has_script), (expected, true), "{name}");
                }
                Err(text) => assert!(folder.unwrap_err().message.contains(text), "{name}"),
            }
            // Those of the vendors take folders alone.
            assert_eq!(form().folder(unpack).is_ok(), expected == Ok("b"), "{name}");
        }
    }
}
