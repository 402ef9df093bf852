//! Which skill has a name to itself, where skills of several namespaces have it.

use std::collections::BTreeMap;

use knack_hub_api::name_owner;
use knack_skill::model::SkillRef;

/// The skill that is called by its bare name, for every name that several have. `home` is the namespace of the client, if
/// it is known; `runtime_namespace` the runtime's own.
pub(super) fn owners(
    skills: Vec<(SkillRef, i64)>,
    home: Option<&str>,
    runtime_namespace: &str,
) -> BTreeMap<String, SkillRef> {
    let mut by_name: BTreeMap<String, Vec<(String, i64)>> = BTreeMap::new();
    for (skill, created) in skills {
        by_name.entry(skill.name).or_default().push((skill.namespace, created));
    }
    by_name
        .into_iter()
        .filter(|(_, namespaces)| namespaces.len() > 1)
        .filter_map(|(name, namespaces)| {
            let candidates = namespaces
                .iter()
                .map(|(namespace, created)| (namespace.as_str(), *created));
            let namespace = name_owner(candidates, home, runtime_namespace)?.to_owned();
            Some((name.clone(), SkillRef { namespace, name }))
        })
        .collect()
}
