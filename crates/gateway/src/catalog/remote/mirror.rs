//! A gateway's copy of what a hub serves. Replicas of a hub lag behind each other: a line of any replica must not take
//! a gateway back in time.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use knack_hub_api::{
    CatalogLine, Hello, PROTOCOLS, ProtocolRange, Removed, RuntimeLine, SkillLine, UNSERVED_MAX, UnservedSkill,
};
use knack_skill::model::SkillRef;
use serde::{Deserialize, Serialize};

/// Removed skills that are remembered, so that a replica that lags cannot bring them back: more than any replica lags.
const GONE_MAX: usize = 10_000;

/// The state of one runtime's catalog.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    runtime: Option<RuntimeLine>,
    skills: BTreeMap<SkillRef, SkillLine>,
    /// uids of removed skills and the resourceVersion at which they went, oldest first.
    gone: VecDeque<(String, String)>,
    /// The skills that this hub does not serve, each with the reason. They are not saved. A replica that lags may list skills that
    /// are served by now: a request looks for served skills first.
    unserved: Vec<UnservedSkill>,
    /// The index that is being read: the skills named so far, and how far its replica has seen.
    index: Option<MirroredIndex>,
    /// The namespace of the client that the catalog was asked for.
    client_namespace: Option<String>,
    /// Whether the served lines differ from those at the last call of [`Mirror::take_changed`].
    changed: bool,
}

#[derive(Debug)]
struct MirroredIndex {
    seen_until: String,
    /// Namespaces that its replica reads; `None`: all.
    watched: Option<Vec<String>>,
    named: BTreeSet<SkillRef>,
}

impl MirroredIndex {
    /// Whether a skill that it does not name is gone: its replica knows this version of it, or never reads it.
    fn proves_gone(&self, id: &SkillRef, known: &SkillLine) -> bool {
        let is_watched = self.watched.as_ref().is_none_or(|all| all.contains(&id.namespace));
        !self.named.contains(id) && (!is_watched || !is_older(&self.seen_until, &known.resource_version))
    }
}

/// The state of a mirror, as it is saved: a process that starts with it takes nothing from a replica that lags, either.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct MirrorState {
    /// The settings.
    pub(super) runtime: RuntimeLine,
    /// The served lines.
    pub(super) skills: Vec<SkillLine>,
    /// uids of removed skills and the resourceVersion at which they went, oldest first.
    pub(super) gone: VecDeque<(String, String)>,
}

/// The effect of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LineEffect {
    /// Nothing to act on yet.
    NotedRun,
    /// Everything up to here belongs together: make a snapshot.
    Complete,
    /// This hub cannot be followed: why.
    Refused(String),
}

impl Mirror {
    /// A mirror of what a client's namespace sees; of what the asker sees without one.
    pub(crate) fn for_namespace(client_namespace: Option<&str>) -> Self {
        Self {
            client_namespace: client_namespace.map(str::to_owned),
            ..Self::default()
        }
    }

    /// Its state, with those of the skills that are served and that `has_content` is true for; `None` before the
    /// settings are known.
    pub(super) fn state(&self, has_content: impl Fn(&SkillLine) -> bool) -> Option<MirrorState> {
        let served = self.served().map(|(_, line)| line);
        Some(MirrorState {
            runtime: self.runtime.clone()?,
            skills: served.filter(|line| has_content(line)).cloned().collect(),
            gone: self.gone.clone(),
        })
    }

    /// Whether the served lines, or a setting, have changed since the last call. A hub that starts again, one that lags,
    /// and one that follows writes of statuses sends much that is known.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Knows what another one knew.
    pub(super) fn restore(&mut self, state: MirrorState) {
        self.changed = true;
        self.runtime = Some(state.runtime);
        let known = state.skills.into_iter();
        self.skills = known
            .map(|line| (identity(&line.namespace, &line.name), line))
            .collect();
        self.gone = state.gone;
        let beyond = self.gone.len().saturating_sub(GONE_MAX);
        self.gone.drain(..beyond);
    }

    /// Takes one line.
    pub(crate) fn take(&mut self, line: CatalogLine) -> LineEffect {
        match line {
            CatalogLine::Hello(hello) => return self.hello(hello),
            CatalogLine::Runtime(runtime) => self.runtime(*runtime),
            CatalogLine::Skill(skill) => self.skill(*skill),
            CatalogLine::Removed(removed) => self.removed(&removed),
            CatalogLine::Unserved(unserved) => self.set_unserved(unserved.skills),
            CatalogLine::Synced(_) => {
                self.end_index();
                return if self.runtime.is_some() {
                    LineEffect::Complete
                } else {
                    LineEffect::Refused("the hub sent no settings for the runtime".to_owned())
                };
            }
            CatalogLine::Ping | CatalogLine::Unknown => {}
        }
        LineEffect::NotedRun
    }

    /// The settings, once known.
    pub(crate) fn settings(&self) -> Option<&RuntimeLine> {
        self.runtime.as_ref()
    }

    /// Whether the hub says that the runtime is switched off. So it is before the settings are known.
    pub(super) fn is_suspended(&self) -> bool {
        self.runtime.as_ref().is_none_or(|runtime| runtime.suspend)
    }

    /// The served lines, by identity. Empty while the runtime is suspended.
    pub(crate) fn served(&self) -> impl Iterator<Item = (&SkillRef, &SkillLine)> + Clone {
        let suspended = self.is_suspended();
        self.skills.iter().filter(move |_| !suspended)
    }

    /// The skills that are not served, and why.
    pub(super) fn unserved(&self) -> &[UnservedSkill] {
        &self.unserved
    }

    fn set_unserved(&mut self, mut unserved: Vec<UnservedSkill>) {
        unserved.truncate(UNSERVED_MAX);
        self.changed |= self.unserved != unserved;
        self.unserved = unserved;
    }

    fn hello(&mut self, hello: Hello) -> LineEffect {
        let spoken = ProtocolRange::new(hello.protocol_min.unwrap_or(hello.protocol), hello.protocol);
        if !PROTOCOLS.meets(spoken) {
            return LineEffect::Refused(format!(
                "the hub (version {}) speaks protocol {spoken}, this gateway {PROTOCOLS}; upgrade the older one",
                hello.version
            ));
        }
        // A hub that does not support the header answers with more than was asked for.
        if hello.client_namespace != self.client_namespace {
            return LineEffect::Refused(format!(
                "the hub (version {}) cannot restrict a catalog to one namespace; upgrade it",
                hello.version
            ));
        }
        self.set_unserved(Vec::new());
        self.index = Some(MirroredIndex {
            seen_until: hello.resource_version,
            watched: hello.watched_namespaces,
            named: BTreeSet::new(),
        });
        LineEffect::NotedRun
    }

    fn runtime(&mut self, runtime: RuntimeLine) {
        let stale = self.runtime.as_ref().is_some_and(|known| {
            known.uid == runtime.uid && compare(&runtime.resource_version, &known.resource_version) == Ordering::Less
        });
        if !stale {
            // A write of the status alone changes nothing else.
            let is_same = |known: &RuntimeLine| {
                let resource_version = known.resource_version.clone();
                *known
                    == RuntimeLine {
                        resource_version,
                        ..runtime.clone()
                    }
            };
            self.changed |= !self.runtime.as_ref().is_some_and(is_same);
            self.runtime = Some(runtime);
        }
    }

    fn skill(&mut self, skill: SkillLine) {
        let id = identity(&skill.namespace, &skill.name);
        if let Some(index) = &mut self.index {
            index.named.insert(id.clone());
        }
        let known = self.skills.get(&id).filter(|known| known.uid == skill.uid);
        let stale = known.is_some_and(|known| is_older(&skill.resource_version, &known.resource_version));
        let gone = self
            .gone
            .iter()
            .any(|(uid, at)| *uid == skill.uid && is_older(&skill.resource_version, at));
        if !stale && !gone {
            self.changed |= !self.skills.get(&id).is_some_and(|known| known.says_the_same(&skill));
            self.skills.insert(id, skill);
        }
    }

    fn removed(&mut self, removed: &Removed) {
        let id = identity(&removed.namespace, &removed.name);
        let newer_is_known = self.skills.get(&id).is_some_and(|known| {
            known.uid != removed.uid || is_older(&removed.resource_version, &known.resource_version)
        });
        if newer_is_known {
            return;
        }
        self.changed |= self.skills.remove(&id).is_some();
        self.remember_gone(removed.uid.clone(), removed.resource_version.clone());
    }

    fn remember_gone(&mut self, uid: String, resource_version: String) {
        if self.gone.len() == GONE_MAX {
            self.gone.pop_front();
        }
        self.gone.push_back((uid, resource_version));
    }

    /// A skill that an index did not name is gone, unless its replica has not seen it yet.
    fn end_index(&mut self) {
        let Some(index) = self.index.take() else { return };
        let absent: Vec<SkillRef> = self
            .skills
            .iter()
            .filter(|(id, known)| index.proves_gone(id, known))
            .map(|(id, _)| id.clone())
            .collect();
        for id in absent {
            if let Some(known) = self.skills.remove(&id) {
                self.changed = true;
                self.remember_gone(known.uid, known.resource_version);
            }
        }
    }
}

fn identity(namespace: &str, name: &str) -> SkillRef {
    SkillRef {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn is_older(one: &str, other: &str) -> bool {
    compare(one, other) == Ordering::Less
}

/// Order of resourceVersions: decimal numbers of any length (KEP-5504). What is no number counts as equal, so that such
/// a server's newest line wins.
fn compare(one: &str, other: &str) -> Ordering {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(one) || !digits(other) {
        return Ordering::Equal;
    }
    let (one, other) = (one.trim_start_matches('0'), other.trim_start_matches('0'));
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
