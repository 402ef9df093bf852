//! What goes in and what comes out.

use std::collections::BTreeMap;

use knack_skill::model::ActivationMode;

use crate::api::skill_runtime::SkillPin;
use crate::api::{Labels, Skill};

/// Labels of every namespace.
pub type NamespaceLabels = BTreeMap<String, Labels>;

/// What selection needs to know besides the objects.
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
}

/// Whose view is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller<'a> {
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
    /// How it is served here, after pin and cap.
    pub mode: ActivationMode,
    /// Whether it is served. `Ok(Some(..))`: served, with a reservation that status tells.
    pub accepted: Result<Option<Rejection>, Rejection>,
}

/// What stands against a skill at a runtime, or against serving it as it asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Its class.
    pub reason: Reason,
    /// What is wrong, with which field, and what to do.
    pub message: String,
}

/// Why a skill is not served, or not as it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The skill's `allowedRuntimes` does not allow this runtime.
    NotAllowedBySkill,
    /// The skill is suspended.
    Suspended,
    /// No artifact is in service yet.
    NotReady,
    /// It asks for more time than `maxTimeoutSeconds`.
    TimeoutOverCeiling,
    /// It asks for more resources than `maxResources`.
    ResourcesOverCeiling,
    /// Its image is not on the runtime's list.
    ImageNotAllowed,
    /// Its image has no digest.
    ImageNotPinned,
    /// Served, at the runtime's `maxActivation`.
    ServedAtCap,
    /// Served, but its required inputs have no values here, so the model is asked to get them.
    InputsMissing,
    /// Served, but the pin sets inputs that the skill does not have.
    InputsUnknown,
    /// Served, but another skill has the same name here and keeps it: this one is called `namespace/name`.
    NameShared,
}

impl Reason {
    /// Whether the skill is served all the same.
    pub fn is_reservation(self) -> bool {
        matches!(
            self,
            Self::ServedAtCap | Self::InputsMissing | Self::InputsUnknown | Self::NameShared
        )
    }

    /// The word in status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotAllowedBySkill => "NotAllowedBySkill",
            Self::Suspended => "Suspended",
            Self::NotReady => "NotReady",
            Self::TimeoutOverCeiling => "TimeoutOverCeiling",
            Self::ResourcesOverCeiling => "ResourcesOverCeiling",
            Self::ImageNotAllowed => "ImageNotAllowed",
            Self::ImageNotPinned => "ImageNotPinned",
            Self::ServedAtCap => "ServedAtCap",
            Self::InputsMissing => "InputsMissing",
            Self::InputsUnknown => "InputsUnknown",
            Self::NameShared => "NameShared",
        }
    }
}
