//! MIME type of a result file by its extension.

/// Types that skills produce; sorted by extension. Anything else is bytes.
const TYPES: &[(&str, &str)] = &[
    ("bmp", "image/bmp"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    (
        "docx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ico", "image/x-icon"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("jsonl", "application/x-ndjson"),
    ("md", "text/markdown"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    (
        "pptx",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ),
    ("py", "text/x-python"),
    ("rtf", "application/rtf"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("tsv", "text/tab-separated-values"),
    ("txt", "text/plain"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    (
        "xlsx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
];

/// The MIME type of a path by its extension, any case; `application/octet-stream` for others.
#[must_use]
pub fn mime_type(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => extension.to_ascii_lowercase(),
        _ => return UNKNOWN,
    };
    TYPES
        .binary_search_by(|(known, _)| (*known).cmp(&extension))
        .map_or(UNKNOWN, |index| TYPES[index].1)
}

const UNKNOWN: &str = "application/octet-stream";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_by_the_extension_of_the_name() {
        for (path, expected) in [
            ("ball.gif", "image/gif"),
            ("out/Chart.PNG", "image/png"),
            ("archive.tar.gz", "application/gzip"),
            (".gif", UNKNOWN),
            ("a.gif/b", UNKNOWN),
            ("noext", UNKNOWN),
            ("x.bin", UNKNOWN),
            ("", UNKNOWN),
        ] {
            assert_eq!(mime_type(path), expected, "{path}");
        }
    }

    #[test]
    fn table_is_sorted_for_the_search() {
        assert!(TYPES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
