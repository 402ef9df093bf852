//! What the registry knows of the cluster's Skills: an index fed by watch events and its own writes. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use knack_api::Skill;
use knack_registry::{ID_PREFIX, Page, Paged, SkillEntry};
use kube::runtime::watcher::Event;
use uuid::Uuid;

use super::registry_object::{ObjectKind, RegistryObject};
use crate::cluster_reader::decoded::Undecoded;

/// How long a deleted object counts as deleted even if a watch still reports it: a watch may lag.
const GONE_FOR: Duration = Duration::from_mins(10);

/// The position of a skill in a list: the millisecond of its creation, then its id.
type ListPosition = (i64, String);

/// The Skills of the cluster.
#[derive(Debug, Default)]
pub(super) struct SkillIndex {
    namespaces: BTreeMap<String, NamespaceSkills>,
    /// Uids of objects that were deleted here.
    gone: HashMap<String, Instant>,
    /// Lists that are being read, by what is listed.
    pending: BTreeMap<Option<String>, BTreeSet<(String, String)>>,
    /// Lists that were read to their end.
    complete: BTreeSet<Option<String>>,
}

/// The Skills of a namespace.
#[derive(Debug, Default)]
struct NamespaceSkills {
    objects: BTreeMap<String, Arc<RegistryObject>>,
    /// Names of skills, versions left out, in the order of their making.
    order: BTreeMap<ListPosition, String>,
    /// Their positions by id.
    positions: HashMap<String, ListPosition>,
    /// Bytes of all uploaded versions.
    bytes: u64,
}

impl SkillIndex {
    /// How many lists were read to their end.
    pub(super) fn complete(&self) -> usize {
        self.complete.len()
    }

    /// Applies an event of the watch over `scope` (a namespace; `None`: all).
    pub(super) fn apply(&mut self, scope: Option<&str>, event: Event<Skill>, now: Instant) {
        let scope = scope.map(str::to_owned);
        match event {
            Event::Init => {
                self.pending.insert(scope, BTreeSet::new());
            }
            Event::InitApply(skill) => {
                if let Some(known) = RegistryObject::of(&skill) {
                    let key = (known.namespace.clone(), known.name.clone());
                    self.pending.entry(scope).or_default().insert(key);
                    self.put(known);
                }
            }
            Event::InitDone => {
                let listed = self.pending.remove(&scope).unwrap_or_default();
                let of_scope = |namespace: &str| scope.as_deref().is_none_or(|scope| scope == namespace);
                for (namespace, space) in &mut self.namespaces {
                    if of_scope(namespace) {
                        let missing = |name: &&String| !listed.contains(&(namespace.clone(), (*name).clone()));
                        let gone: Vec<String> = space.objects.keys().filter(missing).cloned().collect();
                        for name in gone {
                            space.remove(&name);
                        }
                    }
                }
                self.complete.insert(scope);
            }
            Event::Apply(skill) => {
                if let Some(known) = RegistryObject::of(&skill) {
                    self.put(known);
                }
            }
            Event::Delete(skill) => {
                if let Some(known) = RegistryObject::of(&skill) {
                    self.drop_object(&known.namespace, &known.name, &known.uid);
                    self.gone.remove(&known.uid);
                }
            }
        }
        self.gone.retain(|_, at| now.duration_since(*at) < GONE_FOR);
    }

    /// Applies an event of an object that this version cannot decode: its last known state stays until it is gone.
    pub(super) fn apply_undecoded(&mut self, scope: Option<&str>, event: &Undecoded) {
        let (Undecoded::Listed(meta) | Undecoded::Deleted(meta)) = event else {
            return;
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name, uid) = (text(&meta.namespace), text(&meta.name), text(&meta.uid));
        if matches!(event, Undecoded::Deleted(_)) {
            self.drop_object(&namespace, &name, &uid);
            self.gone.remove(&uid);
        } else if self.named(&namespace, &name).is_some_and(|known| known.uid == uid) {
            self.pending
                .entry(scope.map(str::to_owned))
                .or_default()
                .insert((namespace, name));
        }
    }

    /// Keeps an object, unless a newer state of it is known, or it was deleted here.
    pub(super) fn put(&mut self, known: RegistryObject) {
        if self.gone.contains_key(&known.uid) {
            return;
        }
        let space = self.namespaces.entry(known.namespace.clone()).or_default();
        let newer = |there: &Arc<RegistryObject>| there.resource_version > known.resource_version;
        if !space.objects.get(&known.name).is_some_and(newer) {
            space.put(known);
        }
    }

    /// Forgets an object that was deleted here.
    pub(super) fn forget(&mut self, known: &RegistryObject, now: Instant) {
        self.drop_object(&known.namespace, &known.name, &known.uid);
        self.gone.insert(known.uid.clone(), now);
    }

    fn drop_object(&mut self, namespace: &str, name: &str, uid: &str) {
        let Some(space) = self.namespaces.get_mut(namespace) else {
            return;
        };
        if space.objects.get(name).is_some_and(|there| there.uid == uid) {
            space.remove(name);
        }
        if space.objects.is_empty() {
            self.namespaces.remove(namespace);
        }
    }

    /// An object by name.
    pub(super) fn named(&self, namespace: &str, name: &str) -> Option<&Arc<RegistryObject>> {
        self.namespaces.get(namespace)?.objects.get(name)
    }

    /// A skill by id.
    pub(super) fn by_id(&self, namespace: &str, id: &str) -> Option<&Arc<RegistryObject>> {
        let space = self.namespaces.get(namespace)?;
        space.objects.get(space.order.get(space.positions.get(id)?)?)
    }

    /// A page of the skills of a namespace in the order of their making. `None`: it begins behind a skill whose place nothing
    /// knows any more.
    pub(super) fn page(&self, namespace: &str, page: &Page) -> Option<Paged<SkillEntry>> {
        let Some(space) = self.namespaces.get(namespace) else {
            return Some(Paged {
                items: Vec::new(),
                more: false,
            });
        };
        let after = match &page.after {
            Some(id) => Some(space.positions.get(id).cloned().or_else(|| position_of_id(id))?),
            None => None,
        };
        let mut names: Vec<&String> = if page.newest_first {
            let before = after.map_or(Bound::Unbounded, Bound::Excluded);
            let range = space.order.range((Bound::Unbounded, before));
            range
                .rev()
                .map(|(_, name)| name)
                .take(page.limit.saturating_add(1))
                .collect()
        } else {
            let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
            let range = space.order.range((behind, Bound::Unbounded));
            range.map(|(_, name)| name).take(page.limit.saturating_add(1)).collect()
        };
        let more = names.len() > page.limit;
        names.truncate(page.limit);
        let entries = names
            .iter()
            .filter_map(|name| space.objects.get(*name)?.entry().cloned());
        Some(Paged {
            items: entries.collect(),
            more,
        })
    }

    /// Skills of a namespace, and bytes of all that was uploaded to it.
    pub(super) fn usage(&self, namespace: &str) -> (usize, u64) {
        self.namespaces
            .get(namespace)
            .map_or((0, 0), |space| (space.order.len(), space.bytes))
    }

    /// Every object.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<RegistryObject>> {
        self.namespaces.values().flat_map(|space| space.objects.values())
    }
}

impl NamespaceSkills {
    fn put(&mut self, known: RegistryObject) {
        self.remove(&known.name);
        if let Some(entry) = known.entry() {
            let position = position(entry);
            self.positions.insert(entry.id.clone(), position.clone());
            self.order.insert(position, known.name.clone());
        }
        self.bytes += bytes(&known);
        self.objects.insert(known.name.clone(), Arc::new(known));
    }

    fn remove(&mut self, name: &str) {
        let Some(known) = self.objects.remove(name) else {
            return;
        };
        self.bytes = self.bytes.saturating_sub(bytes(&known));
        if let Some(entry) = known.entry()
            && let Some(position) = self.positions.remove(&entry.id)
        {
            self.order.remove(&position);
        }
    }
}

fn bytes(known: &RegistryObject) -> u64 {
    match &known.kind {
        ObjectKind::Uploaded(uploaded) => uploaded.entry.bytes(),
        ObjectKind::Applied(_) | ObjectKind::Version(..) => 0,
    }
}

/// The position of a skill. An uploaded skill has it in its id, so that it is known after its deletion, too.
fn position(entry: &SkillEntry) -> ListPosition {
    position_of_id(&entry.id).unwrap_or_else(|| (entry.created.div_euclid(1000), entry.id.clone()))
}

fn position_of_id(id: &str) -> Option<ListPosition> {
    let uuid = Uuid::try_parse(id.strip_prefix(ID_PREFIX)?).ok()?;
    if uuid.get_version_num() != 7 {
        return None;
    }
    let (seconds, nanos) = uuid.get_timestamp()?.to_unix();
    let millis = i64::try_from(seconds).ok()? * 1000 + i64::from(nanos / 1_000_000);
    Some((millis, id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::objects::tests::{object, uploaded};

    fn skill(name: &str, version: u64) -> Skill {
        let mut skill = object(&uploaded(name, &[1], Some(1)));
        skill.metadata.resource_version = Some(version.to_string());
        skill
    }

    fn names(index: &SkillIndex, after: Option<String>, limit: usize, newest_first: bool) -> (Vec<String>, bool) {
        let page = Page {
            after,
            limit,
            newest_first,
        };
        let paged = index.page("team", &page).unwrap();
        (paged.items.into_iter().map(|entry| entry.name).collect(), paged.more)
    }

    #[test]
    fn what_was_written_is_read_whatever_a_lagging_watch_reports() {
        let (mut index, now) = (SkillIndex::default(), Instant::now());
        let first = skill("a", 5);
        index.put(RegistryObject::of(&first).unwrap());
        let mut second = first.clone();
        second.metadata.resource_version = Some("7".to_owned());
        index.put(RegistryObject::of(&second).unwrap());
        index.apply(None, Event::Apply(first.clone()), now);
        assert_eq!(index.named("team", "a").unwrap().resource_version, 7);
        let known = RegistryObject::of(&second).unwrap();
        index.forget(&known, now);
        index.apply(None, Event::Apply(second.clone()), now);
        assert!(index.named("team", "a").is_none(), "deleted here");
        index.apply(None, Event::Delete(second), now);
        assert_eq!(index.usage("team"), (0, 0));
        // Another object of that name is another skill.
        let mut next = skill("a", 9);
        next.metadata.uid = Some("another".to_owned());
        index.apply(None, Event::Apply(next), now);
        assert_eq!(index.usage("team"), (1, 3));
    }

    #[test]
    fn a_list_replaces_what_is_not_in_it() {
        let (mut index, now) = (SkillIndex::default(), Instant::now());
        index.put(RegistryObject::of(&skill("old", 1)).unwrap());
        for event in [Event::Init, Event::InitApply(skill("new", 2)), Event::InitDone] {
            index.apply(None, event, now);
        }
        assert_eq!(index.complete(), 1);
        assert!(index.named("team", "old").is_none() && index.named("team", "new").is_some());
    }

    #[test]
    fn what_cannot_be_decoded_is_kept_by_a_list_and_goes_with_its_deletion() {
        let (mut index, now) = (SkillIndex::default(), Instant::now());
        let (first, other) = (skill("a", 1), skill("b", 1));
        for skill in [&first, &other] {
            index.put(RegistryObject::of(skill).unwrap());
        }
        let meta = |skill: &Skill| Box::new(skill.metadata.clone());
        let mut anew = meta(&other);
        anew.uid = Some("another".to_owned());
        index.apply(None, Event::Init, now);
        index.apply_undecoded(None, &Undecoded::Listed(meta(&first)));
        index.apply_undecoded(None, &Undecoded::Listed(anew));
        index.apply(None, Event::InitDone, now);
        assert!(index.named("team", "a").is_some() && index.named("team", "b").is_none());
        index.apply_undecoded(None, &Undecoded::Written);
        index.apply_undecoded(None, &Undecoded::Deleted(meta(&first)));
        assert!(index.named("team", "a").is_none());
    }

    #[test]
    fn pages_are_in_the_order_of_making_also_behind_a_skill_that_is_gone() {
        let mut index = SkillIndex::default();
        let mut ids = Vec::new();
        for (millisecond, name) in ["c", "a", "b"].into_iter().enumerate() {
            let mut uploaded = uploaded(name, &[1], Some(1));
            uploaded.entry.id = format!("skill_knack_0199a7c4a3c{millisecond}7d53a0f6f0c1f9a2b3c4");
            let known = RegistryObject::of(&object(&uploaded)).unwrap();
            ids.push(known.entry().unwrap().id.clone());
            index.put(known);
        }
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&index, None, 2, true), (list(&["b", "a"]), true));
        assert_eq!(names(&index, Some(ids[1].clone()), 2, true), (list(&["c"]), false));
        assert_eq!(names(&index, None, 9, false), (list(&["c", "a", "b"]), false));
        let known = RegistryObject::clone(index.by_id("team", &ids[1]).unwrap());
        index.forget(&known, Instant::now());
        assert_eq!(names(&index, Some(ids[1].clone()), 2, true), (list(&["c"]), false));
        assert_eq!(names(&index, Some(ids[1].clone()), 2, false), (list(&["b"]), false));
        let unknown = Page {
            after: Some("skill_knack_0199a7c4a3cd4d53a0f6f0c1f9a2b3c4".to_owned()),
            limit: 1,
            newest_first: true,
        };
        assert!(index.page("team", &unknown).is_none());
    }
}
