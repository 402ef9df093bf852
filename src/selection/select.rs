//! The selection itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use knack_api::skill::RuntimesFrom;
use knack_api::skill_runtime::{SkillPin, SkillSelector};
use knack_api::skill_status::EarlierRevision;
use knack_api::{Labels, Skill, SkillRuntime};
use knack_hub_api::name_owner;
use knack_skill::model::ActivationMode;
use kube::ResourceExt as _;

use super::config;
use super::earlier;
use super::grants;
use super::limits;
use super::packages::{self, Revision};
use super::risk;
use super::types::{Audience, Rejection, RejectionReason, Scope, Selected};
use super::version::{is_uploaded, newest_version, version_refusal};

/// The skills that a runtime selects, seen by a caller, sorted by namespace and name.
///
/// * A pin selects its skill whatever labels and namespaces say; the skill's consent (`allowedRuntimes`) is asked all the same.
/// * A pin may require a version: of the skill's own revisions and, if it was uploaded, of its versions that its status names. So no
///   verdict depends on another skill.
/// * Without pin: the skill's namespace must match `namespaceSelector` (absent: the runtime's own; at the cluster default: all)
///   and its labels `matchLabels` and `matchExpressions`.
/// * At the cluster default a caller sees the skills of its own namespace, and those whose `from` is `All` or a `Selector`
///   that matches the caller's namespace.
pub fn select<'a>(
    runtime: &'a SkillRuntime,
    scope: &Scope<'_>,
    audience: Audience<'_>,
    skills: impl IntoIterator<Item = &'a Skill>,
) -> Vec<Selected<'a>> {
    let empty = SkillSelector::default();
    let selector = runtime.spec.skill_selector.as_ref();
    let requirements = selector.map(|selector| knack_api::LabelSelector {
        match_labels: selector.match_labels.clone(),
        match_expressions: selector.match_expressions.clone(),
    });
    let is_selected = |skill: &Skill| {
        is_in_namespace(runtime, scope, selector.unwrap_or(&empty), namespace_of(skill))
            && requirements
                .as_ref()
                .is_none_or(|wanted| wanted.matches(skill.labels()))
    };
    let mut wanted: Vec<(&'a Skill, Option<&'a SkillPin>)> = skills
        .into_iter()
        .filter_map(|skill| {
            let pin = pin_of(runtime, namespace_of(skill), name_of(skill));
            let wanted = pin.is_some() || is_selected(skill);
            (wanted && is_visible(runtime, scope, audience, skill)).then_some((skill, pin))
        })
        .collect();
    // Before they are judged: of ten thousand verdicts the moves cost as much as everything else.
    wanted.sort_by_key(|(skill, _)| (namespace_of(skill), name_of(skill)));
    let judged = wanted.into_iter();
    let mut selected: Vec<Selected<'a>> = judged.map(|(skill, pin)| judge(runtime, scope, skill, pin)).collect();
    note_shared_names(runtime, scope, audience, &mut selected);
    note_shared_ids(runtime, scope, audience, &mut selected);
    selected
}

fn namespace_of(skill: &Skill) -> &str {
    skill.metadata.namespace.as_deref().unwrap_or_default()
}

fn name_of(skill: &Skill) -> &str {
    skill.metadata.name.as_deref().unwrap_or_default()
}

/// The pin of a runtime that names a skill.
pub fn pin_of<'a>(runtime: &'a SkillRuntime, namespace: &str, name: &str) -> Option<&'a SkillPin> {
    let own = runtime.own_namespace();
    let pins = &runtime.spec.skill_selector.as_ref()?.skills;
    pins.iter().find(|pin| pin.skill(own) == (namespace, name))
}

/// The version that a runtime's pin requires of a skill that may be served there.
pub fn wanted_version<'a>(runtime: &'a SkillRuntime, scope: &Scope<'_>, skill: &Skill) -> Option<&'a str> {
    let wanted = pin_of(runtime, namespace_of(skill), name_of(skill))?
        .version
        .as_deref()?;
    not_allowed(runtime, scope, skill).is_none().then_some(wanted)
}

/// Whether a runtime can select a skill of a namespace at all: changes in other namespaces do not affect it.
pub fn reaches(runtime: &SkillRuntime, scope: &Scope<'_>, namespace: &str) -> bool {
    let empty = SkillSelector::default();
    let selector = runtime.spec.skill_selector.as_ref().unwrap_or(&empty);
    is_in_namespace(runtime, scope, selector, namespace)
        || selector
            .skills
            .iter()
            .any(|pin| pin.skill(runtime.own_namespace()).0 == namespace)
}

/// The namespaces that a runtime selects from: its own and those of its pins. `None`: any may be one, now or later.
pub fn namespaces_reached(runtime: &SkillRuntime, scope: &Scope<'_>) -> Option<BTreeSet<String>> {
    let selector = runtime.spec.skill_selector.as_ref();
    if scope.cluster_default || selector.is_some_and(|selector| selector.namespace_selector.is_some()) {
        return None;
    }
    let own = runtime.own_namespace();
    let pinned = selector.into_iter().flat_map(|selector| &selector.skills);
    let pinned = pinned.map(|pin| pin.skill(own).0);
    Some(pinned.chain([own]).map(str::to_owned).collect())
}

fn is_in_namespace(runtime: &SkillRuntime, scope: &Scope<'_>, selector: &SkillSelector, namespace: &str) -> bool {
    match &selector.namespace_selector {
        Some(wanted) => wanted.matches(labels_of(scope, namespace)),
        None => scope.cluster_default || runtime.own_namespace() == namespace,
    }
}

static NO_LABELS: Labels = Labels::new();

fn labels_of<'a>(scope: &Scope<'a>, namespace: &str) -> &'a Labels {
    scope.namespaces.get(namespace).unwrap_or(&NO_LABELS)
}

/// What the skill's owner consents to: words and selector.
fn consent(skill: &Skill) -> (RuntimesFrom, Option<&knack_api::LabelSelector>) {
    let namespaces = skill.spec.allowed_runtimes.as_ref().map(|allowed| &allowed.namespaces);
    (
        namespaces.map_or(RuntimesFrom::default(), |namespaces| namespaces.from),
        namespaces.and_then(|namespaces| namespaces.selector.as_ref()),
    )
}

/// Whether this caller may see the skill at this runtime.
fn is_visible(runtime: &SkillRuntime, scope: &Scope<'_>, audience: Audience<'_>, skill: &Skill) -> bool {
    let Audience::Namespace(caller) = audience else {
        return true;
    };
    let namespace = namespace_of(skill);
    // Otherwise the runtime's access rules decide who may call it, and each of its callers sees all of it.
    if !scope.cluster_default || namespace == caller || namespace == runtime.own_namespace() {
        return true;
    }
    match consent(skill) {
        (RuntimesFrom::All, _) => true,
        (RuntimesFrom::Selector, Some(selector)) => selector.matches(labels_of(scope, caller)),
        _ => false,
    }
}

fn judge<'a>(runtime: &SkillRuntime, scope: &Scope<'_>, skill: &'a Skill, pin: Option<&'a SkillPin>) -> Selected<'a> {
    let cap = runtime.spec.max_activation();
    let refused = refusal(runtime, scope, skill, pin);
    let earlier = if refused
        .as_ref()
        .is_none_or(|rejection| rejection.reason.is_of_revision())
    {
        earlier::serving(runtime, skill, pin, scope, refused.is_some())
    } else {
        None
    };
    let asked = asked_mode(skill, earlier);
    let mode = pin
        .and_then(|pin| pin.mode)
        .map_or_else(|| asked.min(cap), ActivationMode::from);
    let accepted = match (refused, earlier) {
        (refused, Some(earlier)) => Ok(Some(earlier::reservation(skill, pin, earlier, refused.as_ref()))),
        (Some(rejection), None) => Err(none_kept(skill, rejection)),
        (None, None) if mode < asked && pin.is_none_or(|pin| pin.mode.is_none()) => Ok(Some(Rejection {
            reason: RejectionReason::ServedAtCap,
            message: format!(
                "requests activation {}, is served as {}: the runtime's maxActivation; raise it or pin the skill",
                asked.as_str(),
                mode.as_str()
            ),
        })),
        (None, None) => Ok(super::inputs::reservation(skill, pin, mode)
            .or_else(|| packages::reservation(runtime, Revision::newest(skill), scope))
            .or_else(|| config::reservation(skill, pin))
            .or_else(|| risk::reservation(runtime, skill))
            .or_else(|| grants::reservation(runtime, skill))),
    };
    Selected {
        skill,
        pin,
        earlier,
        mode,
        accepted,
    }
}

/// A refusal, which says of an uploaded skill without the required version that the choice was among all of its versions.
fn none_kept(skill: &Skill, mut refused: Rejection) -> Rejection {
    if refused.reason == RejectionReason::VersionNotMatched && is_uploaded(skill) {
        refused.message.push_str(
            ", or upload a version that matches: no other one that the registry keeps does, or it is not delivered",
        );
    }
    refused
}

/// The activation that the revision in service asks for; of the spec before there is one.
fn asked_mode(skill: &Skill, earlier: Option<&EarlierRevision>) -> ActivationMode {
    let served = match earlier {
        Some(earlier) => earlier.activation,
        None => skill.status.as_ref().and_then(|status| status.activation),
    };
    let written = skill.spec.activation.as_ref().and_then(|activation| activation.mode);
    served.or(written).map(ActivationMode::from).unwrap_or_default()
}

fn refusal(runtime: &SkillRuntime, scope: &Scope<'_>, skill: &Skill, pin: Option<&SkillPin>) -> Option<Rejection> {
    not_allowed(runtime, scope, skill)
        .or_else(|| {
            skill.spec.is_suspended().then(|| Rejection {
                reason: RejectionReason::Suspended,
                message: "spec.suspend is true".to_owned(),
            })
        })
        // This is of the skill as a whole, so it comes before all that is of its newest revision alone.
        .or_else(|| limits::check(runtime, skill.spec.sandbox.as_ref()?, scope))
        .or_else(|| {
            let served = skill.status.as_ref().is_some_and(|status| status.artifact.is_some());
            (!served).then(|| Rejection {
                reason: RejectionReason::NotReady,
                message: "no valid content yet; see condition Ready of the skill".to_owned(),
            })
        })
        .or_else(|| version_refusal(pin, newest_version(skill)))
        .or_else(|| packages::refusal(runtime, Revision::newest(skill), scope))
}

fn not_allowed(runtime: &SkillRuntime, scope: &Scope<'_>, skill: &Skill) -> Option<Rejection> {
    let own = runtime.own_namespace();
    if namespace_of(skill) == own {
        return None;
    }
    let allowed = match consent(skill) {
        (RuntimesFrom::Same, _) => false,
        (RuntimesFrom::SameOrClusterDefault, _) => scope.cluster_default,
        (RuntimesFrom::All, _) => true,
        // At the cluster default the selector chooses among callers, not among runtimes.
        (RuntimesFrom::Selector, selector) => {
            scope.cluster_default || selector.is_some_and(|selector| selector.matches(labels_of(scope, own)))
        }
    };
    (!allowed).then(|| Rejection {
        reason: RejectionReason::NotAllowedBySkill,
        message: format!(
            "spec.allowedRuntimes of the skill does not allow runtimes of namespace {own}; its owner can set namespaces.from to All or to a Selector"
        ),
    })
}

/// The indices of accepted skills that share a name, by name.
fn shared_names<'a>(selected: &[Selected<'a>]) -> BTreeMap<&'a str, Vec<usize>> {
    let accepted = || selected.iter().enumerate().filter(|(_, item)| item.accepted.is_ok());
    let mut counts: HashMap<&str, usize> = HashMap::with_capacity(selected.len());
    for (_, item) in accepted() {
        *counts.entry(name_of(item.skill)).or_default() += 1;
    }
    let mut indices: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    if counts.len() < accepted().count() {
        for (index, item) in
            accepted().filter(|(_, item)| counts.get(name_of(item.skill)).is_some_and(|count| *count > 1))
        {
            indices.entry(name_of(item.skill)).or_default().push(index);
        }
    }
    indices
}

/// Where skills of one view have the same name, all but one go by `namespace/name`; those of them that were served
/// without reservation say so.
fn note_shared_names(runtime: &SkillRuntime, scope: &Scope<'_>, audience: Audience<'_>, selected: &mut [Selected<'_>]) {
    for (name, indices) in shared_names(selected) {
        let skills: Vec<&Skill> = indices
            .iter()
            .filter_map(|index| Some(selected.get(*index)?.skill))
            .collect();
        // Tenants of the cluster default whose skills are visible only to themselves share no name.
        if audience == Audience::All && scope.cluster_default && !skills.iter().any(|skill| is_shared(runtime, skill)) {
            continue;
        }
        let candidates = skills.iter().map(|skill| (namespace_of(skill), created(skill)));
        let home = match audience {
            Audience::Namespace(namespace) => Some(namespace),
            Audience::All => None,
        };
        let Some(owner) = name_owner(candidates, home, runtime.own_namespace()) else {
            continue;
        };
        let message = format!(
            "{} skills share the name {name}. Here the short name {name} refers to {owner}/{name}; refer to this one as namespace/{name}, or rename it. Callers in its own namespace can still use {name}.",
            indices.len()
        );
        for index in indices {
            if let Some(item) = selected.get_mut(index)
                && namespace_of(item.skill) != owner
                && matches!(item.accepted, Ok(None))
            {
                item.accepted = Ok(Some(Rejection {
                    reason: RejectionReason::NameShared,
                    message: message.clone(),
                }));
            }
        }
    }
}

/// The ids by which requests may name a skill.
pub fn ids_of(skill: &Skill) -> &[String] {
    skill.status.as_ref().map_or(&[][..], |status| status.ids.as_slice())
}

/// The skills of one view that requests could mean by one word, counted by who sees them.
#[derive(Default)]
struct Meant<'a> {
    all: usize,
    /// Skills that callers of other namespaces may see.
    shared: usize,
    by_namespace: HashMap<&'a str, usize>,
}

impl<'a> Meant<'a> {
    fn add(&mut self, skill: &'a Skill, is_shared: bool) {
        self.all += 1;
        self.shared += usize::from(is_shared);
        *self.by_namespace.entry(namespace_of(skill)).or_default() += 1;
    }

    /// Whether callers of a skill's namespace see more of them than the skill itself, which is one of them if `is_one`. Tenants of the
    /// cluster default are `apart`: of each other they see what is shared.
    fn has_others(&self, skill: &Skill, is_one: bool, is_shared: bool, apart: bool) -> bool {
        if !apart {
            return self.all > usize::from(is_one);
        }
        let own = self.by_namespace.get(namespace_of(skill)).copied().unwrap_or(0);
        own > usize::from(is_one) || self.shared > usize::from(is_one && is_shared)
    }
}

/// An id that several skills of a view carry names none of them, and one that is the name of a skill names that one
/// (`knack_skill::catalog`); those that cannot be named by it, and were served without reservation, say so. No skill is named there: it may
/// be one of another tenant.
fn note_shared_ids(runtime: &SkillRuntime, scope: &Scope<'_>, audience: Audience<'_>, selected: &mut [Selected<'_>]) {
    let apart = audience == Audience::All && scope.cluster_default;
    let served = || selected.iter().filter(|item| item.accepted.is_ok());
    let mut carriers: HashMap<&str, Meant<'_>> = HashMap::new();
    for item in served().filter(|item| item.mode != ActivationMode::Never) {
        for id in ids_of(item.skill) {
            let carriers = carriers.entry(id).or_default();
            carriers.add(item.skill, is_shared(runtime, item.skill));
        }
    }
    if carriers.is_empty() {
        return;
    }
    let mut named: HashMap<&str, Meant<'_>> = HashMap::new();
    for item in served().filter(|item| carriers.contains_key(name_of(item.skill))) {
        let named = named.entry(name_of(item.skill)).or_default();
        named.add(item.skill, is_shared(runtime, item.skill));
    }
    for item in selected.iter_mut().filter(|item| matches!(item.accepted, Ok(None))) {
        if item.mode == ActivationMode::Never {
            continue;
        }
        let (skill, shared) = (item.skill, is_shared(runtime, item.skill));
        let others = |meant: &HashMap<&str, Meant<'_>>, id: &str, is_one| {
            let meant = meant.get(id);
            meant.is_some_and(|meant| meant.has_others(skill, is_one, shared, apart))
        };
        let mut ids = ids_of(skill).iter().filter(|id| *id != name_of(skill));
        let why = ids.find_map(|id| {
            if others(&named, id, false) {
                Some(format!(
                    "its id {id} is the name of another skill here, which requests get by it"
                ))
            } else {
                others(&carriers, id, true).then(|| {
                    format!(
                        "other skills here carry its id {id} too, so requests with it are refused (skill_ambiguous)"
                    )
                })
            }
        });
        if let Some(why) = why {
            item.accepted = Ok(Some(Rejection {
                reason: RejectionReason::IdShared,
                message: format!(
                    "{why}; remove the id from spec.ids or metadata.skill_id of all skills but one, or name this one by its name"
                ),
            }));
        }
    }
}

/// When an object was made, seconds since the Unix epoch.
pub fn created(skill: &Skill) -> i64 {
    let created = skill.metadata.creation_timestamp.as_ref();
    created.map_or(0, |time| time.0.as_second())
}

/// Whether callers of other namespaces may see a skill at the cluster default.
pub fn is_shared(runtime: &SkillRuntime, skill: &Skill) -> bool {
    namespace_of(skill) == runtime.own_namespace()
        || matches!(consent(skill).0, RuntimesFrom::All | RuntimesFrom::Selector)
}
