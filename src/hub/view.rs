//! What one runtime serves to one kind of caller, and how that changes. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use knack_skill::model::{ActivationMode, SkillRef};
use kube::ResourceExt as _;

use super::artifacts::{Summary, reference};
use super::runtime_line::runtime_line;
use crate::api::{Skill, SkillRuntime};
use crate::hub_api::{CatalogLine, Hello, PROTOCOL, Removed, RuntimeLine, SkillLine, Synced};
use crate::selection::{Caller, Scope, select};

/// A complete state of a catalog.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Settings.
    pub runtime: RuntimeLine,
    /// Skills served, by identity. Empty while the runtime is suspended.
    pub skills: BTreeMap<SkillRef, Arc<SkillLine>>,
    /// Highest resourceVersion of any Skill that this replica has seen.
    pub seen: String,
}

/// Builds a view. `summary` finds the artifact of a revision; a skill whose artifact is not read yet is left out until it is.
pub fn build<'a>(
    runtime: &'a SkillRuntime,
    scope: &Scope<'_>,
    caller: Caller<'_>,
    skills: impl IntoIterator<Item = &'a Skill>,
    seen: &str,
    summary: impl Fn(&SkillRef, &str) -> Option<Arc<Summary>>,
) -> View {
    let settings = runtime_line(runtime);
    let mut served = BTreeMap::new();
    if !settings.suspend {
        for item in select(runtime, scope, caller, skills) {
            if item.accepted.is_err() || item.mode == ActivationMode::Never {
                continue;
            }
            let id = reference(item.skill);
            if let Some(line) = line(item.skill, &id, &summary) {
                served.insert(id, Arc::new(line));
            }
        }
    }
    View {
        runtime: settings,
        skills: served,
        seen: seen.to_owned(),
    }
}

fn line(skill: &Skill, id: &SkillRef, summary: &impl Fn(&SkillRef, &str) -> Option<Arc<Summary>>) -> Option<SkillLine> {
    let revision = &skill.status.as_ref()?.artifact.as_ref()?.revision;
    let summary = summary(id, revision)?;
    Some(SkillLine {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        uid: skill.uid().unwrap_or_default(),
        resource_version: skill.resource_version().unwrap_or_default(),
        digest: summary.digest.clone(),
        overrides: summary.overrides.clone(),
    })
}

/// The lines of a stream's beginning.
pub fn index(view: &View) -> Vec<CatalogLine> {
    let mut lines = vec![
        CatalogLine::Hello(Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            resource_version: view.seen.clone(),
        }),
        CatalogLine::Runtime(Box::new(view.runtime.clone())),
    ];
    lines.extend(
        view.skills
            .values()
            .map(|skill| CatalogLine::Skill(Box::new((**skill).clone()))),
    );
    lines.push(synced(view));
    lines
}

/// The lines that lead from one state to the next; none if nothing that a gateway knows has changed.
pub fn changes(before: &View, after: &View) -> Vec<CatalogLine> {
    let mut lines = Vec::new();
    if settings_differ(&before.runtime, &after.runtime) {
        lines.push(CatalogLine::Runtime(Box::new(after.runtime.clone())));
    }
    for (id, skill) in &after.skills {
        let same = before
            .skills
            .get(id)
            .is_some_and(|known| !content_differs(known, skill));
        if !same {
            lines.push(CatalogLine::Skill(Box::new((**skill).clone())));
        }
    }
    for (id, known) in &before.skills {
        if !after.skills.contains_key(id) {
            lines.push(CatalogLine::Removed(Removed {
                namespace: id.namespace.clone(),
                name: id.name.clone(),
                uid: known.uid.clone(),
                resource_version: known.resource_version.clone(),
            }));
        }
    }
    if !lines.is_empty() {
        lines.push(synced(after));
    }
    lines
}

fn synced(view: &View) -> CatalogLine {
    CatalogLine::Synced(Synced {
        resource_version: view.seen.clone(),
    })
}

/// A write to a status changes the version and nothing that is served: it is not told.
fn settings_differ(one: &RuntimeLine, other: &RuntimeLine) -> bool {
    let versionless = |line: &RuntimeLine| RuntimeLine {
        resource_version: String::new(),
        ..line.clone()
    };
    versionless(one) != versionless(other)
}

fn content_differs(one: &SkillLine, other: &SkillLine) -> bool {
    one.uid != other.uid || one.digest != other.digest || one.overrides != other.overrides
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub_api::Overrides;

    fn view(skills: &[(&str, &str, &str)], suspend: bool) -> View {
        let runtime = SkillRuntime::new(
            "r",
            crate::api::SkillRuntimeSpec {
                suspend,
                ..crate::api::SkillRuntimeSpec::default()
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
                overrides: Overrides::default(),
            };
            (id, Arc::new(line))
        };
        View {
            runtime: runtime_line(&runtime),
            skills: skills.iter().map(line).collect(),
            seen: "99".to_owned(),
        }
    }

    fn told(lines: &[CatalogLine]) -> Vec<String> {
        lines
            .iter()
            .map(|line| match line {
                CatalogLine::Hello(hello) => format!("hello {}", hello.resource_version),
                CatalogLine::Runtime(runtime) => format!("runtime suspend={}", runtime.suspend),
                CatalogLine::Skill(skill) => format!("skill {} {}", skill.name, skill.digest),
                CatalogLine::Removed(removed) => format!("removed {} {}", removed.name, removed.resource_version),
                CatalogLine::Synced(_) => "synced".to_owned(),
                CatalogLine::Ping | CatalogLine::Unknown => "?".to_owned(),
            })
            .collect()
    }

    #[test]
    fn a_stream_begins_with_everything() {
        assert_eq!(
            told(&index(&view(&[("x", "1", "d")], false))),
            ["hello 99", "runtime suspend=false", "skill x d", "synced"]
        );
    }

    #[test]
    fn only_what_a_gateway_would_serve_differently_is_told() {
        let before = view(&[("x", "1", "d"), ("y", "2", "e")], false);
        assert!(changes(&before, &before).is_empty());
        // A status write: another version, the same content.
        assert!(changes(&before, &view(&[("x", "7", "d"), ("y", "2", "e")], false)).is_empty());
        assert_eq!(
            told(&changes(&before, &view(&[("x", "7", "f"), ("z", "8", "g")], false))),
            ["skill x f", "skill z g", "removed y 2", "synced"]
        );
        assert_eq!(
            told(&changes(&before, &view(&[], true))),
            ["runtime suspend=true", "removed x 1", "removed y 2", "synced"]
        );
    }
}
