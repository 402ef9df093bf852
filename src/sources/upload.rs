//! Files that a program uploaded, in ConfigMaps that the registry made.

use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::skill::UploadSource;
use knack_skill::tree::MAX_FOLDER_BYTES;
use knack_vocabulary::LABEL_UPLOAD;
use kube::ResourceExt as _;

use super::{Cause, Files, SourceError};
use crate::artifact::{self, INDEX_MAX_BYTES};

/// Keys and values of all ConfigMaps of an upload, bytes. A user can name thirty-two ConfigMaps of any content.
pub const UPLOAD_MAX_BYTES: usize = most_bytes_of(MAX_FOLDER_BYTES);
/// Keys and values of one ConfigMap, bytes: by default etcd takes no request of more than 1.5 MiB.
pub const CONFIG_MAP_MAX_BYTES: usize = 3 << 19;

/// The ConfigMaps of an upload that were read so far, within the bytes that an upload can have.
#[derive(Debug, Default)]
pub struct UploadMaps {
    maps: Vec<ConfigMap>,
    bytes: usize,
}

impl UploadMaps {
    /// Adds the next one. Errors: together they have more bytes than any upload.
    pub fn add(&mut self, map: ConfigMap) -> Result<(), SourceError> {
        self.bytes += bytes_of(&map);
        if self.bytes > UPLOAD_MAX_BYTES {
            let text = format!(
                "the ConfigMaps hold more than {UPLOAD_MAX_BYTES} bytes ({} MiB), which no upload has; upload the skill again",
                UPLOAD_MAX_BYTES >> 20
            );
            return Err(SourceError::new(Cause::TooLarge, text).of_field("spec.source.upload"));
        }
        self.maps.push(map);
        Ok(())
    }

    /// All of them.
    pub fn into_maps(self) -> Vec<ConfigMap> {
        self.maps
    }
}

/// Keys and values of a ConfigMap, bytes.
pub fn bytes_of(map: &ConfigMap) -> usize {
    let texts = map.data.iter().flatten().map(|(key, value)| key.len() + value.len());
    let binaries = map
        .binary_data
        .iter()
        .flatten()
        .map(|(key, value)| key.len() + value.0.len());
    texts.chain(binaries).sum()
}

/// The most bytes of the ConfigMaps of an upload whose files have so many: beside them are the index, and keys, each of which is in
/// the index, too.
pub const fn most_bytes_of(files: usize) -> usize {
    files + 2 * INDEX_MAX_BYTES
}

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
    fn no_more_is_held_of_config_maps_than_an_upload_can_have() {
        let (_, maps, _) = uploaded("One.");
        let mut read = UploadMaps::default();
        for map in &maps {
            read.add(map.clone()).unwrap();
        }
        assert_eq!(read.into_maps(), maps);
        let foreign: ConfigMap =
            serde_json::from_value(serde_json::json!({"data": {"a": "x".repeat((1 << 20) - 1)}})).unwrap();
        let mut read = UploadMaps::default();
        for _ in 0..10 {
            read.add(foreign.clone()).unwrap();
        }
        let error = read.add(foreign).unwrap_err();
        assert_eq!(error.cause, Cause::TooLarge, "{error}");
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
