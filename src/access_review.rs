//! Questions to the API server whether RBAC allows a user an action on Knack's objects.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use knack_hub_api::{RuntimeName, ServiceAccountName};
use knack_vocabulary::GROUP;

/// The action.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct AccessAction {
    /// A verb of RBAC.
    pub(crate) verb: &'static str,
    /// `skills` or `skillruntimes`.
    pub(crate) resource: &'static str,
    /// The namespace of the objects.
    pub(crate) namespace: String,
    /// With which object; `None` for all of the namespace.
    pub(crate) name: Option<String>,
}

impl AccessAction {
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
pub(crate) fn review(subject: SubjectAccessReviewSpec, action: &AccessAction) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(action.namespace.clone()),
                verb: Some(action.verb.to_owned()),
                group: Some(GROUP.to_owned()),
                resource: Some(action.resource.to_owned()),
                name: action.name.clone(),
                ..ResourceAttributes::default()
            }),
            ..subject
        },
        ..SubjectAccessReview::default()
    }
}

/// A ServiceAccount as the API server knows it when it calls.
pub(crate) fn service_account(account: &ServiceAccountName) -> SubjectAccessReviewSpec {
    let ServiceAccountName { namespace, name } = account;
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    SubjectAccessReviewSpec {
        user: Some(format!("system:serviceaccount:{namespace}:{name}")),
        groups: Some(groups.into()),
        ..SubjectAccessReviewSpec::default()
    }
}
