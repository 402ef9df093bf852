//! The catalog and the settings of one moment, immutable, and the revision that names them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use http::HeaderValue;
use knack_skill::catalog::{Catalog, CatalogEntry, CatalogSettings, Node};
use knack_skill::model::{ActivationMode, Skill, SkillRef};
use sha2::{Digest, Sha256};

use super::runtime::RuntimeSettings;
use super::source::SourceReport;

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
        Self {
            absent: Some(reason.into()),
            ..Self::compile(Vec::new(), std::iter::empty(), &BTreeMap::new(), runtime, Node::Absent)
        }
    }

    /// The snapshot of these skills, with the digest of each, before anything is reported of them. `names`: which skill keeps a name that
    /// several have.
    pub(super) fn compile(
        skills: Vec<Arc<Skill>>,
        digests: impl Iterator<Item = [u8; 32]>,
        names: &BTreeMap<String, SkillRef>,
        runtime: RuntimeSettings,
        node: Node,
    ) -> Self {
        let digest = digest_of(digests);
        let revision = revision(digest, names, &runtime, node);
        let catalog = Catalog::compile_named(skills.clone(), settings(&runtime, &revision, node), names);
        Self {
            listed: listed(&catalog),
            catalog: Arc::new(catalog),
            runtime,
            revision,
            skills,
            digest,
            reports: Vec::new(),
            absent: None,
            usual_header: OnceLock::new(),
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
        let digests = std::iter::once(self.digest).chain(added);
        Self {
            absent: self.absent.clone(),
            ..Self::compile(skills, digests, &names, self.runtime.clone(), node)
        }
    }
}

/// How many skills a request lists: those that the budget of the list leaves out are not in its text.
fn listed(catalog: &Catalog) -> usize {
    let counts = catalog.listing_counts();
    counts.whole + counts.cut + counts.bare
}

/// The part of a catalog's revision that one skill makes.
pub(super) fn skill_digest(skill: &Skill) -> [u8; 32] {
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
