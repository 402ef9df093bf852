//! Questions to the API server whether RBAC allows a user an action on objects of ours.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use knack_hub_api::RuntimeName;
use knack_vocabulary::GROUP;

/// The action.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Deed {
    /// A verb of RBAC.
    pub(crate) verb: &'static str,
    /// `skills` or `skillruntimes`.
    pub(crate) resource: &'static str,
    /// Where.
    pub(crate) namespace: String,
    /// With which object; `None` for all of the namespace.
    pub(crate) name: Option<String>,
}

impl Deed {
    /// `verb` on a SkillRuntime.
    pub(crate) fn at_runtime(verb: &'static str, name: &RuntimeName) -> Self {
        Self {
            verb,
            resource: "skillruntimes",
            namespace: name.namespace.clone(),
            name: Some(name.name.clone()),
        }
    }
}

/// Asks whether `subject` may do that.
pub(crate) fn review(subject: SubjectAccessReviewSpec, deed: &Deed) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(deed.namespace.clone()),
                verb: Some(deed.verb.to_owned()),
                group: Some(GROUP.to_owned()),
                resource: Some(deed.resource.to_owned()),
                name: deed.name.clone(),
                ..ResourceAttributes::default()
            }),
            ..subject
        },
        ..SubjectAccessReview::default()
    }
}
