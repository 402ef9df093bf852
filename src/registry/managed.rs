//! Who manages a Skill, other than the registry. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knack_vocabulary::{FIELD_MANAGER_REGISTRY, LABEL_MANAGED_BY};

/// Annotations and labels of programs that bring objects to a state from elsewhere, with what they are called.
const MARKS: [(&str, &str); 6] = [
    ("argocd.argoproj.io/tracking-id", "Argo CD, application"),
    ("argocd.argoproj.io/instance", "Argo CD, application"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux, Kustomization"),
    ("helm.toolkit.fluxcd.io/name", "Flux, HelmRelease"),
    ("meta.helm.sh/release-name", "Helm, release"),
    ("kustomize.config.k8s.io/id", "Kustomize"),
];

/// The manager that would undo a change of this object, in words; `None`: nobody but the registry has written its spec.
pub(super) fn manager(meta: &ObjectMeta) -> Option<String> {
    let marks = MARKS.iter().find_map(|(key, word)| {
        let value = meta.annotations.as_ref().and_then(|all| all.get(*key));
        let value = value.or_else(|| meta.labels.as_ref()?.get(*key))?;
        // A tracking id is the application, then what it tracks.
        let name = value.split(':').next().unwrap_or_default();
        Some(format!("{word} {name:?}"))
    });
    let labelled = || {
        let by = meta.labels.as_ref()?.get(LABEL_MANAGED_BY)?;
        (by == "Helm").then(|| "Helm".to_owned())
    };
    let wrote = || {
        let fields = meta.managed_fields.iter().flatten();
        let mut others = fields.filter(|entry| {
            let is_spec = entry
                .fields_v1
                .as_ref()
                .is_some_and(|fields| fields.0.get("f:spec").is_some());
            entry.subresource.is_none() && is_spec && entry.manager.as_deref() != Some(FIELD_MANAGER_REGISTRY)
        });
        others
            .find_map(|entry| entry.manager.as_ref())
            .map(|name| format!("field manager {name:?}"))
    };
    marks.or_else(labelled).or_else(wrote)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_manager_of_a_skill_is_named() {
        let fields = |manager: &str, owns: &str, subresource: &str| {
            let mut entry = json!({"manager": manager, "operation": "Update", "apiVersion": "knack.dev/v1alpha1",
                "fieldsType": "FieldsV1", "fieldsV1": {owns: {}}});
            if !subresource.is_empty() {
                entry["subresource"] = subresource.into();
            }
            json!({"managedFields": [entry]})
        };
        for (meta, expected) in [
            (json!({}), None),
            (fields("knack-registry", "f:spec", ""), None),
            (fields("knack", "f:status", "status"), None),
            (fields("kubectl-label", "f:metadata", ""), None),
            (
                fields("kubectl-edit", "f:spec", ""),
                Some("field manager \"kubectl-edit\""),
            ),
            (
                json!({"annotations": {"argocd.argoproj.io/tracking-id": "skills:knack.dev/Skill:team/a"}}),
                Some("Argo CD, application \"skills\""),
            ),
            (
                json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}),
                Some("Flux, Kustomization \"apps\""),
            ),
            (
                json!({"annotations": {"meta.helm.sh/release-name": "r"}, "labels": {"app.kubernetes.io/managed-by": "Helm"}}),
                Some("Helm, release \"r\""),
            ),
            (
                json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}}),
                Some("Helm"),
            ),
        ] {
            let object: ObjectMeta = serde_json::from_value(meta.clone()).unwrap();
            assert_eq!(manager(&object).as_deref(), expected, "{meta}");
        }
    }
}
