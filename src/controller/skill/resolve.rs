//! The files of a skill, wherever they are.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::Skill;
use knack_api::shared::is_object_name;
use knack_api::skill::{ArchiveSource, ConfigMapSource, Source, UploadSource};
use knack_memory::MemoryShare;
use kube::{Api, ResourceExt as _};
use tokio::sync::OwnedSemaphorePermit;

use crate::controller::conditions::{Verdict, VerdictState};
use crate::controller::context::Context;
use crate::controller::error::ControllerError;
use crate::controller::memory::Versions;
use crate::controller::reason::ConditionReason;
use crate::controller::settings::{JUDGED_COPIES, JUDGED_PATIENCE};
use crate::sources::{
    CONFIG_MAP_MAX_BYTES, Cause, Files, SourceError, UPLOAD_MAX_BYTES, UploadMaps, archive, below, config_map_files,
    inline_files, uploaded_files,
};

/// Why there are no files: the object's fault, or the API server's.
pub(super) enum Unresolved {
    Source(SourceError),
    Api(ControllerError),
}

impl From<SourceError> for Unresolved {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl From<ControllerError> for Unresolved {
    fn from(error: ControllerError) -> Self {
        Self::Api(error)
    }
}

/// How a failed source reads in conditions. What may appear by itself (a ConfigMap that comes later in the same apply, a
/// server that is down) is tried again; the rest waits for a person.
pub(super) fn verdict(error: &SourceError) -> Verdict {
    let state = match error.cause {
        Cause::NotFound | Cause::Unavailable => VerdictState::Retrying,
        _ => VerdictState::Stalled,
    };
    Verdict::new(state, ConditionReason::from(error.cause), error.message.clone())
}

/// The files of a skill's folder.
pub(super) struct ResolvedSource {
    pub(super) files: Files,
    /// What others wait for until this is dropped.
    pub(super) room: Room,
}

/// Where content is while it is judged and delivered.
pub(super) enum Room {
    /// The permit for unpacking an archive, which unpacks to many times its size.
    Archive { _permit: OwnedSemaphorePermit },
    /// Memory for any other content.
    Other { _share: MemoryShare },
}

/// Memory for content of so many bytes. Waits while other Skills have it. Errors: they have it for too long.
async fn room(context: &Context, bytes: usize) -> Result<MemoryShare, ControllerError> {
    let share = context.judged.take(JUDGED_COPIES * bytes, JUDGED_PATIENCE).await;
    share.map_err(|error| ControllerError::Stopped(format!("waiting for other Skills to be judged: {error}; retrying")))
}

fn bytes_of_files(files: &Files) -> usize {
    files.values().map(|file| file.bytes.len()).sum()
}

/// The files of the skill's folder.
pub(super) async fn resolve(context: &Context, skill: &Skill) -> Result<ResolvedSource, Unresolved> {
    let source = &skill.spec.source;
    let (files, room) = match (&source.inline, &source.config_map, &source.archive, &source.upload) {
        (Some(inline), None, None, None) => with_room(context, inline_files(inline)?).await?,
        (None, Some(config_map), None, None) => {
            let files = from_config_map(context, skill, config_map).await?;
            with_room(context, files).await?
        }
        (None, None, Some(archive), None) => from_archive(context, skill, archive).await?,
        (None, None, None, Some(upload)) => from_upload(context, skill, upload).await?,
        _ => {
            let text = "spec.source: exactly one of inline, configMap, archive and upload";
            return Err(SourceError::new(Cause::Invalid, text).into());
        }
    };
    let files = folder(source, files)?;
    Ok(ResolvedSource { files, room })
}

/// Files that were in one object, of which as many are read at once as there are reconciles.
async fn with_room(context: &Context, files: Files) -> Result<(Files, Room), ControllerError> {
    let share = room(context, bytes_of_files(&files)).await?;
    Ok((files, Room::Other { _share: share }))
}

/// The files of the folder that the source names.
fn folder(source: &Source, files: Files) -> Result<Files, SourceError> {
    below(files, source.path.as_deref()).map_err(|error| match error.cause {
        // Only a ConfigMap can get a folder without an edit of the object: the other sources are in it, or have a
        // digest.
        Cause::NotFound if source.config_map.is_none() => SourceError {
            cause: Cause::Invalid,
            ..error
        },
        _ => error,
    })
}

/// Refuses what is no name of a ConfigMap: the name becomes a part of a URL, so another text could ask for another object. The
/// definition refuses it too; an object may be older than its rule.
fn checked_name(field: &str, name: &str) -> Result<(), SourceError> {
    if is_object_name(name) {
        return Ok(());
    }
    let text = format!(
        "{field}: {name:?} is not a name of a ConfigMap; write lower-case letters, digits, - and ., beginning and ending with a letter or digit"
    );
    Err(SourceError::new(Cause::Invalid, text))
}

async fn from_config_map(context: &Context, skill: &Skill, source: &ConfigMapSource) -> Result<Files, Unresolved> {
    checked_name("spec.source.configMap.name", &source.name)?;
    let namespace = skill.namespace().unwrap_or_default();
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
    let found = context
        .call(
            || format!("get ConfigMap {namespace}/{}", source.name),
            api.get_opt(&source.name),
        )
        .await?;
    let Some(config_map) = found else {
        let text = format!(
            "spec.source.configMap: ConfigMap {} was not found in namespace {namespace}; create it, or correct the name",
            source.name
        );
        return Err(SourceError::new(Cause::NotFound, text).into());
    };
    Ok(config_map_files(source, &config_map)?)
}

async fn from_upload(context: &Context, skill: &Skill, source: &UploadSource) -> Result<(Files, Room), Unresolved> {
    let namespace = skill.namespace().unwrap_or_default();
    let share = room_of_upload(context, source).await?;
    let maps = upload_maps(context, &namespace, source).await?;
    let versions: Versions = maps
        .iter()
        .map(|map| (map.name_any(), map.resource_version()))
        .collect();
    let files = verified(source, maps).await?;
    context
        .memory
        .uploads
        .remember(&skill.uid().unwrap_or_default(), versions);
    let room = shrunk(share, &files);
    Ok((files, room))
}

/// Memory for an upload before it is read: how many ConfigMaps it is in says how large it may be.
async fn room_of_upload(context: &Context, source: &UploadSource) -> Result<MemoryShare, ControllerError> {
    let most = source.config_maps.len().saturating_mul(CONFIG_MAP_MAX_BYTES);
    room(context, most.min(UPLOAD_MAX_BYTES)).await
}

/// The part of a share that files take.
fn shrunk(mut share: MemoryShare, files: &Files) -> Room {
    share.shrink_to(JUDGED_COPIES * bytes_of_files(files));
    Room::Other { _share: share }
}

/// The files of a version of an uploaded skill that is not the default one.
pub(super) async fn kept_files(
    context: &Context,
    namespace: &str,
    source: &UploadSource,
) -> Result<ResolvedSource, Unresolved> {
    let share = room_of_upload(context, source).await?;
    let maps = upload_maps(context, namespace, source).await?;
    let files = verified(source, maps).await?;
    let room = shrunk(share, &files);
    Ok(ResolvedSource { files, room })
}

/// The files of an upload's ConfigMaps. Hashing them is work for a processor, not for the threads that serve sockets.
async fn verified(source: &UploadSource, maps: Vec<ConfigMap>) -> Result<Files, SourceError> {
    let source = source.clone();
    let files = tokio::task::spawn_blocking(move || uploaded_files(&source, &maps)).await;
    files.map_err(|error| SourceError::new(Cause::Unavailable, format!("reading the upload failed: {error}")))?
}

async fn upload_maps(context: &Context, namespace: &str, source: &UploadSource) -> Result<Vec<ConfigMap>, Unresolved> {
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), namespace);
    let mut maps = UploadMaps::default();
    for name in &source.config_maps {
        checked_name("spec.source.upload.configMaps", name)?;
        let what = || format!("get ConfigMap {namespace}/{name}");
        let Some(found) = context.call(what, api.get_opt(name)).await? else {
            let text = format!(
                "spec.source.upload: ConfigMap {name}, which holds a part of the uploaded content, was not found in namespace {namespace}; upload the skill again"
            );
            return Err(SourceError::new(Cause::NotFound, text).into());
        };
        maps.add(found)?;
    }
    Ok(maps.into_maps())
}

/// Whether the ConfigMaps of an upload are those that were read last, byte for byte: each write gives them another version.
pub(super) fn is_as_read(context: &Context, skill: &Skill, source: &UploadSource) -> bool {
    let namespace = skill.namespace().unwrap_or_default();
    let Some(read) = context.memory.uploads.get(&skill.uid().unwrap_or_default()) else {
        return false;
    };
    let watched = |name: &String| {
        let found = context.cluster_state.upload(&namespace, name);
        found.and_then(|map| Some((name.clone(), Some(map.resource_version()?))))
    };
    let now: Option<Versions> = source.config_maps.iter().map(watched).collect();
    now.is_some_and(|now| now == read)
}

async fn from_archive(context: &Context, skill: &Skill, source: &ArchiveSource) -> Result<(Files, Room), Unresolved> {
    // The key has the URL too, so that a tenant that may not fetch from it cannot get another tenant's cached copy.
    let key = format!("{} {}", source.url, source.digest);
    let (bytes, _fetched) = if let Some(bytes) = context.memory.archives.get(&key) {
        (bytes, None)
    } else {
        let fetcher = context.fetcher.of_namespace(&skill.namespace().unwrap_or_default());
        let fetched = fetcher.fetch(source).await?;
        context.memory.archives.keep(&key, fetched.bytes.clone());
        (fetched.bytes.clone(), Some(fetched))
    };
    let Ok(permit) = Arc::clone(&context.unpacking).acquire_owned().await else {
        return Err(ControllerError::Stopped("the process is shutting down".to_owned()).into());
    };
    // Unpacking is work for a processor, not for the threads that serve sockets.
    let unpacked = tokio::task::spawn_blocking(move || archive::unpack(&bytes)).await;
    let files = unpacked.map_err(|error| SourceError::new(Cause::BadArchive, format!("unpacking failed: {error}")))?;
    let files = files.map_err(|error| error.of_field("spec.source.archive"))?;
    Ok((files, Room::Archive { _permit: permit }))
}

#[cfg(test)]
mod tests {
    use knack_skill::model::SkillFile;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_that_is_not_there_is_tried_again_only_where_it_can_come_by_itself() {
        for (source, expected) in [
            (
                json!({"path": "sub", "inline": {"files": {"SKILL.md": "x"}}}),
                VerdictState::Stalled,
            ),
            (
                json!({"path": "sub", "archive": {"url": "https://h/a.tgz", "digest": "sha256:0"}}),
                VerdictState::Stalled,
            ),
            (
                json!({"path": "sub", "upload": {"digest": "0", "configMaps": ["c"]}}),
                VerdictState::Stalled,
            ),
            (
                json!({"path": "sub", "configMap": {"name": "c"}}),
                VerdictState::Retrying,
            ),
        ] {
            let text = source.to_string();
            let source: Source = serde_json::from_value(source).unwrap();
            let file = SkillFile {
                bytes: b"x".as_slice().into(),
                executable: false,
            };
            let error = folder(&source, Files::from([("SKILL.md".to_owned(), file)])).unwrap_err();
            assert!(error.message.starts_with("spec.source.path: "), "{error}");
            assert_eq!(verdict(&error).state, expected, "{text}");
        }
    }

    #[test]
    fn a_name_that_would_ask_for_another_object_is_refused_before_the_call() {
        for name in [
            "Not Valid",
            "realcm?x=1",
            "../secrets/x",
            "a/b",
            "a%2Fb",
            "",
            "-a",
            "a-",
            "a..b",
        ] {
            let error = checked_name("spec.source.configMap.name", name).unwrap_err();
            assert_eq!(verdict(&error).state, VerdictState::Stalled, "{name}");
            assert!(error.message.starts_with("spec.source.configMap.name: "), "{error}");
        }
        for name in ["realcm", "a-upload-1-0123456789", "a.b", "0"] {
            assert_eq!(checked_name("f", name), Ok(()), "{name}");
        }
    }
}
