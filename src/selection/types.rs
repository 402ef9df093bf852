//! Inputs and outputs of the selection.

use std::collections::BTreeMap;

use knack_api::skill_runtime::SkillPin;
use knack_api::skill_status::EarlierRevision;
use knack_api::{Labels, Skill};
use knack_packages::EnvironmentStatuses;
use knack_skill::model::ActivationMode;

/// Labels of every namespace.
pub type NamespaceLabels = BTreeMap<String, Labels>;

/// The inputs of selection besides the objects.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// Whether the runtime is the cluster default (`--default-runtime`).
    pub cluster_default: bool,
    /// Labels of namespaces, for selectors. A namespace that is missing has none.
    pub namespaces: &'a NamespaceLabels,
    /// Image of runtimes that name none, if the installation has one.
    pub default_image: Option<&'a str>,
    /// Whether images may go without a digest (`--allow-image-tags`, for test clusters).
    pub allow_image_tags: bool,
    /// What builders of the cluster say of environments of packages; absent where nothing builds them.
    pub environments: Option<&'a EnvironmentStatuses>,
}

#[cfg(test)]
impl<'a> Scope<'a> {
    /// The scope of an installation without an image, a cluster default or builders, whose images may go without
    /// digests.
    pub(crate) fn plain(namespaces: &'a NamespaceLabels) -> Self {
        Self {
            cluster_default: false,
            namespaces,
            default_image: None,
            allow_image_tags: true,
            environments: None,
        }
    }
}

impl Scope<'_> {
    /// Whether an image may run as it is named: by its digest, where none may go without.
    pub fn is_pinned(&self, image: &str) -> bool {
        image.contains("@sha256:") || self.allow_image_tags
    }
}

/// The callers that a view is computed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience<'a> {
    /// Everything that the runtime serves: the controller's status, and callers with the verb `use-all`.
    All,
    /// Workloads of one namespace.
    Namespace(&'a str),
}

/// One selected skill.
#[derive(Debug, Clone)]
pub struct Selected<'a> {
    /// The object.
    pub skill: &'a Skill,
    /// The pin that names it, if any.
    pub pin: Option<&'a SkillPin>,
    /// The revision that is served, if it is not the one in `status.artifact`.
    pub earlier: Option<&'a EarlierRevision>,
    /// How it is served here, after pin and cap.
    pub mode: ActivationMode,
    /// Whether it is served. `Ok(Some(..))`: served, with a restriction that status reports.
    pub accepted: Result<Option<Rejection>, Rejection>,
}

/// Why a runtime does not serve a skill, or does not serve it as the skill asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The class of the reason.
    pub reason: RejectionReason,
    /// What is wrong, with which field, and what to do.
    pub message: String,
}

impl Rejection {
    /// One of several notes: the first one gives the reason, and the message has all of them. `None`: there is no note.
    pub(super) fn of_notes(notes: impl IntoIterator<Item = Option<(RejectionReason, String)>>) -> Option<Self> {
        let (reasons, texts): (Vec<RejectionReason>, Vec<String>) = notes.into_iter().flatten().unzip();
        Some(Self {
            reason: *reasons.first()?,
            message: texts.join("; "),
        })
    }
}

/// Why a skill is not served, or not as it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectionReason {
    /// The skill's `allowedRuntimes` does not allow this runtime.
    NotAllowedBySkill,
    /// The skill is suspended.
    Suspended,
    /// No artifact is in service yet.
    NotReady,
    /// It has another version than its pin requires.
    VersionNotMatched,
    /// It asks for more time than `maxTimeoutSeconds`.
    TimeoutOverCeiling,
    /// It asks for more resources than `maxResources`.
    ResourcesOverCeiling,
    /// Its image is not on the runtime's list.
    ImageNotAllowed,
    /// Its image has no digest.
    ImageNotPinned,
    /// The runtime has no image of the name that it asks for.
    ImageUnknown,
    /// It declares packages that the runtime does not allow.
    PackagesNotAllowed,
    /// It declares packages without a lock, and the runtime demands one.
    LockRequired,
    /// It fixes a version of a package that the runtime's constraints exclude.
    PackagesConflict,
    /// The environment of its packages is being made.
    PackagesBuilding,
    /// The environment of its packages cannot be made.
    PackagesFailed,
    /// Served in an earlier revision: the packages of the newest one are not there, or its version is not what the pin requires.
    EarlierRevision,
    /// Served in a version of an uploaded skill that is not the default one: the pin's constraint chooses it.
    KeptVersion,
    /// Served, at the runtime's `maxActivation`.
    ServedAtCap,
    /// Served, but its required inputs have no values here, so the model is asked for them.
    InputsMissing,
    /// Served, but the pin sets inputs that the skill does not have.
    InputsUnknown,
    /// Served, but another skill has the same name here and keeps it: this one is called `namespace/name`.
    NameShared,
    /// Served, but another skill carries an id of it here, or has it as its name: requests cannot name this one by it.
    IdShared,
    /// Served, but its code runs without the packages that it declares.
    PackagesMissing,
    /// Served without the tools whose risk is above the runtime's `maxRisk`.
    ToolsAboveMaxRisk,
    /// Served without the tools whose configuration has no values, or wrong ones.
    ToolsNotConfigured,
    /// Served, but the pin sets configuration that no tool declares.
    ConfigUnknown,
    /// Served, but the pin gives a secret of the configuration in plain text.
    ConfigPlain,
    /// Served, but tools ask for environment values that the runtime does not grant.
    EnvNotGranted,
    /// Served, but the runtime grants environment values that no tool asks for.
    EnvNotAsked,
}

impl RejectionReason {
    /// Whether the newest revision is the reason, and not the skill: an earlier one may be served meanwhile.
    pub fn is_of_revision(self) -> bool {
        matches!(
            self,
            Self::NotReady
                | Self::VersionNotMatched
                | Self::PackagesNotAllowed
                | Self::LockRequired
                | Self::PackagesConflict
                | Self::PackagesBuilding
                | Self::PackagesFailed
        )
    }

    /// Whether the skill is served all the same.
    pub fn is_reservation(self) -> bool {
        matches!(
            self,
            Self::EarlierRevision
                | Self::KeptVersion
                | Self::ServedAtCap
                | Self::InputsMissing
                | Self::InputsUnknown
                | Self::NameShared
                | Self::IdShared
                | Self::PackagesMissing
                | Self::ToolsAboveMaxRisk
                | Self::ToolsNotConfigured
                | Self::ConfigUnknown
                | Self::ConfigPlain
                | Self::EnvNotGranted
                | Self::EnvNotAsked
        )
    }

    /// The word in status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotAllowedBySkill => "NotAllowedBySkill",
            Self::Suspended => "Suspended",
            Self::NotReady => "NotReady",
            Self::VersionNotMatched => "VersionNotMatched",
            Self::TimeoutOverCeiling => "TimeoutOverCeiling",
            Self::ResourcesOverCeiling => "ResourcesOverCeiling",
            Self::ImageNotAllowed => "ImageNotAllowed",
            Self::ImageNotPinned => "ImageNotPinned",
            Self::ImageUnknown => "ImageUnknown",
            Self::PackagesNotAllowed => "PackagesNotAllowed",
            Self::LockRequired => "LockRequired",
            Self::PackagesConflict => "PackagesConflict",
            Self::PackagesBuilding => "PackagesBuilding",
            Self::PackagesFailed => "PackagesFailed",
            Self::EarlierRevision => "EarlierRevision",
            Self::KeptVersion => "KeptVersion",
            Self::ServedAtCap => "ServedAtCap",
            Self::InputsMissing => "InputsMissing",
            Self::InputsUnknown => "InputsUnknown",
            Self::NameShared => "NameShared",
            Self::IdShared => "IdShared",
            Self::PackagesMissing => "PackagesMissing",
            Self::ToolsAboveMaxRisk => "ToolsAboveMaxRisk",
            Self::ToolsNotConfigured => "ToolsNotConfigured",
            Self::ConfigUnknown => "ConfigUnknown",
            Self::ConfigPlain => "ConfigPlain",
            Self::EnvNotGranted => "EnvNotGranted",
            Self::EnvNotAsked => "EnvNotAsked",
        }
    }
}
