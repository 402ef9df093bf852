//! Files by digest, fetched once and checked.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use knack_hub_api::client::{HubClient, HubError};
use knack_hub_api::{ContentFile, ContentIndex, RefusalCode, RuntimeName};
use knack_memory::OverBudget;
use knack_skill::model::SkillFile;
use knack_skill::tree;

use super::blobs::Blobs;
use crate::files::file_url::encode_path;

/// Requests at once: enough to hide a round trip of about a millisecond, few enough for one hub to bear a hundred
/// gateways that start together.
pub(super) const FETCHES_AT_ONCE: usize = 8;

/// Longest pause before content is requested again that a hub did not give: short, since requests go without it meanwhile.
const HUB_RETRY_LAST: Duration = Duration::from_secs(1);
/// Longest pause before content is requested again for which there was no memory: others return theirs within seconds, or a person
/// has to act.
pub(super) const MEMORY_RETRY_LAST: Duration = Duration::from_secs(10);

/// The files of one digest.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) files: BTreeMap<String, SkillFile>,
}

/// Why files cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum Missing {
    /// The hub did not give them.
    #[error("{0}")]
    Hub(#[from] HubError),
    /// There is no room for them.
    #[error(
        "not enough memory: {0}; raise the memory limit of the gateway, or reduce the number or size of its skills"
    )]
    Memory(#[from] OverBudget),
}

impl Missing {
    /// Longest pause before asking again; `None`: that cannot help.
    pub(super) fn retry_last(&self) -> Option<Duration> {
        match self {
            Self::Hub(error) => is_transient(error).then_some(HUB_RETRY_LAST),
            Self::Memory(over) => (!over.is_final()).then_some(MEMORY_RETRY_LAST),
        }
    }
}

/// Whether files that a catalog names may be had soon though a hub did not give them. Unknown to one replica, they are known to
/// another, whose catalog named them: the one is behind, or they are out of service by now, which the catalog says next.
pub(super) fn is_transient(error: &HubError) -> bool {
    error.is_transient() || matches!(error, HubError::Refused(refusal) if refusal.code == RefusalCode::NotFound)
}

/// Trees in use, by digest.
#[derive(Debug)]
pub(super) struct Content {
    trees: HashMap<String, Arc<Tree>>,
    blobs: Blobs,
}

impl Content {
    /// Nothing yet; file contents that others have are found in `blobs`.
    pub(super) fn new(blobs: Blobs) -> Self {
        Self {
            trees: HashMap::new(),
            blobs,
        }
    }

    pub(super) fn get(&self, digest: &str) -> Option<&Arc<Tree>> {
        self.trees.get(digest)
    }

    /// Has trees that were saved.
    pub(super) fn put(&mut self, trees: impl IntoIterator<Item = (String, Tree)>) {
        let trees = trees.into_iter();
        self.trees.extend(trees.map(|(digest, tree)| (digest, Arc::new(tree))));
    }

    /// The contents of files.
    pub(super) const fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// Forgets contents that no skill uses any more.
    pub(super) fn retain(&mut self, in_use: impl Fn(&str) -> bool) {
        self.trees.retain(|digest, _| in_use(digest));
    }

    /// Fetches the missing ones of `digests`. Returns the errors, by digest.
    pub(super) async fn fetch(
        &mut self,
        client: &HubClient,
        runtime: &RuntimeName,
        digests: Vec<String>,
    ) -> HashMap<String, Missing> {
        let blobs = &self.blobs;
        let missing: Vec<String> = digests
            .into_iter()
            .filter(|digest| !self.trees.contains_key(digest))
            .collect();
        let fetched: Vec<_> = futures::stream::iter(missing)
            .map(|digest| async move {
                let tree = fetch_tree(client, runtime, &digest, blobs).await;
                (digest, tree)
            })
            .buffer_unordered(FETCHES_AT_ONCE)
            .collect()
            .await;
        let mut failed = HashMap::new();
        for (digest, tree) in fetched {
            match tree {
                Ok(tree) => drop(self.trees.insert(digest, Arc::new(tree))),
                Err(error) => drop(failed.insert(digest, error)),
            }
        }
        failed
    }
}

async fn fetch_tree(client: &HubClient, runtime: &RuntimeName, digest: &str, blobs: &Blobs) -> Result<Tree, Missing> {
    let index: ContentIndex = client
        .hub()
        .get(&format!("/v1/content/{digest}?runtime={runtime}"))
        .await?;
    check_index(&index)?;
    let mut files = BTreeMap::new();
    for file in index.files {
        // A change of one file fetches one file, and what another namespace's catalog holds is not fetched again.
        let bytes = match blobs.get(&file.sha256) {
            Some(bytes) => bytes,
            None => fetch_file(client, runtime, digest, &file, blobs).await?,
        };
        files.insert(
            file.path,
            SkillFile {
                bytes,
                executable: file.executable,
            },
        );
    }
    if tree::digest(&files) != digest {
        return Err(Missing::Hub(HubError::Protocol(
            "files that do not match their digest".to_owned(),
        )));
    }
    Ok(Tree { files })
}

/// Before anything is fetched: an index beyond the bounds of a skill is not followed.
pub(super) fn check_index(index: &ContentIndex) -> Result<(), HubError> {
    let bytes = index
        .files
        .iter()
        .fold(0_u64, |sum, file| sum.saturating_add(file.size));
    if index.files.len() > tree::MAX_FILES || bytes > tree::MAX_FOLDER_BYTES as u64 {
        return Err(HubError::Protocol(
            "a skill that exceeds the limits of a skill".to_owned(),
        ));
    }
    Ok(())
}

async fn fetch_file(
    client: &HubClient,
    runtime: &RuntimeName,
    digest: &str,
    file: &ContentFile,
    blobs: &Blobs,
) -> Result<Arc<[u8]>, Missing> {
    let path = encode_path(&file.path);
    let size = usize::try_from(file.size).unwrap_or(usize::MAX);
    let room = blobs.room(size)?;
    let bytes = client
        .hub()
        .get_bytes(
            &format!("/v1/content/{digest}/{path}?runtime={runtime}"),
            size.min(tree::MAX_FOLDER_BYTES),
        )
        .await?;
    let hash: String = knack_skill::digest::sha256(&bytes);
    if hash != file.sha256 {
        let text = "a file that does not match its hash".to_owned();
        return Err(Missing::Hub(HubError::Protocol(text)));
    }
    Ok(blobs.keep(hash, Arc::from(&bytes[..]), room))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_now_is_asked_for_again_and_what_never_will_is_not() {
        let over = |asked_bytes| {
            Missing::Memory(OverBudget {
                asked_bytes,
                total_bytes: 8,
            })
        };
        assert_eq!(over(8).retry_last(), Some(MEMORY_RETRY_LAST));
        assert_eq!(over(9).retry_last(), None);
    }

    #[test]
    fn an_index_beyond_the_bounds_of_a_skill_is_not_followed() {
        let file = |size| ContentFile {
            path: "a".to_owned(),
            size,
            sha256: String::new(),
            executable: false,
        };
        for (files, good) in [
            (vec![file(8 << 20)], true),
            (vec![file((8 << 20) + 1)], false),
            (vec![file(u64::MAX), file(u64::MAX)], false),
            (vec![file(0); tree::MAX_FILES + 1], false),
        ] {
            let index = ContentIndex {
                digest: String::new(),
                files,
            };
            assert_eq!(check_index(&index).is_ok(), good);
        }
    }
}
