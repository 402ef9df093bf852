//! A gateway's copy of what a hub serves. Replicas of a hub lag behind each other: a line of any replica must not take
//! a gateway back in time.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use knack_hub_api::{CatalogLine, Hello, PROTOCOLS, ProtocolRange, Removed, RuntimeLine, SkillLine};
use knack_skill::model::SkillRef;

/// Removed skills that are remembered, so that a replica that lags cannot bring them back: more than any replica lags.
const GONE_MAX: usize = 10_000;

/// The state of one runtime's catalog.
#[derive(Debug, Default)]
pub struct Mirror {
    runtime: Option<RuntimeLine>,
    skills: BTreeMap<SkillRef, SkillLine>,
    /// uids of removed skills and the resourceVersion at which they went, oldest first.
    gone: VecDeque<(String, String)>,
    /// The index that is being read: the skills named so far, and how far its replica has seen.
    index: Option<Index>,
    /// The namespace of the client that the catalog was asked for.
    client_namespace: Option<String>,
}

#[derive(Debug)]
struct Index {
    seen_until: String,
    /// Namespaces that its replica reads; `None`: all.
    watched: Option<Vec<String>>,
    named: BTreeSet<SkillRef>,
}

impl Index {
    /// Whether a skill that it does not name is gone: its replica knows this version of it, or never reads it.
    fn proves_gone(&self, id: &SkillRef, known: &SkillLine) -> bool {
        let is_watched = self.watched.as_ref().is_none_or(|all| all.contains(&id.namespace));
        !self.named.contains(id) && (!is_watched || !is_older(&self.seen_until, &known.resource_version))
    }
}

/// What a line did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// Nothing to act on yet.
    Noted,
    /// Everything up to here belongs together: make a snapshot.
    Complete,
    /// This hub cannot be followed: why.
    Refused(String),
}

impl Mirror {
    /// A mirror of what a client's namespace sees; of what the asker sees without one.
    pub fn for_namespace(client_namespace: Option<&str>) -> Self {
        Self {
            client_namespace: client_namespace.map(str::to_owned),
            ..Self::default()
        }
    }

    /// Takes one line.
    pub fn take(&mut self, line: CatalogLine) -> Taken {
        match line {
            CatalogLine::Hello(hello) => return self.hello(hello),
            CatalogLine::Runtime(runtime) => self.runtime(*runtime),
            CatalogLine::Skill(skill) => self.skill(*skill),
            CatalogLine::Removed(removed) => self.removed(&removed),
            CatalogLine::Synced(_) => {
                self.end_index();
                return if self.runtime.is_some() {
                    Taken::Complete
                } else {
                    Taken::Refused("the hub sent no settings for the runtime".to_owned())
                };
            }
            CatalogLine::Ping | CatalogLine::Unknown => {}
        }
        Taken::Noted
    }

    /// The settings, once known.
    pub fn settings(&self) -> Option<&RuntimeLine> {
        self.runtime.as_ref()
    }

    /// What is served, by identity. Nothing while the runtime is suspended.
    pub fn served(&self) -> impl Iterator<Item = (&SkillRef, &SkillLine)> {
        let suspended = self.runtime.as_ref().is_none_or(|runtime| runtime.suspend);
        self.skills.iter().filter(move |_| !suspended)
    }

    fn hello(&mut self, hello: Hello) -> Taken {
        let spoken = ProtocolRange::new(hello.protocol_min.unwrap_or(hello.protocol), hello.protocol);
        if !PROTOCOLS.meets(spoken) {
            return Taken::Refused(format!(
                "the hub (version {}) speaks protocol {spoken}, this gateway {PROTOCOLS}; upgrade the older one",
                hello.version
            ));
        }
        // A hub that does not support the header answers with more than was asked for.
        if hello.client_namespace != self.client_namespace {
            return Taken::Refused(format!(
                "the hub (version {}) cannot restrict a catalog to one namespace; upgrade it",
                hello.version
            ));
        }
        self.index = Some(Index {
            seen_until: hello.resource_version,
            watched: hello.watched_namespaces,
            named: BTreeSet::new(),
        });
        Taken::Noted
    }

    fn runtime(&mut self, runtime: RuntimeLine) {
        let stale = self.runtime.as_ref().is_some_and(|known| {
            known.uid == runtime.uid && compare(&runtime.resource_version, &known.resource_version) == Ordering::Less
        });
        if !stale {
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
        self.skills.remove(&id);
        self.bury(removed.uid.clone(), removed.resource_version.clone());
    }

    fn bury(&mut self, uid: String, resource_version: String) {
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
                self.bury(known.uid, known.resource_version);
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
mod tests {
    use super::*;
    use knack_hub_api::{ActivationName, Overrides, PROTOCOL, Synced};

    fn hello(seen: u64) -> CatalogLine {
        CatalogLine::Hello(Hello {
            protocol: PROTOCOL,
            protocol_min: None,
            version: "1".to_owned(),
            resource_version: seen.to_string(),
            client_namespace: None,
            watched_namespaces: None,
        })
    }

    fn runtime(at: u64, suspend: bool) -> CatalogLine {
        CatalogLine::Runtime(Box::new(RuntimeLine {
            uid: "r".to_owned(),
            resource_version: at.to_string(),
            suspend,
            max_activation: ActivationName::Listed,
            model_code: true,
            node: false,
            timeout_seconds: 10,
            max_timeout_seconds: 60,
            memory_bytes: None,
            max_tool_rounds: 10,
            deadline_seconds: 540,
            max_listing_tokens: 4000,
            models: Vec::new(),
            min_max_tokens: 64,
            max_snapshot_age_seconds: 3600,
            pins: Vec::new(),
            upstreams: BTreeMap::new(),
        }))
    }

    fn skill(name: &str, uid: &str, at: u64) -> CatalogLine {
        CatalogLine::Skill(Box::new(SkillLine {
            namespace: "a".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            resource_version: at.to_string(),
            digest: format!("digest {at}"),
            created: 0,
            overrides: Overrides::default(),
        }))
    }

    fn removed(name: &str, uid: &str, at: u64) -> CatalogLine {
        CatalogLine::Removed(Removed {
            namespace: "a".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            resource_version: at.to_string(),
        })
    }

    fn synced() -> CatalogLine {
        CatalogLine::Synced(Synced {
            resource_version: String::new(),
        })
    }

    fn check(lines: Vec<CatalogLine>, expected: &[&str]) {
        let mut mirror = Mirror::default();
        mirror.take(runtime(1, false));
        for line in lines {
            mirror.take(line);
        }
        let served: Vec<String> = mirror
            .served()
            .map(|(id, line)| format!("{} {} {}", id.name, line.uid, line.resource_version))
            .collect();
        assert_eq!(served, expected);
    }

    #[test]
    fn an_older_version_of_the_same_object_is_ignored() {
        check(vec![skill("x", "u", 9), skill("x", "u", 8)], &["x u 9"]);
        check(vec![skill("x", "u", 9), skill("x", "u", 10)], &["x u 10"]);
        // Deleted and created again: another uid, with its own versions.
        check(vec![skill("x", "u", 9), skill("x", "v", 12)], &["x v 12"]);
    }

    #[test]
    fn a_replica_that_lags_brings_nothing_back() {
        check(vec![skill("x", "u", 9), removed("x", "u", 12), skill("x", "u", 9)], &[]);
        // Deselected and selected again without a change of the object.
        check(
            vec![skill("x", "u", 9), removed("x", "u", 9), skill("x", "u", 9)],
            &["x u 9"],
        );
        check(vec![skill("x", "v", 20), removed("x", "u", 12)], &["x v 20"]);
    }

    #[test]
    fn absence_from_an_index_proves_a_deletion_only_of_what_its_replica_has_seen() {
        let first = || vec![hello(9), skill("x", "u", 9), skill("y", "w", 5), synced()];
        let mut lines = first();
        lines.extend([hello(10), synced()]);
        check(lines, &[]);
        let mut lines = first();
        lines.extend([hello(7), synced()]);
        check(lines, &["x u 9"]);
        let mut lines = first();
        lines.extend([hello(12), skill("x", "u", 9), synced()]);
        check(lines, &["x u 9"]);
    }

    #[test]
    fn a_skill_where_the_replica_does_not_read_is_gone_however_new() {
        let hello_of = |namespaces: &[&str]| match hello(7) {
            CatalogLine::Hello(hello) => CatalogLine::Hello(Hello {
                watched_namespaces: Some(namespaces.iter().map(|&name| name.to_owned()).collect()),
                ..hello
            }),
            other => other,
        };
        for (namespaces, expected) in [(&["b", "c"][..], &[][..]), (&["b", "a"], &["x u 9"])] {
            let first = [hello(9), skill("x", "u", 9), synced()];
            check(
                first.into_iter().chain([hello_of(namespaces), synced()]).collect(),
                expected,
            );
        }
    }

    #[test]
    fn a_suspended_runtime_serves_nothing_and_old_settings_do_not_come_back() {
        let mut mirror = Mirror::default();
        assert!(matches!(mirror.take(synced()), Taken::Refused(_)));
        mirror.take(runtime(5, true));
        mirror.take(skill("x", "u", 1));
        assert_eq!(mirror.take(synced()), Taken::Complete);
        assert_eq!(mirror.served().count(), 0);
        mirror.take(runtime(4, false));
        assert_eq!(mirror.served().count(), 0);
        mirror.take(runtime(6, false));
        assert_eq!(mirror.served().count(), 1);
    }

    #[test]
    fn a_hub_without_a_protocol_in_common_is_refused_with_what_to_do() {
        let line = |protocol_min, protocol| {
            CatalogLine::Hello(Hello {
                protocol,
                protocol_min,
                version: "9.9".to_owned(),
                resource_version: String::new(),
                client_namespace: None,
                watched_namespaces: None,
            })
        };
        for (min, max) in [
            (None, PROTOCOLS.max),
            (None, PROTOCOLS.min),
            (Some(PROTOCOLS.max), PROTOCOLS.max + 2),
            (Some(0), PROTOCOLS.min),
        ] {
            assert_eq!(Mirror::default().take(line(min, max)), Taken::Noted, "{min:?} {max}");
        }
        for (min, max) in [
            (None, PROTOCOLS.max + 1),
            (Some(PROTOCOLS.max + 1), PROTOCOLS.max + 2),
            (None, 0),
        ] {
            let Taken::Refused(text) = Mirror::default().take(line(min, max)) else {
                panic!("{min:?} {max}")
            };
            assert!(text.contains("9.9") && text.contains("upgrade"), "{text}");
        }
    }

    #[test]
    fn a_catalog_of_another_namespace_is_refused() {
        let hello = |namespace: Option<&str>| {
            CatalogLine::Hello(Hello {
                protocol: PROTOCOL,
                protocol_min: None,
                version: "1".to_owned(),
                resource_version: String::new(),
                client_namespace: namespace.map(str::to_owned),
                watched_namespaces: None,
            })
        };
        for (asked, told, taken) in [
            (None, None, true),
            (Some("a"), Some("a"), true),
            (Some("a"), Some("b"), false),
            (Some("a"), None, false),
            (None, Some("a"), false),
        ] {
            let answer = Mirror::for_namespace(asked).take(hello(told));
            assert_eq!(answer == Taken::Noted, taken, "{asked:?} {told:?}");
        }
    }

    #[test]
    fn resource_versions_are_numbers_of_any_length() {
        for (one, other, expected) in [
            ("9", "10", Ordering::Less),
            ("10", "10", Ordering::Equal),
            ("18446744073709551616", "18446744073709551615", Ordering::Greater),
            ("x", "1", Ordering::Equal),
        ] {
            assert_eq!(compare(one, other), expected, "{one} {other}");
        }
    }
}
