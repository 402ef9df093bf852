//! ConfigMaps to files, every byte verified.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::SkillOverrides;
use knack_skill::model::{SkillFile, SkillRef};
use knack_skill::problem::Profile;
use knack_vocabulary::ANNOTATION_SHARD;
use kube::ResourceExt as _;
use sha2::{Digest as _, Sha256};

use super::index::{ArtifactIndex, FORMAT, FileEntry, FilePiece, INDEX_KEY};
use super::sha256;

/// The content of an artifact.
#[derive(Debug, Clone)]
pub struct Content {
    /// Hex SHA-256 of the canonical file tree, verified.
    pub digest: String,
    /// Files by path.
    pub files: BTreeMap<String, SkillFile>,
    /// The settings of the spec when this content was judged.
    pub overrides: SkillOverrides,
}

impl Content {
    /// The input for the validation of the skill.
    pub fn to_load(&self, skill: &SkillRef) -> knack_skill::LoadInput {
        knack_skill::LoadInput {
            id: skill.clone(),
            files: self.files.clone(),
            overrides: self.overrides.to_load(),
            profile: Profile::Load,
        }
    }
}

/// Why an artifact cannot be read: it is incomplete, damaged, or of a newer Knack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("artifact: {0}")]
pub struct ArtifactError(String);

/// Reads an artifact from its ConfigMaps, given in any order. Verifies the hash of every file and of the tree. The files have at most
/// the bytes of the ConfigMaps, whatever the index says: others write indexes, too.
pub fn read(config_maps: &[ConfigMap]) -> Result<Content, ArtifactError> {
    let mut shards: BTreeMap<usize, &ConfigMap> = BTreeMap::new();
    for config_map in config_maps {
        shards.insert(number(config_map)?, config_map);
    }
    let index = shards
        .get(&0)
        .and_then(|first| first.data.as_ref()?.get(INDEX_KEY))
        .ok_or_else(|| {
            ArtifactError(format!(
                "no {INDEX_KEY} in the first of {} ConfigMaps",
                config_maps.len()
            ))
        })?;
    let index: ArtifactIndex =
        serde_json::from_str(index).map_err(|error| ArtifactError(format!("{INDEX_KEY} is broken: {error}")))?;
    if index.format > FORMAT {
        return Err(ArtifactError(format!(
            "{INDEX_KEY} has format {}, this Knack reads up to {FORMAT}; upgrade it",
            index.format
        )));
    }
    let mut files = BTreeMap::new();
    let mut values = ShardValues {
        shards: &shards,
        used: HashSet::new(),
    };
    for entry in &index.files {
        files.insert(entry.path.clone(), file(entry, &mut values)?);
    }
    let digest = knack_skill::tree::digest(&files);
    if digest != index.digest {
        return Err(ArtifactError(format!(
            "the files have digest {digest}, the index says {}",
            index.digest
        )));
    }
    Ok(Content {
        digest,
        files,
        overrides: index.overrides,
    })
}

/// Hash of a ConfigMap's content, as in a Skill's status: its keys and values in order.
pub fn shard_digest(shard: &ConfigMap) -> String {
    let mut hash = Sha256::new();
    let mut add = |key: &str, value: &[u8]| {
        hash.update(format!("{key} {}\n", value.len()));
        hash.update(value);
    };
    for (key, value) in shard.data.iter().flatten() {
        add(key, value.as_bytes());
    }
    for (key, value) in shard.binary_data.iter().flatten() {
        add(key, &value.0);
    }
    knack_skill::digest::hex(&hash.finalize())
}

/// Which shard a ConfigMap is.
fn number(config_map: &ConfigMap) -> Result<usize, ArtifactError> {
    config_map
        .annotations()
        .get(ANNOTATION_SHARD)
        .and_then(|shard| shard.split_once('/')?.0.parse().ok())
        .ok_or_else(|| {
            ArtifactError(format!(
                "ConfigMap {} has no annotation {ANNOTATION_SHARD}",
                config_map.name_any()
            ))
        })
}

/// The values of the shards, each of which is a part of one file.
struct ShardValues<'a> {
    shards: &'a BTreeMap<usize, &'a ConfigMap>,
    /// Shard and key of those that a file has.
    used: HashSet<(usize, &'a str)>,
}

impl<'a> ShardValues<'a> {
    /// The value of a piece. Errors: there is none, or a file has it already.
    fn take(&mut self, entry: &FileEntry, piece: &'a FilePiece) -> Result<&'a [u8], ArtifactError> {
        let shard = self
            .shards
            .get(&piece.shard)
            .ok_or_else(|| ArtifactError(format!("shard {} of {} is missing", piece.shard, entry.path)))?;
        let text = shard.data.as_ref().and_then(|data| data.get(&piece.key));
        let binary = shard.binary_data.as_ref().and_then(|data| data.get(&piece.key));
        let value = text
            .map(String::as_bytes)
            .or_else(|| binary.map(|bytes| bytes.0.as_slice()))
            .ok_or_else(|| {
                ArtifactError(format!(
                    "key {} of {} is missing in shard {}",
                    piece.key, entry.path, piece.shard
                ))
            })?;
        if !self.used.insert((piece.shard, &piece.key)) {
            return Err(ArtifactError(format!(
                "{INDEX_KEY} uses key {} of shard {} twice, the second time for {}",
                piece.key, piece.shard, entry.path
            )));
        }
        Ok(value)
    }
}

fn file<'a>(entry: &'a FileEntry, values: &mut ShardValues<'a>) -> Result<SkillFile, ArtifactError> {
    let parts: Vec<&[u8]> = entry
        .pieces
        .iter()
        .map(|piece| values.take(entry, piece))
        .collect::<Result<_, _>>()?;
    let length: usize = parts.iter().map(|part| part.len()).sum();
    if length != entry.size {
        return Err(ArtifactError(format!(
            "{} has {length} bytes, {INDEX_KEY} says {}",
            entry.path, entry.size
        )));
    }
    let bytes = parts.concat();
    if sha256(&bytes) != entry.sha256 {
        return Err(ArtifactError(format!("{} does not match the index", entry.path)));
    }
    Ok(SkillFile {
        bytes: bytes.into(),
        executable: entry.mode == "0755",
    })
}
