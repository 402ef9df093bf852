//! Multipart forms with one file.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::HeaderMap;
use knack_registry::sent_name;
use multer::Multipart;

use super::refusal::FilesRefusal;

/// Fields of a form beside its file: the APIs know four.
const FIELDS_MAX: usize = 16;
/// Bytes of one such field: words and numbers.
const FIELD_MAX_BYTES: usize = 4 << 10;
/// Longest name of a file, bytes, as file systems have it.
pub(super) const NAME_MAX_BYTES: usize = 255;
/// Longest media type of a file, bytes: the registered ones have half of it.
pub(super) const TYPE_MAX_BYTES: usize = 255;
/// The type that a client sends if it does not know the type of a file.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// A form as it came.
#[derive(Debug)]
pub(super) struct Form {
    /// Text fields; the last of one name.
    pub(super) fields: BTreeMap<String, String>,
    /// The file of the form.
    pub(super) file: FormFile,
}

/// A file that is uploaded.
#[derive(Debug)]
pub(super) struct FormFile {
    /// The last part of its path.
    pub(super) name: String,
    /// The media type as it was sent, else the one of the extension.
    pub(super) mime: String,
    /// The file's content.
    pub(super) bytes: Bytes,
}

/// Whether a body is a form.
pub(super) fn is_form(headers: &HeaderMap) -> bool {
    content_type(headers).starts_with("multipart/form-data")
}

fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(http::header::CONTENT_TYPE);
    value.and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Reads a form with one file, in the part `file`.
pub(super) async fn read(headers: &HeaderMap, body: Bytes) -> Result<Form, FilesRefusal> {
    let boundary = multer::parse_boundary(content_type(headers)).map_err(|_| {
        let text = "send the file as multipart/form-data with a boundary, in a part named file";
        FilesRefusal::Invalid("file", text.to_owned())
    })?;
    let stream = futures::stream::once(async move { Ok::<_, std::io::Error>(body) });
    let mut parts = Multipart::new(stream, boundary);
    let broken = |error: multer::Error| FilesRefusal::Invalid("file", format!("the form cannot be read: {error}"));
    let (mut fields, mut file) = (BTreeMap::new(), None);
    while let Some(part) = parts.next_field().await.map_err(broken)? {
        let name = part.name().unwrap_or_default().to_owned();
        if name == "file" {
            let given = part.file_name().map(sent_name);
            let sent = part.content_type().map(ToString::to_string);
            let bytes = part.bytes().await.map_err(broken)?;
            if file.is_some() {
                return Err(FilesRefusal::Invalid(
                    "file",
                    "send one file with each request".to_owned(),
                ));
            }
            let given =
                given.ok_or_else(|| FilesRefusal::Invalid("file", "the part file has no filename".to_owned()))?;
            file = Some(one(&given, sent, bytes)?);
            continue;
        }
        let bytes = part.bytes().await.map_err(broken)?;
        let text = String::from_utf8(bytes.to_vec()).ok();
        let text = text.filter(|_| fields.len() < FIELDS_MAX && name.len() + bytes.len() <= FIELD_MAX_BYTES);
        let text = text.ok_or_else(|| {
            let text = format!(
                "a form has at most {FIELDS_MAX} fields besides its file, of {FIELD_MAX_BYTES} bytes of text each"
            );
            FilesRefusal::Invalid("file", text)
        })?;
        fields.insert(name, text);
    }
    let missing = || {
        FilesRefusal::Invalid(
            "file",
            "no file received; send it in a part named file with a filename".to_owned(),
        )
    };
    Ok(Form {
        fields,
        file: file.ok_or_else(missing)?,
    })
}

fn one(given: &str, sent: Option<String>, bytes: Bytes) -> Result<FormFile, FilesRefusal> {
    let name = file_name(given)?;
    if sent.as_ref().is_some_and(|kind| kind.len() > TYPE_MAX_BYTES) {
        let text = format!("the Content-Type of the part file is longer than {TYPE_MAX_BYTES} bytes");
        return Err(FilesRefusal::Invalid("file", text));
    }
    let mime = sent.filter(|kind| kind != UNKNOWN_TYPE);
    let mime = mime.unwrap_or_else(|| knack_execution::mime_type(&name).to_owned());
    Ok(FormFile { name, mime, bytes })
}

/// The last part of a path, as the vendors keep it.
fn file_name(given: &str) -> Result<String, FilesRefusal> {
    let name = given.rsplit(['/', '\\']).next().unwrap_or_default().trim();
    let wrong = |text: &str| Err(FilesRefusal::Invalid("file", format!("the filename {text}")));
    if name.is_empty() || name == "." || name == ".." {
        return wrong("has no file name after its folders");
    }
    if name.chars().any(char::is_control) {
        return wrong("has control characters");
    }
    if name.len() > NAME_MAX_BYTES {
        return wrong(&format!("is longer than {NAME_MAX_BYTES} bytes"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn only_the_last_part_of_a_path_is_kept() {
        for (given, expected) in [
            ("a.csv", Some("a.csv")),
            ("x/y/a.csv", Some("a.csv")),
            ("../../etc/passwd", Some("passwd")),
            ("C:\\data\\a b.csv", Some("a b.csv")),
            ("", None),
            ("x/", None),
            ("x/..", None),
            ("a\u{7}b", None),
        ] {
            assert_eq!(file_name(given).ok().as_deref(), expected, "{given:?}");
        }
        assert!(file_name(&"x".repeat(256)).is_err());
    }
}
