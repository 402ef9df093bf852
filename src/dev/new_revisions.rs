//! New revisions of skills with other packages: the revision before is served until these are installed, as on a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use knack_gateway::catalog::{LastGood, SkillSource};
use knack_packages::{Declaration, declare, stated};
use knack_skill::model::{AskedPackages, Skill, SkillFile};
use knack_skill::problem::Profile;

use super::ready_skills::ReadySkills;
use crate::packages::MissingPackages;

/// Which revision of a source is served.
pub(super) enum ServedRevision {
    /// The source as it is.
    Served,
    /// The revision that was served last, and why.
    LastServed(String),
    /// The revision that was served last, until the packages of the source are installed.
    Waits(&'static str),
    /// Nothing, and why.
    NotServed(String),
}

/// The report about a skill whose new revision waits.
const INSTALLING: &str =
    "the packages of its new revision are being installed; the revision before stays in service until they are there";

/// The new revisions of one search.
pub(super) struct NewRevisions {
    /// `None`: no code is run here, or nothing is served yet.
    ready: Option<Arc<ReadySkills>>,
    with_other_packages: Vec<Arc<Skill>>,
}

impl NewRevisions {
    /// None yet.
    pub(super) const fn of(ready: Option<Arc<ReadySkills>>) -> Self {
        Self {
            ready,
            with_other_packages: Vec::new(),
        }
    }

    /// Which revision of an accepted source is served, by its packages.
    pub(super) fn served_revision(&mut self, source: &SkillSource, last: &LastGood) -> ServedRevision {
        if let Some(why) = packages_refused_now(source, last) {
            return ServedRevision::LastServed(why);
        }
        match self.missing(source, last) {
            None => ServedRevision::Served,
            Some(MissingPackages::Installing) => ServedRevision::Waits(INSTALLING),
            Some(MissingPackages::Failed(state)) => ServedRevision::LastServed(format!(
                "the packages of its new revision are not there ({state}); the line \"packages of {}\" says why",
                source.id.name
            )),
        }
    }

    /// The packages that a source misses, if the revision that was served last has others, and has them. Any other change is served at
    /// once.
    fn missing(&mut self, source: &SkillSource, last: &LastGood) -> Option<MissingPackages> {
        let ready = self.ready.as_ref()?;
        let served = last.skill(&source.id)?;
        let (asked, asked_before) = (source.overrides.packages.as_ref(), served.requirements.as_ref());
        if asked == asked_before && source.files == served.files {
            return None;
        }
        if environment(&source.files, asked) == environment(&served.files, asked_before) {
            return None;
        }
        // A source with errors is not served either, and they are reported when it is judged.
        let new = Arc::new(source.load(Profile::Load).skill?);
        let missing = ready.missing(&new, served);
        // Also where nothing is missing: they are kept until it is served.
        self.with_other_packages.push(new);
        missing
    }

    /// Has the packages of these revisions installed, and of no earlier ones.
    pub(super) fn install(self) {
        if let Some(ready) = self.ready {
            ready.waiting(self.with_other_packages);
        }
    }
}

/// What a skill declares, without what is only said about it.
fn environment(files: &BTreeMap<String, SkillFile>, asked: Option<&AskedPackages>) -> Declaration {
    Declaration {
        findings: Vec::new(),
        imports: BTreeMap::new(),
        ..declare(files, asked)
    }
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
