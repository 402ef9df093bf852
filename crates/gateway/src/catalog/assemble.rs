//! Makes a snapshot of the sources: checking them, keeping the last good revision, notes about all of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use knack_skill::catalog::{Catalog, Node, Unserved};
use knack_skill::model::{ActivationMode, SkillRef};
use knack_skill::problem::{Profile, Severity};
use knack_skill::template::{FilledTooLarge, MAX_FILLED_BYTES};

use super::last_good::{JudgedSource, LastGood, last_good_report};
use super::runtime::RuntimeSettings;
use super::snapshot::{Snapshot, skill_digest};
use super::source::{ReportLevel, SkillSource, SourceReport};

/// The input of a catalog: the skills that its runtime accepts, before they are checked.
#[derive(Debug)]
pub struct Selected<'a> {
    /// Skills, each once.
    pub sources: &'a [&'a SkillSource],
    /// Which skill keeps a name that several have.
    pub names: &'a BTreeMap<String, SkillRef>,
    /// Skills that stay as they were served last.
    pub unread: UnreadSources<'a>,
}

/// Whether what a file or folder gave could not be read, since it failed itself, or a folder above it.
pub fn has_failed(origin: &str, failed: &[String]) -> bool {
    failed.iter().any(|failed| Path::new(origin).starts_with(failed))
}

/// See [`Selected::unread`].
#[derive(Debug, Default)]
pub struct UnreadSources<'a> {
    /// Origins that could not be read at all; of a folder, nothing below it.
    pub origins: &'a [String],
    /// Skills that were found meanwhile, served or not.
    pub found: HashSet<SkillRef>,
    /// Skills that were found, and of which the revision that was served last goes on, for a reason that is reported already.
    pub held: &'a [&'a SkillRef],
}

/// Makes a snapshot. A source that is broken now keeps its last good revision, and a report says so.
pub fn assemble(
    selected: &Selected<'_>,
    mut runtime: RuntimeSettings,
    node: Node,
    last: &mut LastGood,
    mut reports: Vec<SourceReport>,
) -> Snapshot {
    let mut served = BTreeMap::new();
    for source in selected.sources {
        let known = reports.len();
        if let Some(kept) = judge(source, last.skills.remove(&source.id), &mut reports) {
            served.insert(source.id.clone(), kept);
        } else {
            let mut of_source = reports.iter().skip(known);
            let error = of_source.find(|report| report.level == ReportLevel::Error);
            runtime.unserved.push(Unserved {
                skill: source.id.clone(),
                why: error.map(|report| report.text.clone()).unwrap_or_default(),
            });
        }
    }
    keep_unread(&selected.unread, last, &mut served, &mut reports);
    let skills = served.values().map(|kept| Arc::clone(&kept.skill)).collect();
    let digests = served.values().map(|kept| kept.digest);
    let mut snapshot = Snapshot::compile(skills, digests, selected.names, runtime, node);
    last.skills = served.into_iter().collect();
    last.runtime = Some(snapshot.runtime.clone());
    reports.extend(notes(&snapshot.catalog, &snapshot.runtime, &last.skills));
    snapshot.reports = reports;
    snapshot
}

/// Notes about skills together: names and ids that clash, pins that do not fit, a list over its budget.
fn notes(catalog: &Catalog, runtime: &RuntimeSettings, served: &HashMap<SkillRef, JudgedSource>) -> Vec<SourceReport> {
    let origin = format!("SkillRuntime {}", runtime.name);
    let clashes = catalog.clashes().iter().map(ToString::to_string);
    let pins = runtime.pins.iter().filter_map(|pin| pin_note(catalog, pin));
    let counts = catalog.listing_counts();
    let over = (counts.cut + counts.bare + counts.left_out > 0).then(|| {
        format!(
            "the list of skills exceeds its budget of {} tokens: {} entries are complete, {} truncated, {} without description, {} skills omitted; shorten descriptions, or raise spec.gateway.injection.maxListingTokens",
            runtime.max_listing_tokens, counts.whole, counts.cut, counts.bare, counts.left_out
        )
    });
    let about_all = clashes
        .chain(over)
        .map(|text| SourceReport::warning(origin.clone(), text));
    let about_pins = pins.map(|(skill, text)| {
        let origin_of_skill = served.get(skill).map_or(origin.as_str(), |kept| kept.origin.as_str());
        SourceReport::warning(origin_of_skill, format!("skill {}: {text}", skill.name))
    });
    about_all.chain(about_pins).collect()
}

/// A pin whose inputs do not match those of its skill.
fn pin_note<'a>(catalog: &Catalog, pin: &'a knack_skill::catalog::Pin) -> Option<(&'a SkillRef, String)> {
    let entry = catalog.get(&pin.skill)?;
    let declared = |name: &String| entry.skill.inputs.iter().any(|input| input.name == *name);
    let unknown: Vec<&str> = pin
        .inputs
        .keys()
        .filter(|name| !declared(name))
        .map(String::as_str)
        .collect();
    if !unknown.is_empty() {
        let text = format!(
            "its pin sets inputs that it does not declare: {}; they have no effect",
            unknown.join(", ")
        );
        return Some((&pin.skill, text));
    }
    let bytes = entry.body_bytes(&BTreeMap::new());
    if bytes > MAX_FILLED_BYTES {
        let text = format!("its pin makes its instructions too long: {}", FilledTooLarge { bytes });
        return Some((&pin.skill, text));
    }
    let missing = entry.missing_inputs(&BTreeMap::new());
    if missing.is_empty() || !matches!(entry.mode, ActivationMode::Always | ActivationMode::Auto) {
        return None;
    }
    let names: Vec<&str> = missing.iter().map(|input| input.name.as_str()).collect();
    let text = format!(
        "its pin has no value for required inputs: {}; the model is asked for them and gets the instructions only then",
        names.join(", ")
    );
    Some((&pin.skill, text))
}

/// Judges one source by the load profile; on errors falls back to the last good revision of the same skill.
fn judge(source: &SkillSource, last: Option<JudgedSource>, reports: &mut Vec<SourceReport>) -> Option<JudgedSource> {
    let fingerprint = source.fingerprint();
    let last = match last {
        Some(kept) if kept.fingerprint == fingerprint => {
            reports.extend(kept.warnings.iter().cloned());
            return Some(JudgedSource {
                origin: source.origin.clone(),
                ..kept
            });
        }
        last => last,
    };
    let loaded = source.load(Profile::Load);
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    for problem in &loaded.problems {
        let text = format!("skill {}: {problem}", source.id.name);
        match problem.severity {
            Severity::Error => errors.push(SourceReport::error(source.origin.clone(), text)),
            Severity::Warning => warnings.push(SourceReport::warning(source.origin.clone(), text)),
        }
    }
    reports.extend(errors.iter().cloned());
    reports.extend(warnings.iter().cloned());
    match (loaded.skill, last) {
        (Some(mut skill), _) => {
            skill.packages = (source.packages)(&skill);
            Some(JudgedSource {
                origin: source.origin.clone(),
                fingerprint,
                digest: skill_digest(&skill),
                skill: Arc::new(skill),
                warnings,
            })
        }
        (None, Some(kept)) => {
            reports.push(last_good_report(&source.origin, &source.id));
            Some(kept)
        }
        (None, None) => None,
    }
}

/// A file or folder that could not be read does not show which skills it held: they stay as they were, and so do those that
/// are held.
fn keep_unread(
    unread: &UnreadSources<'_>,
    last: &LastGood,
    served: &mut BTreeMap<SkillRef, JudgedSource>,
    reports: &mut Vec<SourceReport>,
) {
    for (id, kept) in &last.skills {
        let is_unread = has_failed(&kept.origin, unread.origins) && !unread.found.contains(id);
        if is_unread {
            reports.push(last_good_report(&kept.origin, id));
        }
        if is_unread || unread.held.contains(&id) {
            served.insert(id.clone(), kept.clone());
        }
    }
}
