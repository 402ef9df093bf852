//! The store on an API server that ends after any of its writes.

mod fake;
mod offered;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::Skill;
use knack_memory::MemoryBudget;
use knack_registry::{Draft, Files, Mode, Owner, Page, SkillEntry, Stamp, Store as _, StoreError};
use knack_skill::model::SkillFile;
use knack_skill::tree::MAX_FOLDER_BYTES;
use knack_vocabulary::{ANNOTATION_UPLOAD, LABEL_UPLOAD};
use kube::api::PostParams;
use kube::runtime::watcher::Event;
use serde_json::json;

use fake::Fake;

use super::caller_store::{CallerStore, Shared};
use super::cluster::{Actor, Cluster, SKILLS_MAX};
use super::objects::tests::{object, uploaded};
use super::objects::{UploadedSkill, version_name, version_of};
use super::sweep::sweep;
use crate::account_auth::{AccessReviewer, ServiceAccountCaller};

/// Who asks, from where.
const OF: Actor<'_> = Actor {
    namespace: "team",
    username: "system:serviceaccount:team:app",
};
/// Later than what a change may still be making, microseconds.
const LATER: i64 = 11 * 60 * 1_000_000;

fn draft(name: &str, text: &str) -> Draft {
    let document = format!("---\nname: {name}\ndescription: d\n---\n{text}");
    let file = SkillFile {
        bytes: document.into_bytes().into(),
        executable: false,
    };
    let files = Files::from([("SKILL.md".to_owned(), file)]);
    knack_registry::fixture::draft(name, files)
}

/// A registry as it is after its start.
async fn started(fake: &Fake) -> Cluster {
    let cluster = Cluster::new(fake.client().await);
    cluster.apply(None, Event::Init);
    for skill in skills(fake) {
        cluster.apply(None, Event::InitApply(skill));
    }
    cluster.apply(None, Event::InitDone);
    cluster
}

fn skills(fake: &Fake) -> Vec<Skill> {
    let all = fake.all("skills").into_values();
    all.map(|skill| serde_json::from_value(skill).unwrap()).collect()
}

/// What a skill is for its callers: versions with the text that they have, and the default; `None`: there is none.
async fn state(cluster: &Cluster, name: &str) -> Option<(BTreeMap<u32, String>, Option<u32>, Option<Mode>)> {
    let entry = cluster.find("team", name)?;
    let mut texts = BTreeMap::new();
    for version in &entry.versions {
        let memory = MemoryBudget::new(64 << 20);
        let read = cluster.content("team", &entry.id, version.number, &memory).await;
        let (files, _share) = read.unwrap();
        let text = String::from_utf8(files["SKILL.md"].bytes.to_vec()).unwrap();
        texts.insert(version.number, text.rsplit('\n').next().unwrap().to_owned());
    }
    Some((texts, entry.default, entry.mode))
}

/// That every object is one that an entry names, and that all of those are there.
fn assert_nothing_is_left(fake: &Fake) {
    let skills = skills(fake);
    let (mut maps, mut versions) = (BTreeSet::new(), BTreeSet::new());
    for skill in &skills {
        if let Some(uploaded) = UploadedSkill::of(skill) {
            maps.extend(uploaded.all_config_maps());
            let objects = uploaded.objects().unwrap();
            assert_eq!(skill.spec, objects.main);
            versions.extend(
                objects
                    .versions
                    .keys()
                    .map(|number| (uploaded.entry.name.clone(), *number)),
            );
            for other in skills.iter().filter(|other| version_of(&other.metadata).is_some()) {
                let (of, number) = version_of(&other.metadata).unwrap();
                if of == uploaded.entry.name {
                    assert_eq!(Some(&other.spec), objects.versions.get(&number), "{of} {number}");
                }
            }
        }
    }
    let there: BTreeSet<String> = fake.all("configmaps").into_keys().collect();
    assert_eq!(there, maps, "ConfigMaps");
    assert!(
        fake.all("configmaps")
            .values()
            .all(|map| map["metadata"]["ownerReferences"][0]["name"] == "draw")
    );
    let there: BTreeSet<_> = skills.iter().filter_map(|skill| version_of(&skill.metadata)).collect();
    assert_eq!(there, versions, "objects of versions");
}

/// A change of the skill `draw`.
#[derive(Debug, Clone, Copy)]
enum Step {
    Create,
    Add { default: bool },
    SetDefault(u32),
    SetMode,
    DeleteVersion(u32),
    Delete,
}

async fn take(cluster: &Cluster, step: Step) -> Result<SkillEntry, StoreError> {
    let id = cluster.find("team", "draw").map(|entry| entry.id).unwrap_or_default();
    match step {
        Step::Create => cluster.create(OF, None, draft("draw", "one")).await,
        Step::Add { default } => cluster.add_version(OF, &id, draft("draw", "more"), default).await,
        Step::SetDefault(number) => cluster.set_default(OF, &id, number).await,
        Step::SetMode => cluster.set_mode(OF, &id, Mode::Off).await,
        Step::DeleteVersion(number) => cluster.delete_version(OF, &id, number).await,
        Step::Delete => cluster.delete("team", &id).await,
    }
}

/// The way to the state before the last step, and that step.
const WAYS: [&[Step]; 8] = [
    &[Step::Create],
    &[Step::Create, Step::Add { default: true }],
    &[Step::Create, Step::Add { default: false }],
    &[Step::Create, Step::Add { default: false }, Step::SetDefault(2)],
    &[Step::Create, Step::Add { default: true }, Step::SetMode],
    &[Step::Create, Step::Add { default: true }, Step::DeleteVersion(2)],
    &[Step::Create, Step::DeleteVersion(1)],
    &[Step::Create, Step::Add { default: true }, Step::Delete],
];

/// A replica of an API server without anything, after these steps.
async fn after(fake: &Fake, steps: &[Step]) -> Cluster {
    let cluster = started(fake).await;
    for step in steps {
        take(&cluster, *step).await.unwrap();
    }
    cluster
}

/// A replica that has read what the sweep of another one left: a watch would tell it.
async fn swept(fake: &Fake) -> Cluster {
    let cluster = started(fake).await;
    let swept = Box::pin(sweep(&cluster, &[None], Stamp::of_now().now + LATER)).await;
    swept.outcome.unwrap();
    started(fake).await
}

#[tokio::test]
async fn a_change_is_whole_or_absent_after_the_end_at_any_of_its_writes() {
    for way in WAYS {
        let (last, before) = way.split_last().unwrap();
        let whole = state(&after(&Fake::default(), way).await, "draw").await;
        for end in 0..20 {
            let fake = Fake::default();
            let cluster = after(&fake, before).await;
            let old = state(&cluster, "draw").await;
            fake.0.lock().unwrap().writes_left = Some(end);
            let done = take(&cluster, *last).await;
            let is_over = fake.0.lock().unwrap().writes_left.unwrap() > 0;
            fake.0.lock().unwrap().writes_left = None;
            drop(cluster);
            let new = state(&swept(&fake).await, "draw").await;
            assert_nothing_is_left(&fake);
            // Where the answer is lost, the change need not be.
            assert!(new == whole || (done.is_err() && new == old), "{way:?} {end}: {new:?}");
            if is_over {
                assert!(done.is_ok());
                break;
            }
        }
    }
}

/// A time-out of etcd is a 500 and one of a load balancer a 504, which kube repeats by itself: the write is then a conflict with
/// itself.
#[tokio::test]
async fn a_write_whose_answer_is_lost_is_kept_and_reported_as_it_is() {
    for way in WAYS {
        let (last, before) = way.split_last().unwrap();
        let whole = state(&after(&Fake::default(), way).await, "draw").await;
        for status in [500, 504, 409] {
            for nth in 0..20 {
                let fake = Fake::default();
                let cluster = after(&fake, before).await;
                let old = state(&cluster, "draw").await;
                fake.0.lock().unwrap().lost = Some((nth, status));
                let done = take(&cluster, *last).await;
                let was_lost = fake.0.lock().unwrap().lost.take().is_none();
                let new = state(&swept(&fake).await, "draw").await;
                assert_nothing_is_left(&fake);
                let expected = if done.is_ok() { &whole } else { &old };
                assert_eq!(new, *expected, "{way:?} {status} {nth}: {done:?}");
                // What is there already was written before: that is known without a doubt.
                assert!(done.is_ok() || status == 500, "{way:?} {status} {nth}: {done:?}");
                if !was_lost {
                    break;
                }
            }
        }
    }
}

/// In the middle of a change two objects have ids of one version, which the controller says in the status of each.
#[tokio::test]
async fn a_status_that_is_written_meanwhile_leaves_no_object_behind() {
    for way in WAYS {
        let (last, before) = way.split_last().unwrap();
        let fake = Fake::default();
        let cluster = after(&fake, before).await;
        fake.0.lock().unwrap().status_writes = 2;
        take(&cluster, *last).await.unwrap();
        assert_nothing_is_left(&fake);
    }
}

#[tokio::test]
async fn what_was_written_is_read_at_once_and_old_content_goes() {
    let fake = Fake::default();
    let cluster = started(&fake).await;
    for step in [Step::Create, Step::Add { default: false }, Step::Add { default: true }] {
        take(&cluster, step).await.unwrap();
    }
    let (texts, default, _) = state(&cluster, "draw").await.unwrap();
    assert_eq!((texts.len(), texts[&3].as_str(), default), (3, "more", Some(3)));
    assert_nothing_is_left(&fake);
    take(&cluster, Step::DeleteVersion(1)).await.unwrap();
    assert_eq!(fake.all("configmaps").len(), 2);
    assert_nothing_is_left(&fake);
    take(&cluster, Step::Delete).await.unwrap();
    assert_eq!(state(&cluster, "draw").await, None);
    assert!(
        fake.0.lock().unwrap().objects.is_empty(),
        "with its owner everything goes"
    );
}

#[tokio::test]
async fn of_two_writers_of_one_name_one_wins_and_the_other_leaves_nothing() {
    let fake = Fake::default();
    // Two replicas: neither knows of the other's write.
    let (one, other) = (started(&fake).await, started(&fake).await);
    let (first, second) = tokio::join!(take(&one, Step::Create), take(&other, Step::Create));
    let (won, lost) = if first.is_ok() {
        (first, second)
    } else {
        (second, first)
    };
    let entry = won.unwrap();
    let Err(StoreError::NameTaken { id, .. }) = lost else {
        panic!("{lost:?}")
    };
    assert_eq!(id, entry.id);
    assert_nothing_is_left(&fake);
    // Both change it: neither change is lost.
    let (one, other) = (started(&fake).await, started(&fake).await);
    let add = Step::Add { default: true };
    let (first, second) = tokio::join!(take(&one, add), take(&other, add));
    first.unwrap();
    second.unwrap();
    let cluster = started(&fake).await;
    let swept = Box::pin(sweep(&cluster, &[None], Stamp::of_now().now + LATER)).await;
    swept.outcome.unwrap();
    let cluster = started(&fake).await;
    assert_eq!(state(&cluster, "draw").await.unwrap().0.len(), 3);
    let versions = cluster.find("team", "draw").unwrap().versions;
    assert!(versions.is_sorted_by_key(|version| &version.id), "{versions:?}");
    assert_nothing_is_left(&fake);
}

/// A policy of the cluster refuses the registry every ConfigMap that is no upload, and a tenant may put the label on one.
#[tokio::test]
async fn a_sweep_goes_on_behind_an_object_that_is_refused_and_names_the_first() {
    let fake = Fake::default();
    let more = |default| Step::Add { default };
    let cluster = after(&fake, &[Step::Create, more(false), more(true)]).await;
    let leftovers = [("aaa", "a"), ("team", "other-upload-1"), ("zzz", "z-upload-1")];
    for (namespace, name) in leftovers {
        let maps: kube::Api<ConfigMap> = kube::Api::namespaced(cluster.client.clone(), namespace);
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        map.metadata.labels = Some(BTreeMap::from([(LABEL_UPLOAD.to_owned(), "other".to_owned())]));
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let own: Vec<String> = fake.all("configmaps").into_keys().collect();
    let own: Vec<String> = own.into_iter().filter(|name| name.starts_with("draw-")).collect();
    let version = |number| version_name("draw", number, 0);
    {
        let mut held = fake.0.lock().unwrap();
        for name in &own {
            let key = ("configmaps".to_owned(), "team".to_owned(), name.clone());
            held.objects.get_mut(&key).unwrap()["metadata"]["ownerReferences"] = json!([]);
        }
        let is_version = |key: &(String, String, String)| [version(1), version(2)].contains(&key.2);
        held.objects.retain(|key, _| !is_version(key));
        held.denied = BTreeSet::from(["a".to_owned(), own[0].clone(), version(1)]);
    }
    let denied = Box::pin(sweep(&started(&fake).await, &[None], Stamp::of_now().now + LATER)).await;
    let error = denied.outcome.unwrap_err().to_string();
    assert!(error.contains(&own[0]), "{error}");
    assert_eq!(denied.removed, 2);
    let maps = fake.all("configmaps");
    let left = leftovers.map(|(_, name)| maps.contains_key(name));
    assert_eq!(left, [true, false, false]);
    let is_owned = |name: &String| maps[name]["metadata"]["ownerReferences"][0]["name"] == "draw";
    assert!(!is_owned(&own[0]) && own[1..].iter().all(is_owned));
    let skills = fake.all("skills");
    let there = [1, 2].map(|number| skills.contains_key(&version(number)));
    assert_eq!(there, [false, true]);

    fake.0.lock().unwrap().denied.clear();
    swept(&fake).await;
    assert_nothing_is_left(&fake);
}

#[tokio::test]
async fn what_others_manage_is_never_written() {
    let fake = Fake::default();
    let cluster = started(&fake).await;
    take(&cluster, Step::Create).await.unwrap();
    let skill = json!({"metadata": {"name": "applied"}, "spec": {"source": {"inline": {"files": {}}}}});
    let api: kube::Api<Skill> = kube::Api::namespaced(cluster.client.clone(), "team");
    let mut applied: Skill = serde_json::from_value(json!({"apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
        "metadata": skill["metadata"], "spec": skill["spec"]}))
    .unwrap();
    let by = kube::api::PostParams {
        field_manager: Some("kubectl-create".to_owned()),
        ..kube::api::PostParams::default()
    };
    applied = api.create(&by, &applied).await.unwrap();
    cluster.note(&applied);
    // Somebody edits an uploaded one.
    let key = ("skills".to_owned(), "team".to_owned(), "draw".to_owned());
    fake.0.lock().unwrap().objects.get_mut(&key).unwrap()["metadata"]["managedFields"][0]["manager"] =
        "kubectl-edit".into();
    let writes = fake.0.lock().unwrap().writes;
    for (name, by) in [("applied", "kubectl-create"), ("draw", "kubectl-edit")] {
        let id = cluster.find("team", name).unwrap().id;
        for refused in [
            cluster.add_version(OF, &id, draft(name, "x"), true).await,
            cluster.set_mode(OF, &id, Mode::On).await,
            cluster.delete("team", &id).await,
        ] {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains(by) || text.contains("not found"), "{name}: {text}");
        }
    }
    assert_eq!(fake.0.lock().unwrap().writes, writes, "nothing was written");
    let taken = cluster.create(OF, None, draft("applied", "x")).await;
    assert!(matches!(taken, Err(StoreError::NameTaken { .. })), "{taken:?}");
}

/// Objects and the labels of their ConfigMaps have shorter names than folders.
#[tokio::test]
async fn a_name_that_no_object_has_is_refused_before_anything_is_made() {
    let fake = Fake::default();
    let cluster = started(&fake).await;
    let refused = cluster.create(OF, None, draft(&"a".repeat(64), "x")).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("has 64 characters, and 63 are the most"), "{text}");
    assert_eq!(fake.0.lock().unwrap().writes, 0);
    cluster.create(OF, None, draft(&"a".repeat(63), "x")).await.unwrap();
}

fn caller() -> ServiceAccountCaller {
    ServiceAccountCaller {
        namespace: "team".to_owned(),
        service_account: "app".to_owned(),
        uid: String::new(),
        username: OF.username.to_owned(),
        groups: Vec::new(),
        extra: BTreeMap::new(),
        expires: u64::MAX,
        acting_for: None,
    }
}

/// A list of Agent Flow's API reads the document of every skill: together they may be larger than the memory for downloads.
#[tokio::test]
async fn documents_are_read_one_after_the_other_within_the_memory_for_downloads() {
    let fake = Fake::default();
    let cluster = started(&fake).await;
    for name in ["one", "two", "three"] {
        cluster
            .create(OF, None, draft(name, &"x".repeat(400 << 10)))
            .await
            .unwrap();
    }
    let all = Page {
        after: None,
        limit: 9,
        newest_first: false,
    };
    let entries = cluster.list("team", &all).unwrap().items;
    let shared = Shared {
        rights: AccessReviewer::new(cluster.client.clone()),
        cluster,
        // One of them, as a zip is made of it, and not yet another one while its size is unknown.
        downloads: MemoryBudget::new(2 << 20),
    };
    let store = CallerStore::new(Arc::new(shared), caller());
    let owner = Owner::namespace("team");
    for entry in &entries {
        let document = store.document(&owner, &entry.id, 1).await.unwrap().unwrap();
        assert!(document.contains(&entry.name), "{document}");
    }
    store.content(&owner, &entries[0].id, 1).await.unwrap();
    // A download keeps its share until it is sent.
    let refused = store.content(&owner, &entries[1].id, 1).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
}

/// Whoever may edit the Skill says how large its versions are.
#[tokio::test]
async fn a_version_that_is_larger_than_its_entry_says_is_refused_and_holds_no_memory() {
    let fake = Fake::default();
    let mut large = draft("draw", "x");
    let noise: Vec<u8> = (0..4_u32 << 20).map(|number| number.to_le_bytes()[1] | 0x80).collect();
    let file = SkillFile {
        bytes: noise.into(),
        executable: false,
    };
    large.files.insert("large.bin".to_owned(), file);
    let large = knack_registry::fixture::draft("draw", large.files);
    let (real, made) = (large.bytes, started(&fake).await.create(OF, None, large).await.unwrap());
    for (said, is_read) in [(real, true), (1, false), (MAX_FOLDER_BYTES as u64, true)] {
        let text = |object: &serde_json::Value| object["metadata"]["annotations"][ANNOTATION_UPLOAD].clone();
        for (key, object) in &mut fake.0.lock().unwrap().objects {
            if key.0 == "skills" {
                let mut uploaded: UploadedSkill = serde_json::from_str(text(object).as_str().unwrap()).unwrap();
                uploaded.entry.versions[0].bytes = said;
                object["metadata"]["annotations"][ANNOTATION_UPLOAD] = serde_json::to_string(&uploaded).unwrap().into();
            }
        }
        let cluster = started(&fake).await;
        let shared = Shared {
            rights: AccessReviewer::new(cluster.client.clone()),
            cluster,
            downloads: MemoryBudget::new(64 << 20),
        };
        let downloads = shared.downloads.clone();
        let store = CallerStore::new(Arc::new(shared), caller());
        let read = store.content(&Owner::namespace("team"), &made.id, 1).await;
        if is_read {
            assert_eq!(read.unwrap().len(), 2);
            let held = downloads.held_bytes() as u64;
            assert!((2 * real..2 * real + (2 << 10)).contains(&held), "{said}: {held}");
        } else {
            let error = read.unwrap_err().to_string();
            assert!(error.contains("hold more than the 1 bytes"), "{error}");
            assert_eq!(downloads.held_bytes(), 0);
        }
    }
}

/// A list of ten thousand skills. Beside it, what copying its entries takes: no page is faster than that.
#[tokio::test]
async fn a_page_of_ten_thousand_skills_takes_milliseconds() {
    let cluster = Cluster::new(Fake::default().client().await);
    for number in 0..SKILLS_MAX {
        let skill = object(&uploaded(&format!("skill-{number}"), &[1, 2], Some(2)));
        cluster.apply(None, Event::Apply(skill));
    }
    let mut page = Page {
        after: None,
        limit: 100,
        newest_first: true,
    };
    let (mut times, mut floors, mut listed) = (Vec::new(), Vec::new(), 0);
    loop {
        let since = Instant::now();
        let paged = cluster.list("team", &page).unwrap();
        times.push(since.elapsed());
        let since = Instant::now();
        let copies = std::hint::black_box(paged.items.clone());
        floors.push(since.elapsed());
        listed += copies.len();
        page.after = copies.last().map(|entry| entry.id.clone());
        if !paged.more {
            break;
        }
    }
    times.sort_unstable();
    floors.sort_unstable();
    let (half, floor) = (times[times.len() / 2], floors[floors.len() / 2]);
    println!("a page of 100 of {SKILLS_MAX} skills: p50 {half:?}, floor {floor:?}");
    assert_eq!(listed, SKILLS_MAX);
    assert!(
        half <= std::time::Duration::from_millis(20) + 10 * floor,
        "{half:?}, floor {floor:?}"
    );
    let refused = cluster.create(OF, None, draft("one-more", "x")).await;
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
}
