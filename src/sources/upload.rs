//! Files that a program uploaded, in ConfigMaps that the registry made.

use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::skill::UploadSource;
use knack_vocabulary::LABEL_UPLOAD;
use kube::ResourceExt as _;

use super::{Cause, Files, SourceError};
use crate::artifact;

/// The files of the ConfigMaps that a source names, if they are the ones that were uploaded.
///
/// Only the digest counts: a user that may write ConfigMaps can give them every label. The label keeps a Skill from naming by
/// mistake the ConfigMaps of a revision in service, which the controller deletes with it.
pub fn uploaded_files(source: &UploadSource, maps: &[ConfigMap]) -> Result<Files, SourceError> {
    let error = |cause, text: String| SourceError::new(cause, text).of_field("spec.source.upload");
    if let Some(other) = maps.iter().find(|map| !map.labels().contains_key(LABEL_UPLOAD)) {
        return Err(error(
            Cause::Invalid,
            format!(
                "ConfigMap {} has no label {LABEL_UPLOAD}, so it is not one that the registry made; upload the skill through \
                 the registry",
                other.name_any()
            ),
        ));
    }
    let content = artifact::read(maps).map_err(|damage| {
        error(
            Cause::DigestMismatch,
            format!("{damage}; the uploaded content is missing or was modified. Upload the skill again."),
        )
    })?;
    if content.digest != source.digest {
        return Err(error(
            Cause::DigestMismatch,
            format!(
                "the ConfigMaps hold files with digest {}, the spec says {}; upload the skill again",
                content.digest, source.digest
            ),
        ));
    }
    Ok(content.files)
}

#[cfg(test)]
mod tests {
    use knack_api::SkillOverrides;
    use knack_skill::model::{SkillFile, SkillRef};

    use super::*;

    fn uploaded(text: &str) -> (UploadSource, Vec<ConfigMap>, Files) {
        let file = |bytes: &[u8], executable| SkillFile {
            bytes: bytes.into(),
            executable,
        };
        let files = Files::from([
            ("SKILL.md".to_owned(), file(text.as_bytes(), false)),
            ("run.sh".to_owned(), file(b"true", true)),
            (
                "large.bin".to_owned(),
                file(&vec![255; artifact::SHARD_MAX_BYTES + 1], false),
            ),
        ]);
        let skill = SkillRef {
            namespace: "team".to_owned(),
            name: "pdf".to_owned(),
        };
        let made = artifact::build(&skill, &files, &SkillOverrides::default());
        let mut maps = made.shards;
        for map in &mut maps {
            map.metadata.labels = Some([(LABEL_UPLOAD.to_owned(), "pdf".to_owned())].into());
        }
        let source = UploadSource {
            digest: made.digest,
            config_maps: maps.iter().map(kube::ResourceExt::name_any).collect(),
        };
        (source, maps, files)
    }

    #[test]
    fn what_was_uploaded_is_read_from_its_config_maps() {
        let (source, maps, files) = uploaded("One.");
        assert!(maps.len() > 1);
        assert_eq!(uploaded_files(&source, &maps).unwrap(), files);
    }

    #[test]
    fn what_differs_from_the_upload_is_refused_and_named() {
        let (source, maps, _) = uploaded("One.");
        let refused = |source: &UploadSource, maps: &[ConfigMap]| {
            let error = uploaded_files(source, maps).unwrap_err();
            (error.cause, error.message)
        };
        let (other, _, _) = uploaded("Two.");
        let mut unlabelled = maps.clone();
        unlabelled[1].metadata.labels = None;
        let mut edited = maps.clone();
        for data in edited.iter_mut().filter_map(|map| map.data.as_mut()) {
            data.entry("f0-SKILL.md".to_owned())
                .and_modify(|text| *text = "Ten.".to_owned());
        }
        for ((cause, text), expected, part) in [
            (refused(&other, &maps), Cause::DigestMismatch, "the spec says"),
            (
                refused(&source, &unlabelled),
                Cause::Invalid,
                "has no label knack.dev/upload",
            ),
            (
                refused(&source, &edited),
                Cause::DigestMismatch,
                "SKILL.md does not match the index",
            ),
            (refused(&source, &maps[..1]), Cause::DigestMismatch, "is missing"),
        ] {
            assert_eq!(cause, expected, "{text}");
            assert!(
                text.starts_with("spec.source.upload: ") && text.contains(part),
                "{text}"
            );
        }
    }
}
