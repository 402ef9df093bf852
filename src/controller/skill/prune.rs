//! Which superseded revisions go.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use knack_vocabulary::LABEL_REVISION;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use tracing::debug;

use super::outline::Outline;
use crate::controller::context::Context;
use crate::controller::error::ControllerError;

/// One ConfigMap of some revision.
#[derive(Debug, Clone)]
pub(super) struct Shard {
    pub(super) name: String,
    pub(super) revision: String,
    /// When it was made, to the second, and the version it was made at for those of one second.
    pub(super) created: (Option<Time>, u64),
}

/// The revisions to delete: all but those in service and the newest `keep` of the others.
fn superseded(shards: &[Shard], in_service: &[&str], keep: usize) -> BTreeSet<String> {
    let mut revisions: BTreeMap<&str, Option<&(Option<Time>, u64)>> = BTreeMap::new();
    for shard in shards
        .iter()
        .filter(|shard| !in_service.contains(&shard.revision.as_str()))
    {
        let newest = revisions.entry(&shard.revision).or_default();
        *newest = (*newest).max(Some(&shard.created));
    }
    let mut by_age: Vec<_> = revisions.into_iter().collect();
    // Newest first, then by name, so that the choice is the same every time.
    by_age.sort_by(|a, b| (b.1, b.0).cmp(&(a.1, a.0)));
    by_age
        .into_iter()
        .skip(keep)
        .map(|(revision, _)| revision.to_owned())
        .collect()
}

/// Deletes the ConfigMaps of superseded revisions. A run needs none of them: its files came with its request.
pub(super) async fn prune(
    context: &Context,
    outline: &Outline,
    in_service: &[&str],
    keep: u32,
) -> Result<(), ControllerError> {
    let namespace = outline.namespace();
    let owned = context.cluster_state.owned_config_maps(namespace, outline.uid());
    let shards: Vec<Shard> = owned
        .iter()
        .filter_map(|config_map| {
            Some(Shard {
                name: config_map.name_any(),
                revision: config_map.labels().get(LABEL_REVISION)?.clone(),
                created: (
                    config_map.metadata.creation_timestamp.clone(),
                    config_map
                        .resource_version()
                        .and_then(|version| version.parse().ok())
                        .unwrap_or_default(),
                ),
            })
        })
        .collect();
    let gone = superseded(&shards, in_service, usize::try_from(keep).unwrap_or(usize::MAX));
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), namespace);
    for shard in shards.iter().filter(|shard| gone.contains(&shard.revision)) {
        let what = || format!("delete ConfigMap {namespace}/{}", shard.name);
        match context
            .call(what, api.delete(&shard.name, &DeleteParams::background()))
            .await
        {
            Ok(_) => context.metrics.wrote("ConfigMap"),
            Err(error) if error.status() == Some(404) => {}
            Err(error) => return Err(error),
        }
        debug!(skill = outline.name(), namespace, revision = %shard.revision, "revision pruned");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn shard(revision: &str, number: usize, second: i64) -> Shard {
        Shard {
            name: format!("s-{revision}-{number}"),
            revision: revision.to_owned(),
            created: (
                Some(Time(Timestamp::from_second(second / 10).unwrap())),
                second.unsigned_abs(),
            ),
        }
    }

    #[test]
    fn the_newest_revisions_stay() {
        let shards = [
            shard("a", 0, 1),
            shard("a", 1, 1),
            shard("b", 0, 2),
            shard("c", 0, 3),
            shard("d", 0, 4),
            shard("e", 0, 0),
        ];
        for (in_service, keep, expected) in [
            (&["d"][..], 3, vec!["e"]),
            (&["d"], 1, vec!["a", "b", "e"]),
            (&["d"], 0, vec!["a", "b", "c", "e"]),
            // A rollback serves an old revision: the newer ones count as superseded too.
            (&["e"], 3, vec!["a"]),
            (&["d"], 10, vec![]),
            // An earlier revision that a runtime still serves.
            (&["d", "a"], 0, vec!["b", "c", "e"]),
            (&["d", "e"], 2, vec!["a"]),
        ] {
            let gone: Vec<_> = superseded(&shards, in_service, keep).into_iter().collect();
            assert_eq!(gone, expected, "{in_service:?} {keep}");
        }
    }
}
