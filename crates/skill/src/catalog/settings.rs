//! What a runtime says about the skills it serves, as a value.

use std::collections::BTreeMap;

use crate::config::SkillConfig;
use crate::model::{ActivationMode, SkillRef};
use crate::risk::Risk;

/// Whether the model may run programs that it wrote itself (`spec.sandbox.modelCode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelCode {
    /// `run_code` is offered where a skill has files.
    Allow,
    /// Declared tools only.
    Deny,
}

/// Whether `run_code` offers JavaScript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// The runtime has a node interpreter.
    Present,
    /// Python only.
    Absent,
}

/// One entry of `spec.skills`: a skill chosen by name, with its own mode and inputs. A pin wins over the skill and over the cap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// The skill.
    pub skill: SkillRef,
    /// Mode here; may be higher than `max_activation`. `None` keeps the skill's own, capped.
    pub mode: Option<ActivationMode>,
    /// Values for the skill's template inputs.
    pub inputs: BTreeMap<String, String>,
    /// The version that the skill must have, for who chooses among sources. `None`: any, or the hub has chosen.
    pub version: Option<String>,
}

/// The runtime's side of a catalog. There is no `Default`: every member is a decision of the caller.
#[derive(Debug, Clone)]
pub struct CatalogSettings {
    /// Shown in `x-knack: revision=`; changes with every change of skills or settings.
    pub revision: String,
    /// A skill that asks for more is served at this mode.
    pub max_activation: ActivationMode,
    /// Permission for model-written code.
    pub model_code: ModelCode,
    /// The highest risk of a tool that is offered and run; [`Risk::Critical`]: every tool.
    pub max_risk: Risk,
    /// Whether node exists.
    pub node: Node,
    /// Size of the Listed block in tokens (bytes / 4, rounded up); [`MAX_LISTING_TOKENS`](knack_vocabulary::defaults::MAX_LISTING_TOKENS) unless the runtime says otherwise.
    pub max_listing_tokens: usize,
    /// Models that skills are injected for, `*` matches any run of characters. Empty: every model.
    pub models: Vec<String>,
    /// A request whose `max_tokens` is below this is not changed; [`MIN_MAX_TOKENS`](knack_vocabulary::defaults::MIN_MAX_TOKENS) unless the runtime sets a
    /// value.
    pub min_max_tokens: u64,
    /// Pinned skills.
    pub pins: Vec<Pin>,
    /// Values of the configuration of functions.
    pub config: ConfigValues,
    /// Skills that requests may name and that are not served.
    pub unserved: Vec<Unserved>,
}

/// A skill that a request may name, and that is there but not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// The skill.
    pub skill: SkillRef,
    /// The reason, for whoever names the skill.
    pub why: String,
}

/// Who has the values of the configuration of functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigValues {
    /// This process.
    Here(Vec<SkillConfig>),
    /// The hub, which also reports the tools without them ([`Skill::withheld`](crate::model::Skill::withheld)).
    AtHub,
}
