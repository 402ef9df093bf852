//! What ended changes have left: ConfigMaps that no entry names, versions without their object. Every replica may do it, since
//! every replica does the same.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use knack_vocabulary::LABEL_UPLOAD;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt as _};

use super::cluster::Cluster;
use super::content::Contents;
use super::failure::{FirstFailure, is_conflict, is_missing};
use super::index::SkillIndex;
use super::objects::{UploadedSkill, version_of};
use super::registry_object::ObjectKind;
use super::skills::Skills;
use crate::api_call::{CallError, call};
use crate::cluster_reader::watch;

/// Pause between two sweeps.
pub(super) const EVERY: Duration = Duration::from_mins(5);
/// Age from which an object without a reference is a leftover; a change takes less.
const LEFT_AFTER_MICROS: i64 = 10 * 60 * 1_000_000;
/// Objects of one page of a list.
const PAGE: u32 = 500;

/// A ConfigMap of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UploadMap {
    namespace: String,
    name: String,
    /// The skill of its label.
    skill: String,
    uid: String,
    has_owner: bool,
    /// Unix time in microseconds.
    created: i64,
}

/// The work of a sweep.
#[derive(Debug, Default, PartialEq, Eq)]
struct Work {
    /// ConfigMaps that a skill names and does not own.
    give: Vec<UploadMap>,
    /// ConfigMaps without a reference.
    delete: Vec<UploadMap>,
    /// Skills, by namespace and name, whose other objects differ from their entry.
    bring: Vec<(String, String)>,
}

/// What is to do, by what is known.
fn decide(index: &SkillIndex, found: Vec<UploadMap>, now: i64) -> Work {
    let mut work = Work::default();
    for one in found {
        let is_named = index
            .named(&one.namespace, &one.skill)
            .is_some_and(|known| match &known.kind {
                ObjectKind::Uploaded(uploaded) => uploaded.all_config_maps().any(|name| name == one.name),
                ObjectKind::Applied(_) | ObjectKind::Version(..) => false,
            });
        if is_named && !one.has_owner {
            work.give.push(one);
        } else if !is_named && now - one.created > LEFT_AFTER_MICROS {
            work.delete.push(one);
        }
    }
    let mut beside: VersionsBySkill<'_> = VersionsBySkill::new();
    for known in index.all() {
        if let ObjectKind::Version(of) = &known.kind {
            let all = beside.entry((&known.namespace, &of.main)).or_default();
            all.push((
                of.number,
                of.owner.as_deref(),
                &of.spec,
                now - known.created > LEFT_AFTER_MICROS,
            ));
        }
    }
    for known in index.all() {
        let ObjectKind::Uploaded(uploaded) = &known.kind else {
            continue;
        };
        let there = beside.remove(&(&known.namespace, &known.name)).unwrap_or_default();
        if !matches_entry(uploaded, &known.uid, &there) {
            work.bring.push((known.namespace.clone(), known.name.clone()));
        }
    }
    work
}

/// Objects of versions by namespace and name of their skill: number, uid of the owner, spec, and whether it is old.
type VersionsBySkill<'a> =
    std::collections::BTreeMap<(&'a String, &'a String), Vec<(u32, Option<&'a str>, &'a knack_api::SkillSpec, bool)>>;

/// Whether the objects of a skill are those of its entry, without older ones.
fn matches_entry(
    uploaded: &UploadedSkill,
    uid: &str,
    there: &[(u32, Option<&str>, &knack_api::SkillSpec, bool)],
) -> bool {
    let Ok(objects) = uploaded.objects() else { return true };
    let own = || there.iter().filter(|(_, owner, ..)| *owner == Some(uid));
    let all_there = objects
        .versions
        .iter()
        .all(|(number, spec)| own().any(|(there, _, found, _)| there == number && *found == spec));
    all_there && own().all(|(number, _, _, is_old)| !is_old || objects.versions.contains_key(number))
}

/// What a sweep did.
#[derive(Debug)]
pub(super) struct Swept {
    /// How many ConfigMaps were removed.
    pub(super) removed: u64,
    /// The first failure, behind which the sweep went on: what an admission policy, or a tenant's object, refuses to one sweep it
    /// refuses to each, and what stands behind it in the lists is of other tenants.
    pub(super) outcome: Result<(), CallError>,
}

/// One sweep of the namespaces of these scopes (`None`: all).
pub(super) async fn sweep(cluster: &Cluster, scopes: &[Option<String>], now: i64) -> Swept {
    let (mut found, mut failed) = (Vec::new(), FirstFailure::default());
    for scope in scopes {
        let listed = failed.note(list(cluster, scope.as_deref()).await);
        found.extend(listed.into_iter().flatten());
    }
    let work = cluster.read(|index| decide(index, found, now));
    for one in work.give {
        failed.note(unless_gone(give(cluster, one).await));
    }
    let mut removed = 0;
    for one in work.delete {
        removed += u64::from(failed.note(delete(cluster, &one).await) == Some(true));
    }
    for (namespace, name) in work.bring {
        failed.note(unless_gone(Box::pin(bring(cluster, &namespace, &name, now)).await));
    }
    Swept {
        removed,
        outcome: failed.done(),
    }
}

/// Makes a skill the owner of a ConfigMap that it names.
async fn give(cluster: &Cluster, one: UploadMap) -> Result<(), CallError> {
    let skills = Skills::of(&cluster.client, &one.namespace);
    if let Some((main, uploaded)) = named(&skills, &one.skill).await?
        && uploaded.all_config_maps().any(|name| name == one.name)
    {
        let contents = Contents::of(&cluster.client, &one.namespace);
        contents.give_to([one.name].into_iter(), &main).await?;
    }
    Ok(())
}

/// Removes a ConfigMap unless its skill names it. `false`: it does.
async fn delete(cluster: &Cluster, one: &UploadMap) -> Result<bool, CallError> {
    let skills = Skills::of(&cluster.client, &one.namespace);
    let still = named(&skills, &one.skill).await?;
    // The index may lag; the object itself does not.
    if still.is_some_and(|(_, uploaded)| uploaded.all_config_maps().any(|name| name == one.name)) {
        return Ok(false);
    }
    let api: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &one.namespace);
    let params = DeleteParams::background().preconditions(Preconditions {
        uid: Some(one.uid.clone()),
        resource_version: None,
    });
    let what = || format!("delete ConfigMap {}/{}", one.namespace, one.name);
    unless_gone(call(what, api.delete(&one.name, &params)).await.map(|_| ()))?;
    Ok(true)
}

/// Makes the other objects of a skill those of its entry.
async fn bring(cluster: &Cluster, namespace: &str, name: &str, now: i64) -> Result<(), CallError> {
    let skills = Skills::of(&cluster.client, namespace);
    let Some((main, uploaded)) = named(&skills, name).await? else {
        return Ok(());
    };
    let is_old = |meta: &knack_api::Skill| {
        let created = meta.metadata.creation_timestamp.as_ref();
        created.is_none_or(|time| now - time.0.as_microsecond() > LEFT_AFTER_MICROS)
    };
    let is_over = |object: &knack_api::Skill, _| version_of(&object.metadata).is_some() && is_old(object);
    skills.bring(&main, &uploaded, is_over).await
}

/// An uploaded skill as it is now; `None`: there is none of that name.
async fn named(skills: &Skills, name: &str) -> Result<Option<(knack_api::Skill, UploadedSkill)>, CallError> {
    match skills.get(name).await {
        Ok(main) => Ok(UploadedSkill::of(&main).map(|uploaded| (main, uploaded))),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Another replica, or a deletion of the skill, may be faster.
fn unless_gone(done: Result<(), CallError>) -> Result<(), CallError> {
    match done {
        Err(error) if is_missing(&error) || is_conflict(&error) => Ok(()),
        done => done,
    }
}

async fn list(cluster: &Cluster, scope: Option<&str>) -> Result<Vec<UploadMap>, CallError> {
    let api: Api<ConfigMap> = watch::api(&cluster.client, scope);
    let mut params = ListParams::default().labels(LABEL_UPLOAD).limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = call(|| "list ConfigMaps of uploads".to_owned(), api.list_metadata(&params)).await?;
        found.extend(page.items.iter().filter_map(found_of));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

fn found_of(meta: &PartialObjectMeta<ConfigMap>) -> Option<UploadMap> {
    Some(UploadMap {
        namespace: meta.namespace()?,
        name: meta.name_any(),
        skill: meta.labels().get(LABEL_UPLOAD)?.clone(),
        uid: meta.uid()?,
        has_owner: !meta.owner_references().is_empty(),
        created: meta.creation_timestamp()?.0.as_microsecond(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use knack_api::Skill;
    use kube::runtime::watcher::Event;

    use super::*;
    use crate::registry::objects::tests::{object, uploaded};
    use crate::registry::objects::{version_name, version_object};

    const NOW: i64 = 2 * LEFT_AFTER_MICROS;

    fn found(name: &str, skill: &str, has_owner: bool, created: i64) -> UploadMap {
        UploadMap {
            namespace: "team".to_owned(),
            name: name.to_owned(),
            skill: skill.to_owned(),
            uid: String::new(),
            has_owner,
            created,
        }
    }

    fn index(skills: Vec<Skill>) -> SkillIndex {
        let mut index = SkillIndex::default();
        for skill in skills {
            index.apply(None, Event::Apply(skill), Instant::now());
        }
        index
    }

    #[test]
    fn unreferenced_objects_go_once_they_are_old_and_referenced_ones_get_their_owner() {
        let draw = uploaded("draw", &[1], Some(1));
        let names: Vec<String> = draw.all_config_maps().collect();
        let index = index(vec![object(&draw)]);
        let work = decide(
            &index,
            vec![
                found(&names[0], "draw", true, 0),
                found(&names[1], "draw", false, 0),
                found("draw-upload-2-x", "draw", true, 0),
                found("draw-upload-3-x", "draw", true, NOW - 1),
                found("other-upload-1-x", "other", false, 0),
                // A label of one skill and the name of another: it belongs to neither.
                found(&names[0], "other", true, 0),
            ],
            NOW,
        );
        let gone: Vec<_> = work
            .delete
            .iter()
            .map(|one| (one.name.as_str(), one.skill.as_str()))
            .collect();
        assert_eq!(
            gone,
            [
                ("draw-upload-2-x", "draw"),
                ("other-upload-1-x", "other"),
                (names[0].as_str(), "other")
            ]
        );
        assert_eq!(work.give.iter().map(|one| &one.name).collect::<Vec<_>>(), [&names[1]]);
        assert!(work.bring.is_empty());
    }

    #[test]
    fn a_skill_is_brought_to_its_entry_unless_a_change_may_be_under_way() {
        let draw = uploaded("draw", &[1, 2], Some(2));
        let main = object(&draw);
        let of = |number: u32, spec: u32, created: i64| -> Skill {
            let spec = draw.objects().unwrap().versions.get(&spec).cloned();
            let spec = spec.unwrap_or_else(|| draw.objects().unwrap().main);
            let mut object = version_object(&main, number, &version_name("draw", number, 0), spec);
            object.metadata.uid = Some(format!("v{number}"));
            object.metadata.resource_version = Some("1".to_owned());
            let time = k8s_openapi::jiff::Timestamp::from_microsecond(created).unwrap();
            object.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time));
            object
        };
        for (beside, expected) in [
            (vec![], true),
            (vec![of(1, 1, 0)], false),
            (vec![of(1, 9, 0)], true),
            // Made for a commit that comes, or came not.
            (vec![of(1, 1, 0), of(3, 1, NOW - 1)], false),
            (vec![of(1, 1, 0), of(3, 1, 0)], true),
        ] {
            let all = [vec![main.clone()], beside.clone()].concat();
            let work = decide(&index(all), Vec::new(), NOW);
            assert_eq!(!work.bring.is_empty(), expected, "{beside:?}");
        }
    }
}
