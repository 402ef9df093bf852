//! Makes one immutable snapshot of the sources: checking, keeping the last good revision, compiling.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use http::HeaderValue;
use knack_skill::catalog::{Catalog, CatalogEntry, CatalogSettings, Node, Unserved};
use knack_skill::model::{ActivationMode, Skill, SkillRef};
use knack_skill::problem::{Profile, Severity};
use knack_skill::template::{FilledTooLarge, MAX_FILLED_BYTES};
use sha2::{Digest, Sha256};

use super::runtime::RuntimeSettings;
use super::source::{ReportLevel, SkillSource, SourceReport};

/// The catalog that every request of one moment is served from.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Skills, texts and indices.
    pub catalog: Arc<Catalog>,
    /// The runtime's settings.
    pub runtime: RuntimeSettings,
    /// First 12 hex digits of a hash over every skill's digest and the settings.
    pub revision: String,
    /// Skills served, by identity.
    pub skills: Vec<Arc<Skill>>,
    /// A digest over them.
    digest: [u8; 32],
    /// How many of them a request lists.
    pub listed: usize,
    /// Problems and notes about the sources.
    pub reports: Vec<SourceReport>,
    /// Why there is no catalog at all: the hub has not answered yet, or not for too long a time. Requests are passed on,
    /// nothing is injected, and a request that names a skill is refused with this text.
    pub(crate) absent: Option<String>,
    /// `x-knack` of the requests that get what all get, made with the first of them.
    pub(crate) usual_header: OnceLock<HeaderValue>,
}

impl Snapshot {
    /// The snapshot of a gateway that has no catalog, under the settings that it last knew.
    pub fn without_catalog(runtime: RuntimeSettings, reason: impl Into<String>) -> Self {
        let snapshot = finish(
            BTreeMap::new(),
            &BTreeMap::new(),
            runtime,
            Node::Absent,
            &mut LastGood::default(),
            Vec::new(),
        );
        Self {
            absent: Some(reason.into()),
            ..snapshot
        }
    }

    /// Whether the runtime is switched off: requests pass as they are, nothing is offered, and nothing runs. Whoever serves from
    /// this snapshot asks here; the answer itself comes with the settings.
    pub fn is_suspended(&self) -> bool {
        self.runtime.suspend
    }

    /// The skills that are served: none of mode Never, and none at all while the runtime is suspended.
    pub fn served(&self) -> impl Iterator<Item = &CatalogEntry> {
        let suspended = self.is_suspended();
        let entries = self.catalog.entries().iter();
        entries.filter(move |entry| !suspended && entry.mode != ActivationMode::Never)
    }
}

impl Snapshot {
    /// The names of its skills, as `namespace/name`.
    pub fn names(&self) -> Vec<String> {
        let ids = self.skills.iter().map(|skill| &skill.id);
        ids.map(SkillRef::to_string).collect()
    }

    /// This snapshot with more skills: those of one caller. A name that a skill of this snapshot has stays its own; of the
    /// others the first keeps it.
    #[must_use]
    pub fn with_skills(&self, more: &[Arc<Skill>]) -> Self {
        let node = self.catalog.settings().node;
        let skills: Vec<Arc<Skill>> = self.skills.iter().chain(more).cloned().collect();
        let mut names = BTreeMap::new();
        for skill in more.iter().filter(|skill| self.catalog.find(&skill.id.name).is_none()) {
            names.entry(skill.id.name.clone()).or_insert_with(|| skill.id.clone());
        }
        for entry in self.catalog.entries() {
            names.insert(entry.handle.to_string(), entry.skill.id.clone());
        }
        let added = more.iter().map(|skill| skill_digest(skill));
        let digest = digest_of(std::iter::once(self.digest).chain(added));
        let revision = revision(digest, &names, &self.runtime, node);
        let catalog = Catalog::compile_named(skills.clone(), settings(&self.runtime, &revision, node), &names);
        Self {
            listed: listed(&catalog),
            catalog: Arc::new(catalog),
            runtime: self.runtime.clone(),
            revision,
            skills,
            digest,
            reports: Vec::new(),
            absent: self.absent.clone(),
            usual_header: OnceLock::new(),
        }
    }
}

/// How many skills a request lists: those that the budget of the list leaves out are not in its text.
fn listed(catalog: &Catalog) -> usize {
    let counts = catalog.listing_counts();
    counts.whole + counts.cut + counts.bare
}

/// The sources that were served last, by origin and identity, for the case that a source breaks.
#[derive(Debug, Default, Clone)]
pub struct LastGood {
    skills: HashMap<SkillRef, JudgedSource>,
    runtime: Option<RuntimeSettings>,
    runtime_origin: Option<String>,
}

impl LastGood {
    /// The settings that were served last.
    pub fn runtime(&self) -> Option<&RuntimeSettings> {
        self.runtime.as_ref()
    }

    /// The file that they are from, if they are from one.
    pub fn runtime_origin(&self) -> Option<&str> {
        self.runtime_origin.as_deref()
    }

    /// Notes the file that the settings which are served now are from.
    pub fn set_runtime_origin(&mut self, origin: Option<String>) {
        self.runtime_origin = origin;
    }

    /// The skills that were served last from a file or folder.
    pub fn of_origin<'a>(&'a self, origin: &'a str) -> impl Iterator<Item = &'a SkillRef> {
        let of_it = self.skills.iter().filter(move |(_, kept)| kept.origin == origin);
        of_it.map(|(id, _)| id)
    }

    /// Whether something that was served last is from this file or folder.
    pub fn is_served_from(&self, origin: &str) -> bool {
        self.runtime_origin() == Some(origin) || self.of_origin(origin).next().is_some()
    }

    /// A skill as it was served last.
    pub fn skill(&self, id: &SkillRef) -> Option<&Arc<Skill>> {
        self.skills.get(id).map(|kept| &kept.skill)
    }
}

#[derive(Debug, Clone)]
struct JudgedSource {
    origin: String,
    /// Files and overrides it was made from: unchanged sources are not judged again.
    fingerprint: [u8; 32],
    skill: Arc<Skill>,
    /// Its part of the catalog's revision.
    digest: [u8; 32],
    warnings: Vec<SourceReport>,
}

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
    finish(served, selected.names, runtime, node, last, reports)
}

fn finish(
    served: BTreeMap<SkillRef, JudgedSource>,
    names: &BTreeMap<String, SkillRef>,
    runtime: RuntimeSettings,
    node: Node,
    last: &mut LastGood,
    reports: Vec<SourceReport>,
) -> Snapshot {
    let skills: Vec<Arc<Skill>> = served.values().map(|kept| Arc::clone(&kept.skill)).collect();
    let digest = digest_of(served.values().map(|kept| kept.digest));
    let revision = revision(digest, names, &runtime, node);
    let catalog = Catalog::compile_named(skills.clone(), settings(&runtime, &revision, node), names);
    last.skills = served.into_iter().collect();
    last.runtime = Some(runtime.clone());
    let mut reports = reports;
    reports.extend(notes(&catalog, &runtime, &last.skills));
    Snapshot {
        listed: listed(&catalog),
        catalog: Arc::new(catalog),
        runtime,
        revision,
        skills,
        digest,
        reports,
        absent: None,
        usual_header: OnceLock::new(),
    }
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

/// A warning that the last good revision of a skill goes on.
pub fn last_good_report(origin: &str, id: &SkillRef) -> SourceReport {
    SourceReport::warning(
        origin,
        format!(
            "skill {}: the last good revision stays in service until this is fixed",
            id.name
        ),
    )
}

/// The part of a catalog's revision that one skill makes.
fn skill_digest(skill: &Skill) -> [u8; 32] {
    // Without `..`: a field that is added must be named here, or a change of it alone would not be served.
    let Skill {
        id,
        digest,
        activation,
        tags,
        tools,
        inputs,
        ids,
        object_ids,
        upload,
        packages,
        requirements,
        version,
        sandbox,
        withheld,
        // Read from the files, which `digest` covers, from `id` and from `tools`: no manifest replaces them.
        title: _,
        description: _,
        dialect: _,
        body: _,
        document: _,
        install_count: _,
        env: _,
        extra: _,
        files: _,
    } = skill;
    let mut hash = Sha256::new();
    hash.update(format!(
        "{id} {digest} {activation:?} {tags:?} {tools:?} {inputs:?} {ids:?}\n"
    ));
    hash.update(format!("{object_ids:?} {upload:?}\n"));
    hash.update(format!("{packages:?} {requirements:?}\n"));
    hash.update(format!("{version:?} {sandbox:?}\n"));
    hash.update(format!("{withheld:?}\n"));
    hash.finalize().into()
}

/// A digest over the digests of skills.
fn digest_of(skills: impl Iterator<Item = [u8; 32]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    skills.for_each(|digest| hash.update(digest));
    hash.finalize().into()
}

fn revision(skills: [u8; 32], names: &BTreeMap<String, SkillRef>, runtime: &RuntimeSettings, node: Node) -> String {
    let mut hash = Sha256::new();
    hash.update(skills);
    for (name, owner) in names {
        for part in [name, &owner.namespace, &owner.name] {
            hash.update(part);
            hash.update([0]);
        }
    }
    hash.update(format!("{runtime:?} {node:?}"));
    knack_skill::digest::hex(&hash.finalize()[..6])
}

fn settings(runtime: &RuntimeSettings, revision: &str, node: Node) -> CatalogSettings {
    CatalogSettings {
        revision: revision.to_owned(),
        max_activation: runtime.max_activation,
        model_code: runtime.model_code,
        max_risk: runtime.max_risk,
        node,
        max_listing_tokens: runtime.max_listing_tokens,
        models: runtime.models.clone(),
        min_max_tokens: runtime.min_max_tokens,
        pins: runtime.pins.clone(),
        config: runtime.config.clone(),
        unserved: runtime.unserved.clone(),
    }
}
