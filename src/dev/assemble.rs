//! From what was found in files to a snapshot: which runtime, which skills.

use std::collections::{BTreeMap, HashMap};

use knack_gateway::catalog::{
    self, LastGood, RuntimeSettings, Selected, SkillSource, Snapshot, SourceReport, UnreadSources,
};
use knack_packages::stated;
use knack_skill::catalog::{ConfigValues, Node};
use knack_skill::model::SkillRef;

use super::discover::Discovered;
use super::runtime;

/// Makes a snapshot of what was found. A source that is broken now keeps its last good revision, and a report says so.
pub fn assemble(mut found: Discovered, node: Node, last: &mut LastGood) -> Snapshot {
    let mut reports = std::mem::take(&mut found.reports);
    let mut settings = choose_runtime(&found, last, &mut reports);
    // The settings that were served last have them already: once more is the same.
    if let ConfigValues::Here(values) = &mut settings.config {
        values.retain(|known| !found.given.contains(known));
        values.extend(found.given.iter().cloned());
    }
    let mut first: HashMap<&SkillRef, &str> = HashMap::new();
    let mut sources: Vec<&SkillSource> = Vec::new();
    let mut failed = found.failed.clone();
    let mut refused: Vec<&SkillRef> = Vec::new();
    for source in &found.skills {
        if let Some(first) = first.get(&source.id) {
            let text = format!(
                "skill {}/{} is already defined in {first}; this one is left out; rename one",
                source.id.namespace, source.id.name
            );
            reports.push(SourceReport::error(source.origin.clone(), text));
            continue;
        }
        first.insert(&source.id, &source.origin);
        match runtime::accepts(&settings, source) {
            Ok(()) => match packages_refused_now(source, last) {
                None => sources.push(source),
                Some(why) => {
                    let text = format!("skill {}: {why}", source.id.name);
                    reports.push(SourceReport::error(source.origin.clone(), text));
                    failed.push(source.origin.clone());
                    refused.push(&source.id);
                }
            },
            Err(reason) => {
                let text = format!("skill {} is not served: {reason}", source.id.name);
                reports.push(SourceReport::warning(source.origin.clone(), text));
            }
        }
    }
    let selected = Selected {
        sources: &sources,
        names: &BTreeMap::new(),
        unread: UnreadSources {
            origins: &failed,
            found: first.into_keys().filter(|id| !refused.contains(id)).cloned().collect(),
        },
    };
    catalog::assemble(&selected, settings, node, last, reports)
}

/// Why a skill cannot have the packages that it declares now, if the revision that was served last could: that one goes
/// on. A skill that never could is served, and its code is not run.
fn packages_refused_now(source: &SkillSource, last: &LastGood) -> Option<String> {
    let declared = stated(&source.files, source.overrides.packages.as_ref());
    let why = declared.findings.iter().find(|finding| finding.is_error())?;
    let before = last.skill(&source.id)?;
    let was_refused = stated(&before.files, before.requirements.as_ref()).is_refused();
    (!was_refused).then(|| why.to_string())
}

fn choose_runtime(found: &Discovered, last: &LastGood, reports: &mut Vec<SourceReport>) -> RuntimeSettings {
    let (chosen, notes) = runtime::choose(&found.runtimes);
    reports.extend(notes);
    // A runtime whose file broke is still the runtime; defaults would widen what it allows.
    chosen.unwrap_or_else(|| match last.runtime() {
        Some(last) if !found.failed.is_empty() => last.clone(),
        _ => RuntimeSettings::default(),
    })
}
