//! Files in a ConfigMap.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::skill::ConfigMapSource;
use knack_skill::model::SkillFile;
use knack_skill::tree::MAX_FOLDER_BYTES;

use super::{Cause, Files, SourceError};

/// Execute bit of the owner, in a file mode.
const OWNER_EXECUTE: i32 = 0o100;

/// The files that a source takes from its ConfigMap. Items that take the same key share its bytes, and all files together are no larger
/// than a skill: items can name one key many times.
pub fn config_map_files(source: &ConfigMapSource, config_map: &ConfigMap) -> Result<Files, SourceError> {
    let value = |key: &str| -> Option<&[u8]> {
        let text = config_map.data.as_ref().and_then(|data| data.get(key));
        let binary = config_map.binary_data.as_ref().and_then(|data| data.get(key));
        text.map(String::as_bytes)
            .or_else(|| binary.map(|bytes| bytes.0.as_slice()))
    };
    let Some(items) = &source.items else {
        let texts = config_map.data.iter().flat_map(BTreeMap::keys);
        let binaries = config_map.binary_data.iter().flat_map(BTreeMap::keys);
        return Ok(texts
            .chain(binaries)
            .filter_map(|key| Some((key.clone(), file(value(key)?.into(), false))))
            .collect());
    };
    let (mut files, mut total) = (Files::new(), 0);
    let mut shared: BTreeMap<&str, Arc<[u8]>> = BTreeMap::new();
    for item in items {
        let Some(bytes) = value(&item.key) else {
            return Err(SourceError::new(
                Cause::NotFound,
                format!(
                    "spec.source.configMap: ConfigMap {} has no key {:?}",
                    source.name, item.key
                ),
            ));
        };
        total += bytes.len();
        if total > MAX_FOLDER_BYTES {
            return Err(SourceError::new(
                Cause::TooLarge,
                format!(
                    "spec.source.configMap.items: the files have more than {MAX_FOLDER_BYTES} bytes (8 MiB) in all; use large keys fewer times"
                ),
            ));
        }
        let bytes = shared.entry(&item.key).or_insert_with(|| bytes.into());
        let executable = item.mode.is_some_and(|mode| mode & OWNER_EXECUTE != 0);
        if files
            .insert(item.path.clone(), file(Arc::clone(bytes), executable))
            .is_some()
        {
            return Err(SourceError::new(
                Cause::Invalid,
                format!("spec.source.configMap.items: path {:?} appears twice", item.path),
            ));
        }
    }
    Ok(files)
}

fn file(bytes: Arc<[u8]>, executable: bool) -> SkillFile {
    SkillFile { bytes, executable }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_map() -> ConfigMap {
        serde_json::from_value(serde_json::json!({
            "data": {"SKILL.md": "x", "run.sh": "y"}, "binaryData": {"logo.png": "AAEC"},
        }))
        .unwrap()
    }

    #[expect(clippy::needless_pass_by_value, reason = "`json!` values are written at the call")]
    fn source(items: serde_json::Value) -> ConfigMapSource {
        serde_json::from_value(serde_json::json!({"name": "c", "items": items})).unwrap()
    }

    #[test]
    fn every_key_is_a_file_without_items() {
        let files = config_map_files(&source(serde_json::Value::Null), &config_map()).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["SKILL.md", "logo.png", "run.sh"]);
        assert_eq!(&*files["logo.png"].bytes, [0, 1, 2]);
    }

    #[test]
    fn items_choose_place_and_mode() {
        let items = serde_json::json!([{"key": "SKILL.md", "path": "SKILL.md"}, {"key": "run.sh", "path": "scripts/run.sh", "mode": 0o755}]);
        let files = config_map_files(&source(items), &config_map()).unwrap();
        assert_eq!(files.len(), 2);
        assert!(files["scripts/run.sh"].executable && !files["SKILL.md"].executable);
    }

    #[test]
    fn a_key_that_many_items_take_is_in_memory_once_and_no_more_often_than_a_skill_has_room_for() {
        let config_map: ConfigMap =
            serde_json::from_value(serde_json::json!({"data": {"large": "x".repeat(1 << 20)}})).unwrap();
        let taken = |count: usize| {
            let items: Vec<_> = (0..count)
                .map(|number| serde_json::json!({"key": "large", "path": format!("f{number}")}))
                .collect();
            config_map_files(&source(items.into()), &config_map)
        };
        let files = taken(8).unwrap();
        assert_eq!(files.len(), 8);
        assert!(files.values().all(|file| Arc::ptr_eq(&file.bytes, &files["f0"].bytes)));
        let error = taken(256).unwrap_err();
        assert_eq!(error.cause, Cause::TooLarge);
        assert!(error.message.contains("more than 8388608 bytes"), "{error}");
    }

    #[test]
    fn a_missing_key_and_a_path_given_twice_are_named() {
        for (items, cause, part) in [
            (
                serde_json::json!([{"key": "no", "path": "a"}]),
                Cause::NotFound,
                "ConfigMap c has no key \"no\"",
            ),
            (
                serde_json::json!([{"key": "SKILL.md", "path": "a"}, {"key": "run.sh", "path": "a"}]),
                Cause::Invalid,
                "path \"a\" appears twice",
            ),
        ] {
            let error = config_map_files(&source(items), &config_map()).unwrap_err();
            assert_eq!(error.cause, cause);
            assert!(error.message.contains(part), "{error}");
        }
    }
}
