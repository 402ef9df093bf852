//! `requirements.txt`: requirements, comments, continued lines, hashes. Options that name other places are refused.

use crate::finding::{Finding, FindingKind, shown};
use crate::requirement::Requirement;

/// Largest file of requirements or lock: 200 packages with 200 hashes each are 4 MiB.
pub const MAX_FILE_BYTES: usize = 4 << 20;

/// Most findings of one file; a person mends the first ones first.
pub(crate) const MAX_FINDINGS: usize = 20;

/// One requirement of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The requirement.
    pub requirement: Requirement,
    /// `--hash` values, as written: `sha256:<hex>`.
    pub hashes: Vec<String>,
    /// Line of the file, from 1.
    pub number: usize,
}

/// The content of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequirementsFile {
    /// Requirements in their order.
    pub lines: Vec<Line>,
    /// The refused lines.
    pub findings: Vec<Finding>,
}

/// Reads a file of requirements. No input panics; all work is bounded by its size.
pub fn read(file: &str, bytes: &[u8]) -> RequirementsFile {
    let mut read = RequirementsFile::default();
    let text = match text_of(file, bytes) {
        Ok(text) => text,
        Err(finding) => {
            read.findings.push(finding);
            return read;
        }
    };
    for (number, line) in logical_lines(text) {
        let outcome = match option(&line) {
            Some((kind, text, help)) => Err(Finding::new(kind, file, number, text, help)),
            None => one(file, number, &line),
        };
        match outcome {
            Ok(line) => read.lines.push(line),
            Err(finding) if read.findings.len() < MAX_FINDINGS => read.findings.push(finding),
            Err(_) => {}
        }
    }
    if read.lines.len() > crate::MAX_PACKAGES {
        let text = format!("{} requirements, more than {}", read.lines.len(), crate::MAX_PACKAGES);
        read.findings.push(Finding::new(
            FindingKind::TooMany,
            file,
            0,
            text,
            "declare what the scripts import, not all that it needs",
        ));
        read.lines.clear();
    }
    read
}

/// The text of a file that a declaration is read from.
pub(crate) fn text_of<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, Finding> {
    if bytes.len() > MAX_FILE_BYTES {
        let text = format!("the file has {} bytes, more than {MAX_FILE_BYTES} (4 MiB)", bytes.len());
        return Err(Finding::new(FindingKind::File, file, 0, text, "make it smaller"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| {
        Finding::new(
            FindingKind::File,
            file,
            0,
            "the file is not UTF-8 text",
            "save it as UTF-8",
        )
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Lines without comments, joined where one ends in a backslash, with the number of the first.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let line = without_comment(line);
        let (number, mut joined) = open.take().unwrap_or((index + 1, String::new()));
        let (part, continues) = match line.trim_end().strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        joined.push_str(part);
        if continues {
            joined.push(' ');
            open = Some((number, joined));
        } else if !joined.trim().is_empty() {
            lines.push((number, joined.trim().to_owned()));
        }
    }
    lines.extend(
        open.filter(|(_, line)| !line.trim().is_empty())
            .map(|(number, line)| (number, line.trim().to_owned())),
    );
    lines
}

/// A comment begins at a `#` at the start or after a blank, as in pip.
fn without_comment(line: &str) -> &str {
    let bytes = line.as_bytes();
    let start = bytes
        .iter()
        .enumerate()
        .find(|(at, byte)| **byte == b'#' && (*at == 0 || bytes[at - 1].is_ascii_whitespace()));
    start.map_or(line, |(at, _)| &line[..at])
}

/// The refusal of a line that is an option; `None` for a requirement.
fn option(line: &str) -> Option<(FindingKind, String, &'static str)> {
    if !line.starts_with('-') {
        return None;
    }
    // The value may hold credentials.
    let end = line
        .find(|letter: char| letter.is_whitespace() || letter == '=')
        .unwrap_or(line.len());
    let name = &line[..end];
    let short = |prefix: &str| !name.starts_with("--") && name.starts_with(prefix);
    let message = |what: &str| format!("{} {what}", shown(name));
    Some(if name == "--editable" || short("-e") {
        (
            FindingKind::Editable,
            message("builds a folder; nothing is built from source here"),
            "publish it as a wheel and name it, or keep its files in the skill's folder",
        )
    } else if [
        "--index-url",
        "--extra-index-url",
        "--no-index",
        "--find-links",
        "--trusted-host",
    ]
    .contains(&name)
        || short("-i")
        || short("-f")
    {
        (
            FindingKind::IndexOption,
            message("names another index; only the index that is configured for runs of the skill is used"),
            "remove the line; set UV_DEFAULT_INDEX on a laptop",
        )
    } else if name == "--requirement" || name == "--constraint" || short("-r") || short("-c") {
        (
            FindingKind::Include,
            message("names another file; one file declares everything"),
            "write its lines here",
        )
    } else {
        (
            FindingKind::Option,
            message("is an option of pip, but pip is not used here"),
            "remove the line",
        )
    })
}

fn one(file: &str, number: usize, line: &str) -> Result<Line, Finding> {
    let mut words = line.split(" --");
    let text = words.next().unwrap_or_default();
    let mut hashes = Vec::new();
    for word in words {
        let hash = word
            .trim()
            .strip_prefix("hash")
            .map(|rest| rest.trim_start_matches(['=', ' ']));
        let Some(hash) = hash.filter(|hash| is_hash(hash)) else {
            let name = shown(word.split('=').next().unwrap_or_default());
            return Err(Finding::new(
                FindingKind::Option,
                file,
                number,
                format!("{name} is not of the form --hash=sha256:<64 hex digits>"),
                "remove it, or regenerate the lock with knack skill lock",
            ));
        };
        hashes.push(hash.to_owned());
    }
    match Requirement::parse(text) {
        Ok(requirement) => Ok(Line {
            requirement,
            hashes,
            number,
        }),
        Err((kind, text)) => Err(Finding::new(kind, file, number, text, help_of(kind))),
    }
}

/// The help for a line that is not a requirement.
pub(crate) fn help_of(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::UrlRequirement => "write the name of a package and a version, such as pillow>=10",
        _ => "write NAME, or NAME with version clauses, such as pillow>=10",
    }
}

/// SHA-256 and stronger, in hex.
pub(crate) fn is_hash(text: &str) -> bool {
    let length = match text.split_once(':') {
        Some(("sha256", _)) => 64,
        Some(("sha384", _)) => 96,
        Some(("sha512", _)) => 128,
        _ => return false,
    };
    text.split_once(':')
        .is_some_and(|(_, hex)| hex.len() == length && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_comments_and_hashes_are_read() {
        let hash = "a".repeat(64);
        let text = format!(
            "\u{feff}# head\r\npillow>=10  # images\r\n\n  numpy==2.0 \\\n    --hash=sha256:{hash} \\\n    --hash=sha256:{hash}\nlast"
        );
        let read = read("requirements.txt", text.as_bytes());
        assert_eq!(read.findings, []);
        let lines: Vec<_> = read
            .lines
            .iter()
            .map(|line| (line.number, line.requirement.to_string(), line.hashes.len()))
            .collect();
        assert_eq!(
            lines,
            [
                (2, "pillow>=10".to_owned(), 0),
                (4, "numpy==2.0".to_owned(), 2),
                (7, "last".to_owned(), 0)
            ]
        );
    }

    #[test]
    fn what_names_other_places_is_refused_by_its_class() {
        use FindingKind as K;
        for (line, kind) in [
            ("-e .", K::Editable),
            ("-e.", K::Editable),
            ("--editable=git+https://x/y", K::Editable),
            ("--index-url https://user:secret@mirror/simple", K::IndexOption),
            ("--index-url=https://user:secret@mirror/simple", K::IndexOption),
            ("-i https://mirror", K::IndexOption),
            ("--extra-index-url https://mirror", K::IndexOption),
            ("--find-links /tmp", K::IndexOption),
            ("-f /tmp", K::IndexOption),
            ("--trusted-host x", K::IndexOption),
            ("-r other.txt", K::Include),
            ("-rother.txt", K::Include),
            ("--requirement=other.txt", K::Include),
            ("-c constraints.txt", K::Include),
            ("--pre", K::Option),
            ("--no-binary :all:", K::Option),
            ("a @ https://x/a.whl", K::UrlRequirement),
            ("git+ssh://git@x/y", K::UrlRequirement),
            ("./vendored", K::UrlRequirement),
            ("a --config-settings=x", K::Option),
            ("a --hash=md5:00", K::Option),
            ("a b", K::Requirement),
        ] {
            let read = read("requirements.txt", format!("ok\n{line}\n").as_bytes());
            let [finding] = read.findings.as_slice() else {
                panic!("{line}: {:?}", read.findings)
            };
            assert_eq!((finding.kind, finding.line), (kind, 2), "{line}");
            assert!(!finding.to_string().contains("secret"), "{finding}");
            assert!(finding.is_error());
        }
    }

    #[test]
    fn sizes_are_bounded() {
        let many = "a\n".repeat(500);
        let read_many = read("requirements.txt", many.as_bytes());
        assert_eq!(read_many.findings[0].kind, FindingKind::TooMany);
        assert!(read_many.findings[0].text.starts_with("500 requirements"));
        let large = vec![b'#'; MAX_FILE_BYTES + 1];
        assert_eq!(read("requirements.txt", &large).findings[0].kind, FindingKind::File);
        assert_eq!(read("requirements.txt", b"\xff").findings[0].kind, FindingKind::File);
        assert_eq!(
            read("requirements.txt", "-e .\n".repeat(1000).as_bytes())
                .findings
                .len(),
            MAX_FINDINGS
        );
    }
}
