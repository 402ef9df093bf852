//! Packages: what a skill declares against what the runtime demands, and what its runs have there.

use std::sync::LazyLock;

use knack_api::skill_runtime::{AllowedPackages, RuntimePackages};
use knack_api::skill_status::{EarlierRevision, PackagesStatus};
use knack_api::{Skill, SkillRuntime};
use knack_packages::environment::EnvironmentImage;
use knack_packages::rules::{Allowed, BrokenRule, RuleViolation, Versions};
use knack_packages::{EnvironmentKey, EnvironmentStatus, Requirement, Rules, Source, State};

use super::declared::packages_status;
use super::types::{Rejection, RejectionReason, Scope};

/// A revision of a skill, as far as its packages go.
#[derive(Debug, Clone, Copy)]
pub struct Revision<'a> {
    /// What it declares.
    pub packages: Option<&'a PackagesStatus>,
    /// The image that it asks for by reference.
    pub image: Option<&'a str>,
    /// The image that it asks for by the name that the runtime gives it.
    pub image_name: Option<&'a str>,
}

impl<'a> Revision<'a> {
    /// The one in `status.artifact`.
    pub fn newest(skill: &'a Skill) -> Self {
        let sandbox = skill.spec.sandbox.as_ref();
        Self {
            packages: skill.status.as_ref().and_then(|status| status.packages.as_ref()),
            image: sandbox.and_then(|sandbox| sandbox.image.as_deref()),
            image_name: sandbox.and_then(|sandbox| sandbox.image_name.as_deref()),
        }
    }

    /// One before it.
    pub fn earlier(skill: &'a Skill, earlier: &'a EarlierRevision) -> Self {
        Self {
            packages: earlier.packages.as_ref(),
            ..Self::newest(skill)
        }
    }
}

/// What counts of packages for a revision at a runtime.
#[derive(Debug, Clone, Copy)]
struct NeededPackages<'a> {
    packages: &'a PackagesStatus,
    /// Whether the runtime gives it to a skill that declares nothing. It may be missing: the skill is served all the same.
    is_given: bool,
}

impl<'a> NeededPackages<'a> {
    /// What the revision declares, else the standard environment if the runtime gives it.
    fn of(runtime: &SkillRuntime, revision: Revision<'a>) -> Option<Self> {
        if let Some(packages) = revision.packages {
            let is_given = false;
            return Some(Self { packages, is_given });
        }
        let gives = runtime.spec.packages.as_ref().is_some_and(|rules| rules.standard);
        let packages = STANDARD.as_ref().filter(|_| gives)?;
        let is_given = true;
        Some(Self { packages, is_given })
    }

    /// Where it comes from, if the skill does not declare it.
    fn given(&self) -> Option<&'static str> {
        let source = &STANDARD.as_ref()?.source;
        self.is_given.then_some(source)
    }
}

/// The standard environment, as a skill without declarations has it.
static STANDARD: LazyLock<Option<PackagesStatus>> =
    LazyLock::new(|| Some(packages_status(&knack_packages::given::standard_environment()?)));

/// What counts of packages for a revision at a runtime: what it declares, else what the runtime gives.
pub fn counted<'a>(runtime: &SkillRuntime, revision: Revision<'a>) -> Option<&'a PackagesStatus> {
    NeededPackages::of(runtime, revision).map(|counted| counted.packages)
}

/// The state of a skill's packages at a runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackagesVerdict {
    /// The state.
    pub state: State,
    /// The reason for the state, and what to do.
    pub message: String,
    /// Where the environment comes from, if the skill does not declare it.
    pub given: Option<&'static str>,
    /// Whether a builder is asked, so that the skill is served with its environment or not at all.
    is_built: bool,
    /// Whether runs have all of them, as far as it can be known.
    is_whole: bool,
}

/// An environment that a skill asks for at a runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentRequest {
    /// The key of the environment.
    pub key: EnvironmentKey,
    /// The image that it is added to.
    pub base: String,
    /// Constraints of the runtime.
    pub constraints: Vec<String>,
    /// The last day whose files may be chosen.
    pub exclude_newer: Option<String>,
}

/// The state of a revision's packages at a runtime. `None`: it has none.
pub fn packages(runtime: &SkillRuntime, revision: Revision<'_>, scope: &Scope<'_>) -> Option<PackagesVerdict> {
    let counted = NeededPackages::of(runtime, revision)?;
    let (declared, given) = (counted.packages, counted.given());
    let verdict = |state, message| {
        Some(PackagesVerdict {
            state,
            message,
            given,
            is_built: false,
            is_whole: false,
        })
    };
    if let Some(why) = &declared.refused {
        return verdict(State::Refused, why.clone());
    }
    if let Some(broken) = broken(runtime, revision, declared, scope) {
        return verdict(broken.state(), broken.text);
    }
    if is_none(declared) {
        return None;
    }
    if let Some(asked) = asked(runtime, revision, scope) {
        let verdict = of_builder(scope.environments?.get(&asked.key));
        // A skill that declares no packages and asks for an image by name does not wait for the runtime's standard environment.
        let is_unasked = given.is_some() && revision.image_name.is_some() && verdict.state == State::PackagesOff;
        let is_whole = verdict.is_whole || is_unasked;
        return Some(PackagesVerdict {
            given,
            is_whole,
            ..verdict
        });
    }
    let installed = if scope.environments.is_some() {
        "packages are not added to an image that a skill names"
    } else {
        "packages are not installed on this cluster"
    };
    let there = image(runtime, revision).map(|image| format!("; the code can use only what {image} contains"));
    // The image was not inspected: one that the skill itself names is taken to have what it declares. One that its runtime names
    // is there for every skill.
    let is_whole = revision.image.is_some() || revision.image_name.is_some();
    let help = match (is_whole, scope.environments) {
        (true, _) => "",
        (false, None) => {
            "; set packages.repository of the chart, or name an image that has them in spec.sandbox.image of the skill"
        }
        (false, Some(_)) => "; name an image that has them in spec.sandbox.image of the skill",
    };
    Some(PackagesVerdict {
        state: State::PackagesOff,
        message: format!("{installed}{}{help}", there.unwrap_or_default()),
        given,
        is_built: false,
        is_whole,
    })
}

/// Whether nothing is asked for.
const fn is_none(declared: &PackagesStatus) -> bool {
    declared.python.is_empty() && declared.node.is_empty()
}

fn of_builder(record: Option<&EnvironmentStatus>) -> PackagesVerdict {
    let Some(record) = record else {
        return PackagesVerdict {
            state: State::Resolving,
            message: "the environment was requested; a builder starts within a minute".to_owned(),
            given: None,
            is_built: true,
            is_whole: false,
        };
    };
    PackagesVerdict {
        state: record.state,
        message: record.message.clone(),
        given: None,
        // To what is in the image the builder could add nothing; the code may do without.
        is_built: record.state != State::PackagesOff,
        is_whole: record.state == State::Ready && !record.is_partial,
    }
}

/// The environment that a revision needs at a runtime; `None` where nothing is to be built: nothing is declared, it cannot be used, a
/// rule of the runtime is broken, the skill asks for an image by reference, or nothing builds here. Packages are added to an
/// image that the runtime names as to its own.
pub fn asked(runtime: &SkillRuntime, revision: Revision<'_>, scope: &Scope<'_>) -> Option<EnvironmentRequest> {
    scope.environments?;
    let declared = counted(runtime, revision)?;
    if revision.image.is_some()
        || declared.refused.is_some()
        || is_none(declared)
        || broken(runtime, revision, declared, scope).is_some()
    {
        return None;
    }
    let sandbox = &runtime.spec.sandbox;
    let base = match revision.image_name {
        Some(name) => sandbox.named(name)?,
        None => sandbox.own_image().or(scope.default_image)?,
    };
    let spec = runtime.spec.packages.clone().unwrap_or_default();
    let rules = rules(&spec).ok()?;
    // Without a rule about packages nothing was checked, and nothing is excluded.
    let pins = requirements(declared).unwrap_or_default();
    let is_fixed = declared.locked && !rules.exclude_any(&pins);
    let key = EnvironmentKey::of(declared.digest.as_deref()?, is_fixed, &rules, base);
    Some(EnvironmentRequest {
        key,
        base: base.to_owned(),
        constraints: spec.constraints,
        exclude_newer: spec.exclude_newer,
    })
}

/// The environment that runs of a revision get at a runtime; `None` where they need none. Errors: why it is not run there.
pub fn environment<'a>(
    runtime: &SkillRuntime,
    revision: Revision<'_>,
    scope: &Scope<'a>,
) -> Result<Option<&'a EnvironmentImage>, Rejection> {
    if let Some(rejection) = refusal(runtime, revision, scope) {
        return Err(rejection);
    }
    let record = asked(runtime, revision, scope).and_then(|asked| scope.environments?.get(&asked.key));
    let ready = record.filter(|record| record.state == State::Ready);
    Ok(ready.and_then(|record| record.environment.as_ref()))
}

/// Why a runtime does not serve a revision: one of its rules about packages is broken, or its environment is not there.
pub(super) fn refusal(runtime: &SkillRuntime, revision: Revision<'_>, scope: &Scope<'_>) -> Option<Rejection> {
    // What a runtime gives besides may be missing.
    let declared = revision.packages?;
    // What cannot be used is never installed, so no version of it is chosen.
    if declared.refused.is_some() {
        return None;
    }
    if let Some(broken) = broken(runtime, revision, declared, scope) {
        let reason = match broken.rule {
            BrokenRule::Allowed => RejectionReason::PackagesNotAllowed,
            BrokenRule::Lock => RejectionReason::LockRequired,
            BrokenRule::Constraint => RejectionReason::PackagesConflict,
        };
        return Some(Rejection {
            reason,
            message: broken.text,
        });
    }
    let verdict =
        packages(runtime, revision, scope).filter(|verdict| verdict.is_built && verdict.state != State::Ready)?;
    let reason = if verdict.state.is_pending() {
        RejectionReason::PackagesBuilding
    } else {
        RejectionReason::PackagesFailed
    };
    Some(Rejection {
        reason,
        message: format!(
            "its packages are not available ({}): {}",
            verdict.state, verdict.message
        ),
    })
}

/// What status says of a skill whose code may miss its packages.
pub(super) fn reservation(runtime: &SkillRuntime, revision: Revision<'_>, scope: &Scope<'_>) -> Option<Rejection> {
    let verdict = packages(runtime, revision, scope).filter(|verdict| !verdict.is_whole)?;
    let without = match (verdict.given, verdict.state) {
        (None, State::Ready) => "some of the packages that it declares",
        (None, _) => "the packages that it declares",
        (Some(_), _) => "the standard environment that this runtime gives",
    };
    // An image of the runtime's own was not inspected.
    let is_unknown = verdict.state == State::PackagesOff
        && asked(runtime, revision, scope).is_none()
        && image(runtime, revision).is_some_and(|image| Some(image) != scope.default_image);
    let runs = if is_unknown { "may run without" } else { "runs without" };
    Some(Rejection {
        reason: RejectionReason::PackagesMissing,
        message: format!("its code {runs} {without}: {}", verdict.message),
    })
}

fn image<'a>(runtime: &'a SkillRuntime, revision: Revision<'a>) -> Option<&'a str> {
    let sandbox = &runtime.spec.sandbox;
    match revision.image_name {
        Some(name) => sandbox.named(name),
        None => revision.image.or(sandbox.own_image()),
    }
}

/// A rule of the runtime that a revision breaks, else the lock that builders need for packages of Node: they have no npm.
fn broken(
    runtime: &SkillRuntime,
    revision: Revision<'_>,
    declared: &PackagesStatus,
    scope: &Scope<'_>,
) -> Option<RuleViolation> {
    let unlocked = declared.node_unlocked && scope.environments.is_some() && revision.image.is_none();
    broken_rule(runtime, revision, declared).or_else(|| {
        unlocked.then(|| RuleViolation {
            rule: BrokenRule::Lock,
            text: format!(
                "packages of Node are declared in {} without package-lock.json, and a cluster chooses no versions of them; write it \
                 with knack skill lock",
                declared.source
            ),
        })
    })
}

fn broken_rule(runtime: &SkillRuntime, revision: Revision<'_>, declared: &PackagesStatus) -> Option<RuleViolation> {
    let rules = match rules(runtime.spec.packages.as_ref()?) {
        Ok(rules) => rules,
        // The definition refuses most of them; nothing is served by a rule that cannot be read.
        Err(text) => {
            return Some(RuleViolation {
                rule: BrokenRule::Constraint,
                text,
            });
        }
    };
    // To an image that the skill names nothing is added, so what it declares is only what the image is taken to have.
    let is_installed = !is_none(declared) && revision.image.is_none();
    // Not by the digest, which also depends on the versions of Python that scripts ask for.
    let is_standard = [Source::Standard, Source::OfRuntime]
        .iter()
        .any(|source| source.shown() == declared.source)
        && declared.node.is_empty();
    if let Some(forbidden) = rules.forbidden(is_standard).filter(|_| is_installed) {
        return Some(forbidden);
    }
    let read = match requirements(declared) {
        Ok(read) => read,
        Err(line) => {
            return Some(RuleViolation {
                rule: BrokenRule::Constraint,
                text: format!(
                    "{line:?} cannot be read, so that spec.packages of the runtime cannot be checked; shorten it or correct it"
                ),
            });
        }
    };
    let versions = match declared.locked {
        true => Versions::Locked(&read),
        // Nothing is asked for, so there is nothing to lock.
        false if read.is_empty() => return None,
        false => Versions::Open(&read),
    };
    // Only a builder knows the Python of the image.
    rules.violation(versions, None)
}

/// Requirements, or the exact versions of a lock with their markers, as a status has them: of a long one the end of the marker is cut,
/// and it counts as one without a marker. Errors: the line that cannot be read.
fn requirements(declared: &PackagesStatus) -> Result<Vec<Requirement>, &str> {
    let read = |line: &'_ str| -> Option<Requirement> {
        let whole = Requirement::parse(line).ok();
        whole.or_else(|| Requirement::parse(line.split_once(';')?.0).ok())
    };
    let lines = declared.python.iter();
    lines.map(|line| read(line).ok_or(line.as_str())).collect()
}

/// The rules of a manifest. The error names the field.
pub fn rules(spec: &RuntimePackages) -> Result<Rules, String> {
    let allowed = match spec.allowed {
        AllowedPackages::Declared => Allowed::Declared,
        AllowedPackages::Standard => Allowed::Standard,
        AllowedPackages::None => Allowed::Nothing,
    };
    let rules = Rules::read(&spec.constraints, spec.require_lock)?.excluding_newer(spec.exclude_newer.as_deref())?;
    Ok(rules.with_standard(spec.standard).allowing(allowed))
}
