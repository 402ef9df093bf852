//! Files in the object itself.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use knack_api::schema::INLINE_MAX;
use knack_api::skill::InlineSource;
use knack_skill::model::SkillFile;

use super::{Cause, Files, SourceError};

/// The files of an inline source. Its size is checked in bytes here; the API server counted code points.
pub fn inline_files(inline: &InlineSource) -> Result<Files, SourceError> {
    let mut files = Files::new();
    for (path, text) in &inline.files {
        files.insert(path.clone(), plain(text.as_bytes()));
    }
    for (path, text) in &inline.binary_files {
        let compact: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        let bytes = STANDARD.decode(compact).map_err(|error| {
            SourceError::new(
                Cause::Invalid,
                format!("spec.source.inline.binaryFiles[{path:?}]: not base64: {error}"),
            )
        })?;
        if files.insert(path.clone(), plain(&bytes)).is_some() {
            return Err(SourceError::new(
                Cause::Invalid,
                format!("spec.source.inline: {path:?} is in files and in binaryFiles; keep one"),
            ));
        }
    }
    let written: usize = inline
        .files
        .values()
        .chain(inline.binary_files.values())
        .map(String::len)
        .sum();
    if written > INLINE_MAX {
        return Err(SourceError::new(
            Cause::TooLarge,
            format!(
                "spec.source.inline: {written} bytes, at most {INLINE_MAX} (120 KiB); put larger content into a ConfigMap (source.configMap) or an archive (source.archive)"
            ),
        ));
    }
    Ok(files)
}

fn plain(bytes: &[u8]) -> SkillFile {
    SkillFile {
        bytes: bytes.into(),
        executable: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inline(files: &[(&str, &str)], binary: &[(&str, &str)]) -> InlineSource {
        let owned = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        InlineSource {
            files: owned(files),
            binary_files: owned(binary),
        }
    }

    #[test]
    fn text_and_base64_become_files() {
        let files = inline_files(&inline(&[("SKILL.md", "x")], &[("a.bin", "AA\nEC")])).unwrap();
        assert_eq!(&*files["SKILL.md"].bytes, b"x");
        assert_eq!(&*files["a.bin"].bytes, [0, 1, 2]);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let big = "\u{5b57}".repeat(41_000);
        for (source, cause, part) in [
            (
                inline(&[], &[("a", "?")]),
                Cause::Invalid,
                "binaryFiles[\"a\"]: not base64",
            ),
            (
                inline(&[("a", "")], &[("a", "")]),
                Cause::Invalid,
                "in files and in binaryFiles",
            ),
            // 41,000 code points pass the API server's rule; they are 123,000 bytes.
            (
                inline(&[("SKILL.md", &big)], &[]),
                Cause::TooLarge,
                "123000 bytes, at most 122880",
            ),
        ] {
            let error = inline_files(&source).unwrap_err();
            assert_eq!(error.cause, cause);
            assert!(error.message.contains(part), "{error}");
        }
    }
}
