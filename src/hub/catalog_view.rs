//! The catalog that one runtime serves to one kind of caller, and its changes. Pure.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use knack_api::skill_status::EarlierRevision;
use knack_api::{Skill, SkillRuntime};
use knack_hub_api::{
    CatalogLine, Hello, PROTOCOLS, Removed, RuntimeLine, SkillLine, Synced, UNSERVED_MAX, UnservedSkill,
    UnservedSkills, UploadLine,
};
use knack_skill::catalog::{MODE_OFF, NEVER, NEVER_HERE};
use knack_skill::config::{self, ConfigEntry};
use knack_skill::model::{ActivationMode, SkillRef};
use knack_vocabulary::{CONDITION_READY, LABEL_UPLOAD_OF, LABEL_UPLOAD_VERSION, REASON_INVALID_SKILL};
use kube::ResourceExt as _;

use super::identity::reference;
use super::summaries::Summary;
use crate::condition_value::ConditionStatus;
use crate::selection::{Audience, Rejection, RejectionReason, Scope, Selected, select};

/// A complete state of a catalog.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogView {
    /// Settings.
    pub runtime: RuntimeLine,
    /// Skills served, by identity. Empty while the runtime is suspended. Unchanged ones are shared with the view before.
    pub skills: BTreeMap<Arc<SkillRef>, Arc<SkillLine>>,
    /// Why others, which the caller may see, are not served.
    unserved: BTreeMap<SkillRef, String>,
    /// The skills of the last changes, at most [`LATEST`]: what gateways ask for next.
    latest: VecDeque<Arc<SkillRef>>,
    /// All of them by digest, computed at the first request for the content of another one.
    by_digest: OnceLock<HashMap<String, Arc<SkillRef>>>,
}

/// Skills in which a digest is searched for first: as many as change while gateways fetch what changed before.
const LATEST: usize = 64;

/// The number of no version: the registry begins at 1.
const NO_NUMBER: u32 = 0;

impl CatalogView {
    fn new(runtime: RuntimeLine, SelectedSkills { skills, unserved }: SelectedSkills) -> Self {
        Self {
            runtime,
            skills,
            unserved,
            latest: VecDeque::new(),
            by_digest: OnceLock::new(),
        }
    }

    /// A skill that has a digest as its content.
    pub fn of_digest(&self, digest: &str) -> Option<&SkillRef> {
        let has = |id: &&Arc<SkillRef>| self.skills.get(*id).is_some_and(|line| line.digest == digest);
        if let Some(id) = self.latest.iter().find(has) {
            return Some(id);
        }
        let made = || {
            let lines = self.skills.iter();
            lines.map(|(id, line)| (line.digest.clone(), Arc::clone(id))).collect()
        };
        self.by_digest.get_or_init(made).get(digest).map(|id| &**id)
    }
}

/// Builds a view. `summary` finds the artifact of a skill, of an earlier revision if one is named; one whose artifact is not read yet is left out until it is.
pub fn build<'a>(
    runtime: &'a SkillRuntime,
    settings: RuntimeLine,
    scope: &Scope<'_>,
    audience: Audience<'_>,
    skills: impl IntoIterator<Item = &'a Skill>,
    summary: impl Fn(&Skill, Option<&EarlierRevision>) -> Option<Arc<Summary>>,
) -> CatalogView {
    CatalogView::new(settings, select_lines(runtime, scope, audience, skills, summary))
}

/// The view after some skills changed (`None`: the skill is gone). Returns `None` if nothing that is served or said of skills changes.
/// Whether a skill is served depends on no other skill.
pub fn patch<'a>(
    view: &CatalogView,
    runtime: &'a SkillRuntime,
    scope: &Scope<'_>,
    audience: Audience<'_>,
    changed: &'a BTreeMap<SkillRef, Option<Arc<Skill>>>,
    summary: impl Fn(&Skill, Option<&EarlierRevision>) -> Option<Arc<Summary>>,
) -> Option<CatalogView> {
    let skills = changed.values().flatten().map(|skill| &**skill);
    let mut now = select_lines(runtime, scope, audience, skills, summary);
    let same = |id: &SkillRef| {
        let is_same = match (view.skills.get(id), now.skills.get(id)) {
            (Some(before), Some(after)) => !content_differs(before, after),
            (before, after) => before.is_none() && after.is_none(),
        };
        is_same && view.unserved.get(id) == now.unserved.get(id)
    };
    if changed.keys().all(same) {
        return None;
    }
    let before = SelectedSkills {
        skills: view.skills.clone(),
        unserved: view.unserved.clone(),
    };
    let mut patched = CatalogView::new(view.runtime.clone(), before);
    patched.latest.clone_from(&view.latest);
    for id in changed.keys() {
        match now.unserved.remove(id) {
            Some(why) => patched.unserved.insert(id.clone(), why),
            None => patched.unserved.remove(id),
        };
        match now.skills.remove_entry(id) {
            Some((id, line)) => {
                patched.latest.retain(|known| *known != id);
                patched.latest.push_front(Arc::clone(&id));
                patched.skills.insert(id, line);
            }
            None => {
                patched.skills.remove(id);
            }
        }
    }
    patched.latest.truncate(LATEST);
    Some(patched)
}

/// What a runtime serves of some skills, and why not the others.
struct SelectedSkills {
    skills: BTreeMap<Arc<SkillRef>, Arc<SkillLine>>,
    unserved: BTreeMap<SkillRef, String>,
}

fn select_lines<'a>(
    runtime: &'a SkillRuntime,
    scope: &Scope<'_>,
    audience: Audience<'_>,
    skills: impl IntoIterator<Item = &'a Skill>,
    summary: impl Fn(&Skill, Option<&EarlierRevision>) -> Option<Arc<Summary>>,
) -> SelectedSkills {
    let (mut served, mut unserved) = (BTreeMap::new(), BTreeMap::new());
    if !runtime.spec.is_suspended() {
        for item in select(runtime, scope, audience, skills) {
            let id = reference(item.skill);
            if let Err(rejection) = &item.accepted {
                unserved.extend(why_unserved(item.skill, rejection).map(|why| (id, why)));
                continue;
            }
            if item.mode == ActivationMode::Never {
                unserved.insert(id, why_never(runtime, &item).to_owned());
                continue;
            }
            if let Some(summary) = summary(item.skill, item.earlier) {
                let entries = item.pin.and_then(|pin| pin.config_values(&id.namespace));
                let entries = entries.map(|config| config.entries).unwrap_or_default();
                let mut line = line(item.skill, &id, &summary, &entries);
                if item.earlier.is_some() {
                    rename_earlier(&mut line);
                }
                served.insert(Arc::new(id), Arc::new(line));
            }
        }
    }
    SelectedSkills {
        skills: served,
        unserved,
    }
}

/// The reason of a skill whose mode is Never here: the runtime says so, or the registry, or the skill itself.
fn why_never(runtime: &SkillRuntime, item: &Selected<'_>) -> &'static str {
    let has_pinned_mode = item.pin.is_some_and(|pin| pin.mode.is_some());
    if has_pinned_mode || runtime.spec.max_activation() == ActivationMode::Never {
        NEVER_HERE
    } else if upload(item.skill.labels()).is_some() {
        MODE_OFF
    } else {
        NEVER
    }
}

/// Most bytes of the reason why a skill is not served: some problems of a SKILL.md.
const WHY_MAX: usize = 600;

/// Reason for a client that names this skill. `None`: answer as for an unknown skill, because its owner does not allow this runtime to
/// serve it. For a Skill without content it includes the problems of its files; other reasons, which may reveal where a source is, are
/// only in its status.
fn why_unserved(skill: &Skill, rejection: &Rejection) -> Option<String> {
    let reason = rejection.reason;
    let mut why = match reason {
        RejectionReason::NotAllowedBySkill => return None,
        RejectionReason::NotReady => {
            let conditions = skill.status.iter().flat_map(|status| &status.conditions);
            let ready = conditions.into_iter().find(|found| found.type_ == CONDITION_READY);
            match ready {
                Some(ready) if ready.reason == REASON_INVALID_SKILL => format!("{}: {}", ready.reason, ready.message),
                Some(ready) if ConditionStatus::False.is_of(ready) => {
                    format!("{}: see the condition Ready of the Skill", ready.reason)
                }
                _ => format!("{}: it has no content yet", reason.as_str()),
            }
        }
        _ => format!("{}: {}", reason.as_str(), rejection.message),
    };
    if why.len() > WHY_MAX {
        why.truncate(why.floor_char_boundary(WHY_MAX));
        why.push('…');
    }
    Some(why)
}

fn line(skill: &Skill, id: &SkillRef, summary: &Summary, given: &[ConfigEntry]) -> SkillLine {
    let withheld = summary
        .config
        .iter()
        .filter(|(tool, params)| config::problems(tool, params, given).is_some());
    SkillLine {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        uid: skill.uid().unwrap_or_default(),
        resource_version: skill.resource_version().unwrap_or_default(),
        digest: summary.in_service.digest.clone(),
        created: skill
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(0, |time| time.0.as_second()),
        overrides: summary.overrides.clone(),
        upload: upload(skill.labels()),
        withheld_tools: withheld.map(|(tool, _)| tool.clone()).collect(),
    }
}

/// An earlier revision of an uploaded skill is not the version that its object says it is now, and the ids of the version that it
/// was name an object of its own. It keeps those of the skill.
fn rename_earlier(line: &mut SkillLine) {
    if let Some(upload) = &mut line.upload {
        upload.number = NO_NUMBER;
        if let Some(ids) = &mut line.overrides.ids {
            ids.retain(|id| !id.contains(':'));
        }
    }
}

/// The version of an uploaded skill that the registry says it is. The gateway searches for that skill in the same
/// namespace, so a label claims nothing of another one.
fn upload(labels: &BTreeMap<String, String>) -> Option<UploadLine> {
    Some(UploadLine {
        of: labels.get(LABEL_UPLOAD_OF)?.clone(),
        number: labels.get(LABEL_UPLOAD_VERSION)?.parse().ok()?,
    })
}

/// The lines of a stream's beginning, for a reader of `protocol`: for a client's namespace if one was asked for, from a hub that reads the
/// Skills of some namespaces (`None`: of all).
pub fn index(
    view: &CatalogView,
    version: &str,
    protocol: u32,
    client_namespace: Option<&str>,
    watched_namespaces: Option<Vec<String>>,
) -> Vec<CatalogLine> {
    let mut lines = vec![
        CatalogLine::Hello(Hello {
            protocol,
            protocol_min: Some(PROTOCOLS.min),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            resource_version: version.to_owned(),
            client_namespace: client_namespace.map(str::to_owned),
            watched_namespaces,
        }),
        CatalogLine::Runtime(Box::new(view.runtime.clone())),
    ];
    lines.extend(
        view.skills
            .values()
            .map(|skill| CatalogLine::Skill(Box::new((**skill).clone()))),
    );
    if !view.unserved.is_empty() {
        lines.push(unserved(view));
    }
    lines.push(synced(version));
    lines
}

/// The lines that lead from one state to the next; none if nothing that gateways receive has changed.
pub fn changes(before: &Arc<CatalogView>, after: &Arc<CatalogView>, version: &str) -> Vec<CatalogLine> {
    let mut lines = Vec::new();
    if Arc::ptr_eq(before, after) {
        return lines;
    }
    if settings_differ(&before.runtime, &after.runtime) {
        lines.push(CatalogLine::Runtime(Box::new(after.runtime.clone())));
    }
    let (now, gone) = differences(&before.skills, &after.skills);
    lines.extend(
        now.into_iter()
            .map(|line| CatalogLine::Skill(Box::new(SkillLine::clone(line)))),
    );
    lines.extend(gone.into_iter().map(|known| {
        CatalogLine::Removed(Removed {
            namespace: known.namespace.clone(),
            name: known.name.clone(),
            uid: known.uid.clone(),
            resource_version: known.resource_version.clone(),
        })
    }));
    if !reported(before).eq(reported(after)) {
        lines.push(unserved(after));
    }
    if !lines.is_empty() {
        lines.push(synced(version));
    }
    lines
}

/// The unserved skills that a stream names, with the reasons. Skills of mode Never come last, so they displace no fault.
fn reported(view: &CatalogView) -> impl Iterator<Item = (&SkillRef, &String)> {
    let others = view.unserved.iter().filter(|(_, why)| !is_never(why));
    let nevers = view.unserved.iter().filter(|(_, why)| is_never(why));
    others.chain(nevers).take(UNSERVED_MAX)
}

fn is_never(why: &str) -> bool {
    [NEVER, MODE_OFF, NEVER_HERE].contains(&why)
}

fn unserved(view: &CatalogView) -> CatalogLine {
    let skills = reported(view).map(|(id, why)| UnservedSkill {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        why: why.clone(),
    });
    CatalogLine::Unserved(UnservedSkills {
        skills: skills.collect(),
    })
}

/// Added or changed lines, and removed ones; each by identity. One pass over both: lines that both views
/// share are compared by their address.
fn differences<'v>(
    before: &'v BTreeMap<Arc<SkillRef>, Arc<SkillLine>>,
    after: &'v BTreeMap<Arc<SkillRef>, Arc<SkillLine>>,
) -> (Vec<&'v Arc<SkillLine>>, Vec<&'v Arc<SkillLine>>) {
    let (mut now, mut gone) = (Vec::new(), Vec::new());
    let (mut old, mut new) = (before.iter().peekable(), after.iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((_, known)), Some((_, line))) if Arc::ptr_eq(known, line) => Ordering::Equal,
            (Some((was, _)), Some((is, _))) => was.cmp(is),
        };
        let known = if order.is_le() { old.next() } else { None };
        let line = if order.is_ge() { new.next() } else { None };
        match (known, line) {
            (Some((_, known)), Some((_, line))) => {
                if !Arc::ptr_eq(known, line) && content_differs(known, line) {
                    now.push(line);
                }
            }
            (None, Some((_, line))) => now.push(line),
            (Some((_, known)), None) => gone.push(known),
            (None, None) => break,
        }
    }
    (now, gone)
}

fn synced(version: &str) -> CatalogLine {
    CatalogLine::Synced(Synced {
        resource_version: version.to_owned(),
    })
}

/// A write to a status changes the version and nothing that is served: no line is sent.
fn settings_differ(one: &RuntimeLine, other: &RuntimeLine) -> bool {
    let versionless = |line: &RuntimeLine| RuntimeLine {
        resource_version: String::new(),
        ..line.clone()
    };
    versionless(one) != versionless(other)
}

fn content_differs(one: &SkillLine, other: &SkillLine) -> bool {
    one.uid != other.uid
        || one.digest != other.digest
        || one.overrides != other.overrides
        || one.upload != other.upload
        || one.withheld_tools != other.withheld_tools
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::runtime_line::runtime_line;
    use knack_hub_api::Overrides;

    fn view(skills: &[(&str, &str, &str)], suspend: bool) -> Arc<CatalogView> {
        let runtime = SkillRuntime::new(
            "r",
            knack_api::SkillRuntimeSpec {
                suspend,
                ..knack_api::SkillRuntimeSpec::default()
            },
        );
        let line = |(name, version, digest): &(&str, &str, &str)| {
            let id = SkillRef {
                namespace: "a".to_owned(),
                name: (*name).to_owned(),
            };
            let line = SkillLine {
                namespace: "a".to_owned(),
                name: (*name).to_owned(),
                uid: format!("uid {name}"),
                resource_version: (*version).to_owned(),
                digest: (*digest).to_owned(),
                created: 0,
                overrides: Overrides::default(),
                upload: None,
                withheld_tools: Vec::new(),
            };
            (Arc::new(id), Arc::new(line))
        };
        let judged = SelectedSkills {
            skills: skills.iter().map(line).collect(),
            unserved: BTreeMap::new(),
        };
        Arc::new(CatalogView::new(runtime_line(&runtime, &[]), judged))
    }

    fn ids(lines: &[CatalogLine]) -> Vec<String> {
        lines
            .iter()
            .map(|line| match line {
                CatalogLine::Hello(hello) => format!("hello {}", hello.resource_version),
                CatalogLine::Runtime(runtime) => format!("runtime suspend={}", runtime.suspend),
                CatalogLine::Skill(skill) => format!("skill {} {}", skill.name, skill.digest),
                CatalogLine::Removed(removed) => format!("removed {} {}", removed.name, removed.resource_version),
                CatalogLine::Synced(_) => "synced".to_owned(),
                CatalogLine::Unserved(unserved) => format!("unserved {}", unserved.skills.len()),
                CatalogLine::Ping | CatalogLine::Unknown => "?".to_owned(),
            })
            .collect()
    }

    #[test]
    fn the_version_that_a_label_says_is_sent() {
        let labelled = |labels: &[(&str, &str)]| {
            let labels = labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            upload(&labels.collect()).map(|upload| (upload.of, upload.number))
        };
        let of = ("knack.dev/upload-of", "word");
        assert_eq!(
            labelled(&[of, ("knack.dev/upload-version", "2")]),
            Some(("word".to_owned(), 2))
        );
        for labels in [vec![], vec![of], vec![of, ("knack.dev/upload-version", "two")]] {
            assert_eq!(labelled(&labels), None, "{labels:?}");
        }
    }

    #[test]
    fn an_earlier_revision_takes_no_id_of_a_version() {
        let ids = ["skill_knack_7", "skill_knack_7:1", "skill_knack_7:latest"].map(str::to_owned);
        let upload = UploadLine {
            of: "x".to_owned(),
            number: 2,
        };
        for (upload, number, expected) in [(Some(upload), Some(NO_NUMBER), &ids[..1]), (None, None, &ids[..])] {
            let view = view(&[("x", "1", "d")], false);
            let mut line = SkillLine::clone(view.skills.values().next().unwrap());
            line.overrides.ids = Some(ids.to_vec());
            line.upload = upload;
            rename_earlier(&mut line);
            assert_eq!(line.overrides.ids.as_deref(), Some(expected));
            assert_eq!(line.upload.map(|upload| upload.number), number);
        }
    }

    #[test]
    fn a_stream_begins_with_everything() {
        assert_eq!(
            ids(&index(
                &view(&[("x", "1", "d")], false),
                "99",
                PROTOCOLS.max,
                None,
                None
            )),
            ["hello 99", "runtime suspend=false", "skill x d", "synced"]
        );
    }

    #[test]
    fn unserved_skill_is_explained_to_those_who_may_see_it() {
        let skill = |ready: serde_json::Value| -> Skill {
            let conditions = if ready.is_null() {
                serde_json::json!([])
            } else {
                serde_json::json!([ready])
            };
            serde_json::from_value(serde_json::json!({
                "metadata": {"namespace": "a", "name": "x"}, "spec": {"source": {}}, "status": {"conditions": conditions},
            }))
            .unwrap()
        };
        let ready = |reason: &str, message: &str| {
            serde_json::json!({"type": "Ready", "status": "False", "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let reported = |reason: RejectionReason, message: &str, ready| {
            let message = message.to_owned();
            why_unserved(&skill(ready), &Rejection { reason, message })
        };
        let none = serde_json::Value::Null;
        assert_eq!(
            reported(RejectionReason::NotAllowedBySkill, "m", none.clone()),
            None,
            "as one that is not there"
        );
        for (reason, message, ready, expected) in [
            (
                RejectionReason::Suspended,
                "spec.suspend is true",
                none.clone(),
                "Suspended: spec.suspend is true",
            ),
            (RejectionReason::NotReady, "m", none, "NotReady: it has no content yet"),
            (
                RejectionReason::NotReady,
                "m",
                ready("InvalidSkill", "SKILL.md:3: no YAML"),
                "InvalidSkill: SKILL.md:3: no YAML",
            ),
            (
                RejectionReason::NotReady,
                "m",
                ready("SourceUnavailable", "archive.corp.example: refused"),
                "SourceUnavailable: see the condition Ready of the Skill",
            ),
        ] {
            assert_eq!(reported(reason, message, ready).as_deref(), Some(expected));
        }
        let long = reported(
            RejectionReason::NotReady,
            "m",
            ready("InvalidSkill", &"ä".repeat(WHY_MAX)),
        )
        .unwrap();
        assert!(long.len() < WHY_MAX + 4 && long.ends_with('…'), "{long}");
    }

    #[test]
    fn what_changed_last_is_found_without_an_index_of_everything() {
        let before = view(&[("x", "1", "d"), ("y", "2", "e")], false);
        let ids: Vec<_> = before.skills.keys().cloned().collect();
        let judged = SelectedSkills {
            skills: before.skills.clone(),
            unserved: BTreeMap::new(),
        };
        let mut after = CatalogView::new(before.runtime.clone(), judged);
        after.latest.push_front(Arc::clone(&ids[1]));
        assert_eq!(after.of_digest("e"), Some(&*ids[1]));
        assert!(after.by_digest.get().is_none());
        assert_eq!(after.of_digest("d"), Some(&*ids[0]));
        assert_eq!(after.of_digest("f"), None);
        // The changes and removals since.
        after.skills.remove(&ids[1]);
        after.by_digest = OnceLock::new();
        assert_eq!(after.of_digest("e"), None);
    }

    #[test]
    fn only_changes_of_what_a_gateway_serves_are_sent() {
        let before = view(&[("x", "1", "d"), ("y", "2", "e")], false);
        assert!(changes(&before, &before, "99").is_empty());
        // A status write: another version, the same content.
        assert!(changes(&before, &view(&[("x", "7", "d"), ("y", "2", "e")], false), "99").is_empty());
        assert_eq!(
            ids(&changes(
                &before,
                &view(&[("x", "7", "f"), ("z", "8", "g")], false),
                "99"
            )),
            ["skill x f", "skill z g", "removed y 2", "synced"]
        );
        assert_eq!(
            ids(&changes(&before, &view(&[], true), "99")),
            ["runtime suspend=true", "removed x 1", "removed y 2", "synced"]
        );
    }
}
