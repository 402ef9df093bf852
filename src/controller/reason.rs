//! Reasons in conditions.

use knack_api::SkillRuntime;
use knack_vocabulary::REASON_INVALID_SKILL;

use crate::selection::Selected;
use crate::sources::Cause;

/// Reason of a condition of a Skill or a SkillRuntime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ConditionReason {
    /// Content is valid and in its ConfigMaps.
    Delivered,
    /// The runtime can serve.
    Serving,
    /// Suspended by its spec.
    Suspended,
    /// Observed, work has started.
    Progressing,
    /// The object does not fit its type: it was made before its definition.
    InvalidObject,
    /// SKILL.md or its folder has errors.
    InvalidSkill,
    /// The source contradicts itself.
    InvalidSource,
    /// Several SKILL.md and no path.
    AmbiguousSource,
    /// The object that the source names does not exist.
    SourceNotFound,
    /// The source cannot be reached now.
    SourceUnavailable,
    /// Other bytes than the digest promises.
    DigestMismatch,
    /// An address that may not be fetched from.
    AddressDenied,
    /// Too large.
    TooLarge,
    /// No archive, a broken one, or one with entries that are refused.
    BadArchive,
    /// An object of another owner has the name that Knack's needs.
    NameConflict,
    /// A ConfigMap of Knack was not as it was made.
    ContentReplaced,
    /// The API server refuses what the object needs: a quota, an admission policy, a missing right.
    RefusedByApiServer,
    /// Calls to the API server fail again and again.
    ApiServerUnavailable,
    /// The namespace is being deleted.
    NamespaceTerminating,
    /// Served by at least one runtime.
    Accepted,
    /// No runtime selects it.
    NoRuntime,
    /// Every runtime that selects it refuses.
    Rejected,
    /// The runtime has no image for its sandboxes.
    NoSandboxImage,
    /// The runtime's image has no digest.
    ImageNotPinned,
    /// The namespace is not one in which this installation may run code.
    HubNotAuthorized,
    /// A constraint of the runtime on packages cannot be read.
    InvalidConstraints,
    /// The runtime is suspended, and would serve the skill otherwise.
    RuntimeSuspended,
}

/// A runtime's verdict on a skill, as statuses have it: whether it is served there, and the word for it. Selection does not ask
/// whether the runtime is suspended: what it selects serves again when that ends.
pub(super) fn verdict_word(runtime: &SkillRuntime, item: &Selected<'_>) -> (bool, &'static str) {
    match &item.accepted {
        Ok(_) if runtime.spec.is_suspended() => (false, ConditionReason::RuntimeSuspended.as_str()),
        Ok(None) => (true, ConditionReason::Accepted.as_str()),
        Ok(Some(reservation)) => (true, reservation.reason.as_str()),
        Err(rejection) => (false, rejection.reason.as_str()),
    }
}

/// The revision that a runtime serves instead of the newest one.
pub(super) fn served_instead<'a>(runtime: &SkillRuntime, item: &Selected<'a>) -> Option<&'a str> {
    let served = item.earlier.filter(|_| !runtime.spec.is_suspended());
    served.map(|earlier| earlier.revision.as_str())
}

/// What a Skill's status has of a runtime's verdict: whether it is accepted, the word for it, and the revision that is served
/// instead of the newest.
pub(super) type VerdictParts<'a> = (bool, &'a str, Option<&'a str>);

/// These parts of a verdict.
pub(super) fn verdict_parts<'a>(runtime: &SkillRuntime, item: &Selected<'a>) -> VerdictParts<'a> {
    let (accepted, word) = verdict_word(runtime, item);
    (accepted, word, served_instead(runtime, item))
}

impl ConditionReason {
    /// The word.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "Delivered",
            Self::Serving => "Serving",
            Self::Suspended => "Suspended",
            Self::Progressing => "Progressing",
            Self::InvalidObject => "InvalidObject",
            Self::InvalidSkill => REASON_INVALID_SKILL,
            Self::InvalidSource => "InvalidSource",
            Self::AmbiguousSource => "AmbiguousSource",
            Self::SourceNotFound => "SourceNotFound",
            Self::SourceUnavailable => "SourceUnavailable",
            Self::DigestMismatch => "DigestMismatch",
            Self::AddressDenied => "AddressDenied",
            Self::TooLarge => "TooLarge",
            Self::BadArchive => "BadArchive",
            Self::NameConflict => "NameConflict",
            Self::ContentReplaced => "ContentReplaced",
            Self::RefusedByApiServer => "RefusedByApiServer",
            Self::ApiServerUnavailable => "ApiServerUnavailable",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::Accepted => "Accepted",
            Self::NoRuntime => "NoRuntime",
            Self::Rejected => "Rejected",
            Self::NoSandboxImage => "NoSandboxImage",
            Self::ImageNotPinned => "ImageNotPinned",
            Self::HubNotAuthorized => "HubNotAuthorized",
            Self::InvalidConstraints => "InvalidConstraints",
            Self::RuntimeSuspended => "RuntimeSuspended",
        }
    }
}

impl From<Cause> for ConditionReason {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::NotFound => Self::SourceNotFound,
            Cause::Invalid => Self::InvalidSource,
            Cause::Ambiguous => Self::AmbiguousSource,
            Cause::DigestMismatch => Self::DigestMismatch,
            Cause::AddressDenied => Self::AddressDenied,
            Cause::TooLarge => Self::TooLarge,
            Cause::BadArchive => Self::BadArchive,
            Cause::Unavailable => Self::SourceUnavailable,
        }
    }
}
