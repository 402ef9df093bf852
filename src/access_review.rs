//! The question to the API server whether RBAC lets somebody use a SkillRuntime.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use knack_hub_api::RuntimeName;
use knack_vocabulary::GROUP;

/// Asks whether `subject` has `verb` on the SkillRuntime `name`.
pub(crate) fn review(subject: SubjectAccessReviewSpec, name: &RuntimeName, verb: &str) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(name.namespace.clone()),
                verb: Some(verb.to_owned()),
                group: Some(GROUP.to_owned()),
                resource: Some("skillruntimes".to_owned()),
                name: Some(name.name.clone()),
                ..ResourceAttributes::default()
            }),
            ..subject
        },
        ..SubjectAccessReview::default()
    }
}
