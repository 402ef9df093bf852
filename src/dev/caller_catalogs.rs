//! The catalogs of callers: each caller's uploaded skills beside those from files.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use knack_gateway::catalog::{PackageNames, Snapshot, SourceReport};
use knack_packages::Rules;
use knack_registry::{FolderStore, Mode, Owner, SkillEntry, VolumeThreads, load_stored};
use knack_serving::keyed_locks::KeyedLocks;
use knack_skill::model::Skill;

use super::assemble::not_allowed;
use super::notes::env_notes;
use super::ready_skills::ReadySkills;
use super::search_settings::EnvFlag;
use crate::cli::terminal;

/// Callers whose catalogs are kept: one person has a few keys. Another one's is made again with its next request.
const CALLERS_MAX: usize = 64;
/// How long a request waits for another one that makes the same catalog, and for the catalog that it makes itself: all uploads of a
/// caller are read within seconds.
const TURN_WAIT: Duration = Duration::from_secs(30);
/// Catalogs that are made at once: each holds a thread as long as the volume hangs.
const MADE_AT_ONCE: usize = 8;
/// The cause in the log where a catalog is not made in time.
const LATE: &str = "the volume that keeps uploaded skills did not answer in time";

/// What the runtime means for uploaded skills.
#[derive(Debug, Clone)]
pub(super) struct UploadRuntime {
    /// Returns the packages of a skill's runs.
    pub(super) packages: PackageNames,
    /// What packages it allows.
    pub(super) rules: Rules,
    /// The environment values that a person grants, where code is run.
    pub(super) granted: Option<Arc<[EnvFlag]>>,
}

/// The catalogs of callers.
#[derive(Debug)]
pub(super) struct CallerCatalogs {
    store: Arc<FolderStore>,
    reads: VolumeThreads,
    runtime: UploadRuntime,
    judged: Arc<ReadySkills>,
    made: Mutex<HashMap<Owner, CallerCatalog>>,
    /// Callers whose catalogs are being made: each is read by one request, without a delay for other callers.
    locks: KeyedLocks<Owner>,
    /// Versions that cannot be served, which are logged once.
    reported: Mutex<Vec<String>>,
}

/// The catalog of one caller.
#[derive(Debug, Clone)]
struct CallerCatalog {
    /// The state of the store that it was made of.
    changes: u64,
    /// The skills from files.
    base: Arc<Snapshot>,
    /// The caller's, by the id of the version.
    skills: Versions,
    snapshot: Arc<Snapshot>,
}

/// Versions by id.
type Versions = BTreeMap<String, (VersionNames, Arc<Skill>)>;

/// The part of a version's entry that catalogs use: the references under which it is named, and its mode.
type VersionNames = (Vec<String>, Option<Mode>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CallerCatalogs {
    /// None yet.
    pub(super) fn new(store: Arc<FolderStore>, runtime: UploadRuntime, judged: Arc<ReadySkills>) -> Self {
        Self {
            store,
            reads: VolumeThreads::new(MADE_AT_ONCE, TURN_WAIT, LATE),
            runtime,
            judged,
            made: Mutex::default(),
            locks: KeyedLocks::default(),
            reported: Mutex::default(),
        }
    }

    /// Whether no caller has skills, and none is left to be forgotten.
    pub(super) fn are_empty(&self) -> bool {
        self.store.is_empty() && lock(&self.made).is_empty()
    }

    /// The skills from files, and those of a caller as they are now; on a volume that hangs those of them that were read
    /// before.
    pub(super) async fn served(&self, owner: Owner, base: Arc<Snapshot>) -> Arc<Snapshot> {
        if let Some(snapshot) = self.current(&owner, &base) {
            return snapshot;
        }
        // `None` after the wait: it is read beside, on one of few threads.
        let _guard = self.locks.take(owner.clone(), TURN_WAIT).await;
        // It was made meanwhile.
        if let Some(snapshot) = self.current(&owner, &base) {
            return snapshot;
        }
        let changes = self.store.changes();
        let entries = self.store.skills_of(&owner);
        if entries.is_empty() {
            let mut made = lock(&self.made);
            if made.remove(&owner).is_some() {
                self.judge(&made);
            }
            return base;
        }
        let kept = lock(&self.made)
            .get(&owner)
            .map(|last| last.skills.clone())
            .unwrap_or_default();
        let (store, runtime, from) = (Arc::clone(&self.store), self.runtime.clone(), Arc::clone(&base));
        let (read, beside) = (entries.clone(), kept.clone());
        let work = move || make(Some(store.as_ref()), &read, &beside, &runtime, from, changes);
        let (now, failed, notes) = match self.reads.done(work).await {
            Ok(made) => made,
            Err(error) => {
                tracing::warn!(%error, "a caller is served only the uploaded skills that were read before");
                return make(None, &entries, &kept, &self.runtime, base, changes).0.snapshot;
            }
        };
        self.report(failed);
        for note in notes {
            terminal::line(&note.to_string());
        }
        let snapshot = Arc::clone(&now.snapshot);
        self.keep(owner, now);
        snapshot
    }

    fn current(&self, owner: &Owner, base: &Arc<Snapshot>) -> Option<Arc<Snapshot>> {
        let made = lock(&self.made);
        let last = made.get(owner)?;
        let is_current = last.changes == self.store.changes() && Arc::ptr_eq(&last.base, base);
        is_current.then(|| Arc::clone(&last.snapshot))
    }

    fn keep(&self, owner: Owner, now: CallerCatalog) {
        let mut made = lock(&self.made);
        if made.len() >= CALLERS_MAX
            && !made.contains_key(&owner)
            && let Some(other) = made.keys().next().cloned()
        {
            made.remove(&other);
        }
        made.insert(owner, now);
        self.judge(&made);
    }

    /// Called with the lock, so that what is judged last is what is there.
    fn judge(&self, made: &HashMap<Owner, CallerCatalog>) {
        let skills = made.values().flat_map(|made| made.skills.values());
        self.judged
            .uploads(skills.map(|(_, skill)| Arc::clone(skill)).collect());
    }

    fn report(&self, failed: Vec<String>) {
        let mut reported = lock(&self.reported);
        for text in &failed {
            if !reported.contains(text) {
                terminal::line(text);
            }
        }
        *reported = failed;
    }
}

/// Reads what is new, if there is a store to read, and puts all of it beside the skills from files. The texts name versions that cannot
/// be served; the warnings are about default versions that are new.
fn make(
    store: Option<&FolderStore>,
    entries: &[Arc<SkillEntry>],
    kept: &Versions,
    runtime: &UploadRuntime,
    base: Arc<Snapshot>,
    changes: u64,
) -> (CallerCatalog, Vec<String>, Vec<SourceReport>) {
    let (mut skills, mut failed, mut notes) = (BTreeMap::new(), Vec::new(), Vec::new());
    // The default version of each first: it keeps the name.
    let mut ordered = Vec::new();
    for entry in entries {
        for version in &entry.versions {
            let named = (entry.references(version), entry.mode_of(version));
            if let Some(known) = kept.get(&version.id).filter(|known| known.0 == named) {
                skills.insert(version.id.clone(), known.clone());
            } else {
                let files = store.ok_or_else(|| LATE.to_owned());
                let files =
                    files.and_then(|store| store.files(entry, version.number).map_err(|error| error.to_string()));
                let loaded = files.and_then(|files| load_stored(entry, version, files));
                let allowed = loaded.and_then(|skill| {
                    let why = not_allowed(&runtime.rules, &skill.files, skill.requirements.as_ref());
                    why.map_or(Ok(skill), Err)
                });
                match allowed {
                    Ok(mut skill) => {
                        skill.packages = (runtime.packages)(&skill);
                        // Nobody asks for another version without naming it, and each was reported while it was the
                        // default.
                        if let Some(granted) = runtime
                            .granted
                            .as_deref()
                            .filter(|_| entry.default == Some(version.number))
                        {
                            let origin = format!("uploaded skill {}, version {}", entry.name, version.number);
                            notes.extend(env_notes(&origin, &skill, granted));
                        }
                        skills.insert(version.id.clone(), (named, Arc::new(skill)));
                    }
                    Err(error) => failed.push(format!(
                        "uploaded skill {}, version {}, is not served: {error}",
                        entry.name, version.number
                    )),
                }
            }
            if let Some((_, skill)) = skills.get(&version.id) {
                ordered.push((entry.default != Some(version.number), Arc::clone(skill)));
            }
        }
    }
    ordered.sort_by_key(|(is_other, _)| *is_other);
    let ordered: Vec<Arc<Skill>> = ordered.into_iter().map(|(_, skill)| skill).collect();
    let snapshot = Arc::new(base.with_skills(&ordered));
    let made = CallerCatalog {
        changes,
        base,
        skills,
        snapshot,
    };
    (made, failed, notes)
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, LazyLock};

    use knack_gateway::catalog::{RuntimeSettings, no_packages};
    use knack_packages::rules::Allowed;
    use knack_registry::{Draft, Files, Store as _};
    use knack_skill::model::{Packages, SkillFile};
    use tokio::sync::watch;

    use super::*;

    /// Longest wait for what must come.
    const PATIENCE: Duration = Duration::from_mins(1);

    fn runtime(rules: Rules) -> UploadRuntime {
        UploadRuntime {
            packages: no_packages,
            rules,
            granted: None,
        }
    }

    /// Whether the skill that is read slowly may be read to its end. One test has such a skill.
    static GATE: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
    /// Whether somebody has begun to read it.
    static READING: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));

    fn slow_packages(skill: &Skill) -> Packages {
        if skill.id.name == "slow" {
            READING.send_replace(true);
            let (is_open, opened) = &GATE;
            drop(opened.wait_while(lock(is_open), |is_open| !*is_open));
        }
        no_packages(skill)
    }

    fn draft(name: &str) -> Draft {
        draft_of(name, &format!("---\nname: {name}\ndescription: d\n---\nx"))
    }

    fn draft_of(name: &str, text: &str) -> Draft {
        let file = SkillFile {
            bytes: text.as_bytes().into(),
            executable: false,
        };
        let files = Files::from([("SKILL.md".to_owned(), file)]);
        knack_registry::fixture::draft(name, files)
    }

    #[tokio::test]
    async fn an_upload_with_packages_that_the_runtime_does_not_allow_is_not_served() {
        let text = "---\nname: mine\ndescription: d\npackages: {python: [openpyxl]}\n---\nx";
        for (allowed, served) in [(Allowed::Declared, 1), (Allowed::Standard, 0), (Allowed::Nothing, 0)] {
            let folder = tempfile::tempdir().unwrap();
            let store = Arc::new(FolderStore::open(folder.path()).unwrap().store);
            let owner = Owner::from([1; 32]);
            store.create(&owner, None, draft_of("mine", text)).await.unwrap();
            let judged = Arc::new(ReadySkills::new(None, tokio::sync::watch::Sender::new(0)));
            let rules = Rules::default().allowing(allowed);
            let catalogs = CallerCatalogs::new(store, runtime(rules), judged);
            let base = Arc::new(Snapshot::without_catalog(RuntimeSettings::default(), ""));
            assert_eq!(catalogs.served(owner, base).await.skills.len(), served, "{allowed:?}");
            let reported = lock(&catalogs.reported).join("");
            assert_eq!(reported.contains("spec.packages.allowed"), served == 0, "{reported}");
        }
    }

    #[tokio::test]
    async fn on_a_volume_that_hangs_a_caller_is_served_what_was_read_before_and_is_still_there() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(FolderStore::open(folder.path()).unwrap().store);
        let [owner, other] = [1, 2].map(|byte| Owner::from([byte; 32]));
        store.create(&owner, None, draft("one")).await.unwrap();
        let gone = store.create(&owner, None, draft("gone")).await.unwrap();
        store.create(&other, None, draft("other")).await.unwrap();
        let judged = Arc::new(ReadySkills::new(None, tokio::sync::watch::Sender::new(0)));
        let mut catalogs = CallerCatalogs::new(Arc::clone(&store), runtime(Rules::default()), judged);
        let base = Arc::new(Snapshot::without_catalog(RuntimeSettings::default(), ""));
        assert_eq!(catalogs.served(owner.clone(), Arc::clone(&base)).await.skills.len(), 2);
        store.create(&owner, None, draft("two")).await.unwrap();
        store.delete(&owner, &gone.id).await.unwrap();
        let reads = std::mem::replace(
            &mut catalogs.reads,
            VolumeThreads::new(0, Duration::from_millis(10), LATE),
        );
        assert_eq!(catalogs.served(owner.clone(), Arc::clone(&base)).await.skills.len(), 1);
        assert_eq!(catalogs.served(other, Arc::clone(&base)).await.skills.len(), 0);
        catalogs.reads = reads;
        assert_eq!(catalogs.served(owner, base).await.skills.len(), 2);
    }

    #[tokio::test]
    async fn a_caller_whose_uploads_are_read_slowly_delays_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(FolderStore::open(folder.path()).unwrap().store);
        let [slow, other] = [1, 2].map(|byte| Owner::from([byte; 32]));
        store.create(&slow, None, draft("slow")).await.unwrap();
        store.create(&other, None, draft("mine")).await.unwrap();
        let runtime = UploadRuntime {
            packages: slow_packages,
            ..runtime(Rules::default())
        };
        let judged = Arc::new(ReadySkills::new(None, tokio::sync::watch::Sender::new(0)));
        let catalogs = Arc::new(CallerCatalogs::new(store, runtime, judged));
        let base = Arc::new(Snapshot::without_catalog(RuntimeSettings::default(), ""));
        let served = |owner: &Owner| {
            let (catalogs, owner, base) = (Arc::clone(&catalogs), owner.clone(), Arc::clone(&base));
            tokio::spawn(async move { catalogs.served(owner, base).await })
        };
        let mut begun = READING.subscribe();
        let waiting = [served(&slow), served(&slow)];
        let reads = tokio::time::timeout(PATIENCE, begun.wait_for(|reads| *reads)).await;
        assert!(reads.is_ok(), "somebody reads it");
        let quick = tokio::time::timeout(PATIENCE, served(&other)).await;
        // Released in any case: the runtime waits for its threads.
        *lock(&GATE.0) = true;
        GATE.1.notify_all();
        assert_eq!(quick.expect("it waits for another caller").unwrap().skills.len(), 1);
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap().skills.len(), 1);
        }
    }
}
