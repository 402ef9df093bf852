//! Files to ConfigMaps.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knack_api::SkillOverrides;
use knack_skill::model::{SkillFile, SkillRef};
use knack_vocabulary::{ANNOTATION_DIGEST, ANNOTATION_SHARD, LABEL_REVISION, LABEL_SKILL, LABEL_SKILL_NAMESPACE};

use super::index::{ArtifactIndex, FORMAT, FileEntry, FilePiece, INDEX_KEY};
use super::{REVISION_DIGITS, sha256};

/// Value bytes of one ConfigMap: the API server takes 1,048,576; binary content grows by a third on the wire, and an etcd
/// request holds 1.5 MiB.
pub const SHARD_MAX_BYTES: usize = 900 * 1024;
/// Largest index: the value bytes that the API server takes in one ConfigMap. Its shard may hold nothing else.
pub const INDEX_MAX_BYTES: usize = 1_048_576;
/// How much longer than its bytes a text may be in JSON. The API server takes bodies of 3 MiB, and a shard of [`SHARD_MAX_BYTES`] is
/// then at most 1.8 MiB. Quotes and line ends take two bytes each, other control characters six: a text with many of those is stored
/// as binary data, which grows by a third.
const TEXT_GROWTH_MAX: usize = 2;
/// Longest base name kept in a key; keys have at most 253 characters.
const KEY_NAME_MAX: usize = 200;

/// A skill's content as ConfigMaps.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// Short name of content and settings: 10 hex digits.
    pub revision: String,
    /// Hex SHA-256 of the canonical file tree.
    pub digest: String,
    /// Bytes of all files.
    pub size: usize,
    /// Number of files.
    pub file_count: usize,
    /// Bytes of the index. With more than [`INDEX_MAX_BYTES`] the API server does not take it.
    pub index_bytes: usize,
    /// The ConfigMaps, the index in the first.
    pub shards: Vec<ConfigMap>,
}

impl Artifact {
    /// The artifact with an owner on each ConfigMap, as in a cluster.
    #[cfg(test)]
    #[must_use]
    pub fn owned_by(mut self, owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference) -> Self {
        for shard in &mut self.shards {
            shard.metadata.owner_references = Some(vec![owner.clone()]);
        }
        self
    }
}

/// The name of a shard: `<skill>-<revision>`, then `-<n>` from the second on.
pub fn name(skill: &SkillRef, revision: &str, shard: usize) -> String {
    if shard == 0 {
        format!("{}-{revision}", skill.name)
    } else {
        format!("{}-{revision}-{shard}", skill.name)
    }
}

/// Packs files and settings. The same input gives the same ConfigMaps, byte for byte.
pub fn build(skill: &SkillRef, files: &BTreeMap<String, SkillFile>, overrides: &SkillOverrides) -> Artifact {
    let digest = knack_skill::tree::digest(files);
    let revision = revision(&digest, overrides);
    let mut packer = Packer::new();
    let entries: Vec<FileEntry> = files
        .iter()
        .enumerate()
        .map(|(number, (path, file))| FileEntry {
            path: path.clone(),
            mode: if file.executable { "0755" } else { "0644" }.to_owned(),
            size: file.bytes.len(),
            sha256: sha256(&file.bytes),
            pieces: packer.file(number, path, &file.bytes),
        })
        .collect();
    let mut index = ArtifactIndex {
        format: FORMAT,
        digest: digest.clone(),
        shards: packer.shards.len(),
        files: entries,
        overrides: overrides.clone(),
    };
    let index_bytes = packer.place_index(&mut index);
    let count = packer.shards.len();
    let shards = packer.shards.into_iter().enumerate().map(|(number, shard)| ConfigMap {
        metadata: metadata(skill, &revision, &digest, number, count),
        immutable: Some(true),
        data: (!shard.text.is_empty()).then_some(shard.text),
        binary_data: (!shard.binary.is_empty()).then_some(shard.binary),
    });
    Artifact {
        shards: shards.collect(),
        size: files.values().map(|file| file.bytes.len()).sum(),
        file_count: files.len(),
        index_bytes,
        revision,
        digest,
    }
}

/// Short name of content and settings.
fn revision(digest: &str, overrides: &SkillOverrides) -> String {
    let hash = if *overrides == SkillOverrides::default() {
        digest.to_owned()
    } else {
        sha256(format!("knack-revision-v1\n{digest}\n{}\n", overrides.to_json()).as_bytes())
    };
    hash.chars().take(REVISION_DIGITS).collect()
}

fn metadata(skill: &SkillRef, revision: &str, digest: &str, number: usize, count: usize) -> ObjectMeta {
    let text = |pairs: [(&str, String); 3]| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let mut annotations: BTreeMap<String, String> = BTreeMap::new();
    annotations.insert(ANNOTATION_DIGEST.to_owned(), digest.to_owned());
    annotations.insert(ANNOTATION_SHARD.to_owned(), format!("{number}/{count}"));
    ObjectMeta {
        name: Some(name(skill, revision, number)),
        namespace: Some(skill.namespace.clone()),
        labels: Some(text([
            (LABEL_SKILL, skill.name.clone()),
            (LABEL_SKILL_NAMESPACE, skill.namespace.clone()),
            (LABEL_REVISION, revision.to_owned()),
        ])),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    }
}

#[derive(Default)]
struct Shard {
    text: BTreeMap<String, String>,
    binary: BTreeMap<String, ByteString>,
    bytes: usize,
}

/// Fills shards in order.
struct Packer {
    shards: Vec<Shard>,
}

impl Packer {
    fn new() -> Self {
        Self {
            shards: vec![Shard::default()],
        }
    }

    /// Places a file, in pieces if it is larger than a shard.
    fn file(&mut self, number: usize, path: &str, bytes: &[u8]) -> Vec<FilePiece> {
        let base = key_name(path);
        // Pieces end between characters if the whole is text: a person reads them.
        let text = std::str::from_utf8(bytes).ok();
        if bytes.len() <= SHARD_MAX_BYTES {
            return vec![self.piece(format!("f{number}-{base}"), text.ok_or(bytes))];
        }
        let mut pieces = Vec::new();
        let mut rest = 0;
        while rest < bytes.len() {
            let end = piece_end(bytes, text, rest);
            let part = match text {
                Some(text) => text.get(rest..end).ok_or(&bytes[rest..end]),
                None => Err(&bytes[rest..end]),
            };
            pieces.push(self.piece(format!("f{number}.{}-{base}", pieces.len()), part));
            rest = end;
        }
        pieces
    }

    fn piece(&mut self, key: String, content: Result<&str, &[u8]>) -> FilePiece {
        let content = match content {
            Ok(text) if json_length(text) > TEXT_GROWTH_MAX * text.len() => Err(text.as_bytes()),
            content => content,
        };
        let length = content.map_or_else(<[u8]>::len, str::len) + key.len();
        if self
            .shards
            .last()
            .is_some_and(|last| last.bytes > 0 && last.bytes + length > SHARD_MAX_BYTES)
        {
            self.shards.push(Shard::default());
        }
        let shard = self.shards.len() - 1;
        if let Some(last) = self.shards.last_mut() {
            last.bytes += length;
            match content {
                Ok(text) => {
                    last.text.insert(key.clone(), text.to_owned());
                }
                Err(bytes) => {
                    last.binary.insert(key.clone(), ByteString(bytes.to_vec()));
                }
            }
        }
        FilePiece { shard, key }
    }

    /// Puts the index into the first shard, before which a new one is set if it has no room. Returns its bytes.
    fn place_index(&mut self, index: &mut ArtifactIndex) -> usize {
        let fits = |index: &ArtifactIndex, used: usize| json(index).len() + used <= SHARD_MAX_BYTES;
        if !fits(index, self.shards[0].bytes) {
            for piece in index.files.iter_mut().flat_map(|file| &mut file.pieces) {
                piece.shard += 1;
            }
            index.shards += 1;
            self.shards.insert(0, Shard::default());
        }
        let mut text = json(index);
        // Indented for people where there is room. The form of a smaller index is not changed: the ConfigMaps of a revision are compared
        // byte by byte.
        if text.len() > INDEX_MAX_BYTES {
            text = serde_json::to_string(index).unwrap_or_default();
        }
        let bytes = text.len();
        self.shards[0].text.insert(INDEX_KEY.to_owned(), text);
        bytes
    }
}

/// The length of a text in JSON, without its quotes.
fn json_length(text: &str) -> usize {
    let length = |byte: u8| -> usize {
        match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
            0..=0x1f => 6,
            _ => 1,
        }
    };
    text.bytes().map(length).sum()
}

fn json(index: &ArtifactIndex) -> String {
    serde_json::to_string_pretty(index).unwrap_or_default()
}

/// Where a piece of a large file ends: at most a shard on, not inside a character.
fn piece_end(bytes: &[u8], text: Option<&str>, start: usize) -> usize {
    // Room for the key itself.
    let mut end = bytes.len().min(start + SHARD_MAX_BYTES - 2 * KEY_NAME_MAX);
    while let Some(text) = text
        && !text.is_char_boundary(end)
    {
        end -= 1;
    }
    end
}

/// The base name of a path with what a ConfigMap key cannot hold as `_`.
fn key_name(path: &str) -> String {
    let base = path.rsplit('/').next().unwrap_or(path);
    base.chars()
        .take(KEY_NAME_MAX)
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_') {
                c
            } else {
                '_'
            }
        })
        .collect()
}
