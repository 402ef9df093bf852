//! The settings of the runtime that `knack dev` serves, from its manifest.

use std::time::Duration;

use knack_api::runtime_sandbox::RuntimeSandbox;
use knack_api::skill::SkillSandbox;
use knack_api::{Resources, SkillRuntimeManifest};
use knack_gateway::catalog::{RuntimeSettings, SkillSource, SourceReport};
use knack_hub_api::RuntimeName;
use knack_packages::Rules;
use knack_skill::catalog::{ConfigValues, ModelCode, Pin};
use knack_skill::config::SkillConfig;
use knack_skill::model::SkillRef;
use knack_skill::semver::satisfies;

use crate::selection::{self, rules};

/// A SkillRuntime and where it is from.
#[derive(Debug, Clone)]
pub struct FoundRuntime {
    /// The file, as it is shown in reports.
    pub origin: String,
    /// The object.
    pub manifest: SkillRuntimeManifest,
    /// Whether the user named the file. One that was found by searching may be anybody's: it counts only where none is named.
    pub is_named: bool,
}

/// The settings of a manifest.
fn from_manifest(manifest: &SkillRuntimeManifest) -> RuntimeSettings {
    let (spec, base) = (&manifest.spec, RuntimeSettings::default());
    let injection = &spec.gateway.injection;
    let selector = spec.skill_selector.clone().unwrap_or_default();
    let namespace = manifest.metadata.namespace.clone();
    let pinned = selector.skills.iter().map(|pin| (pin, pin.skill(&namespace)));
    let pins = pinned.map(|(pin, (skill_namespace, skill_name))| Pin {
        skill: SkillRef {
            namespace: skill_namespace.to_owned(),
            name: skill_name.to_owned(),
        },
        mode: pin.mode.map(Into::into),
        inputs: pin.inputs.clone(),
        version: pin.version.clone(),
    });
    let config = selector.skills.iter().filter_map(|pin| pin.config_values(&namespace));
    let config = ConfigValues::Here(config.collect());
    let time_limits = spec.sandbox.time_limits();
    RuntimeSettings {
        pins: pins.collect(),
        config,
        unserved: Vec::new(),
        name: RuntimeName::new(namespace, manifest.metadata.name.clone()),
        suspend: spec.is_suspended(),
        max_activation: spec.max_activation(),
        match_labels: selector.match_labels,
        model_code: match spec.sandbox.model_code {
            knack_api::runtime_sandbox::ModelCode::Allow => ModelCode::Allow,
            knack_api::runtime_sandbox::ModelCode::Deny => ModelCode::Deny,
        },
        max_risk: spec.max_risk(),
        timeout: Duration::from_secs(time_limits.default_seconds),
        max_timeout: Duration::from_secs(time_limits.max_seconds),
        memory_bytes: spec.sandbox.resources.as_ref().and_then(Resources::memory_bytes),
        max_memory_bytes: Some(spec.sandbox.max_memory_bytes()),
        max_tool_rounds: injection.max_tool_rounds.unwrap_or(base.max_tool_rounds),
        deadline: injection.deadline_seconds.map_or(base.deadline, Duration::from_secs),
        max_listing_tokens: injection.max_listing_tokens.unwrap_or(base.max_listing_tokens),
        models: injection.models.clone().unwrap_or_default(),
        min_max_tokens: injection.min_max_tokens.unwrap_or(base.min_max_tokens),
        upstreams: spec
            .gateway
            .upstreams
            .iter()
            .map(|(api, upstream)| (api.clone(), upstream.url.clone()))
            .collect(),
        max_runs: spec.concurrency.max_runs,
        max_queued: spec.concurrency.max_queued,
        queue_timeout: spec.concurrency.queue_timeout_seconds.map(Duration::from_secs),
        warm_replicas: spec.warm_pool.replicas,
        warm_idle: spec.warm_pool.max_idle_seconds.map(Duration::from_secs),
    }
}

/// The settings without a manifest.
pub(super) fn without_manifest() -> RuntimeSettings {
    RuntimeSettings {
        max_memory_bytes: Some(RuntimeSandbox::default().max_memory_bytes()),
        ..RuntimeSettings::default()
    }
}

/// The settings of the runtime that is served, for commands that serve nothing.
pub(crate) fn settings(found: &[FoundRuntime]) -> RuntimeSettings {
    let chosen = candidates(found).first().map(|found| from_manifest(&found.manifest));
    chosen.unwrap_or_else(without_manifest)
}

/// The values of configuration that the runtime that is served gives.
pub(crate) fn config_values(found: &[FoundRuntime]) -> Vec<SkillConfig> {
    match settings(found).config {
        ConfigValues::Here(values) => values,
        ConfigValues::AtHub => Vec::new(),
    }
}

/// What a manifest asks of the sandbox of its skill.
#[derive(Debug, Clone)]
pub(super) struct AskedSandbox {
    pub(super) origin: String,
    pub(super) skill: SkillRef,
    pub(super) sandbox: SkillSandbox,
}

/// Why a cluster would not serve a skill beside this runtime for what its manifest asks of its sandbox. Here its runs get the limits of
/// the runtime, so this is a warning.
pub(super) fn over_ceiling(found: &[FoundRuntime], asked: &AskedSandbox) -> Option<SourceReport> {
    let own = RuntimeSandbox::default();
    let runtime = candidates(found)
        .first()
        .map_or(&own, |found| &found.manifest.spec.sandbox);
    let over = selection::over_ceiling(runtime, &asked.sandbox)?;
    let text = format!(
        "Skill {}: {}; a cluster does not serve such a skill, here its runs have the limits of the runtime",
        asked.skill, over.message
    );
    Some(SourceReport::warning(asked.origin.clone(), text))
}

/// The rules of the served runtime about packages. Errors: a rule that cannot be read, with its field.
pub(crate) fn package_rules(found: &[FoundRuntime]) -> anyhow::Result<Rules> {
    let Some(FoundRuntime { origin, manifest, .. }) = candidates(found).first().copied() else {
        return Ok(Rules::default());
    };
    let rules = manifest.spec.packages.as_ref().map(rules).transpose();
    let rules = rules.map_err(|text| anyhow::anyhow!("{origin}: SkillRuntime {}: {text}", manifest.metadata.name))?;
    Ok(rules.unwrap_or_default())
}

/// The runtimes of which the first is served: those that the user named, else all; of these those marked default, else all.
fn candidates(found: &[FoundRuntime]) -> Vec<&FoundRuntime> {
    let is_named = found.iter().any(|found| found.is_named);
    let mut all: Vec<_> = found.iter().filter(|found| found.is_named || !is_named).collect();
    if all.iter().any(|found| found.manifest.spec.default) {
        all.retain(|found| found.manifest.spec.default);
    }
    all
}

/// The runtime that is served, with its origin.
pub(super) struct ChosenRuntime {
    pub(super) settings: RuntimeSettings,
    pub(super) origin: String,
    /// Warnings about the others.
    pub(super) notes: Vec<SourceReport>,
}

/// Chooses among the runtimes found, those that the user named before all others: the one marked default, else the only one, else the
/// first with a warning.
pub(super) fn choose(found: &[FoundRuntime]) -> Option<ChosenRuntime> {
    let candidates = candidates(found);
    let FoundRuntime {
        origin,
        manifest,
        is_named,
    } = candidates.first()?;
    let several = (candidates.len() > 1).then(|| {
        let names: Vec<_> = candidates
            .iter()
            .map(|found| found.manifest.metadata.name.as_str())
            .collect();
        // All of the candidates are marked, or none is.
        let cure = if manifest.spec.default { "keep" } else { "set" };
        let text = format!(
            "several SkillRuntimes ({}); {} is used; {cure} spec.default: true on one of them",
            names.join(", "),
            names[0]
        );
        SourceReport::warning(origin.clone(), text)
    });
    let searched = found.iter().filter(|found| *is_named && !found.is_named);
    let unused = searched.map(|found| {
        let text = format!(
            "SkillRuntime {} was found by searching and is not used beside {origin}, which is named on the command line; to use it, name \
             its file instead",
            found.manifest.metadata.name
        );
        SourceReport::warning(found.origin.clone(), text)
    });
    Some(ChosenRuntime {
        settings: from_manifest(manifest),
        origin: origin.clone(),
        notes: several.into_iter().chain(unused).collect(),
    })
}

/// Why a pin does not take a skill of this version; `None`: no pin requires another one.
pub(super) fn version_refused(runtime: &RuntimeSettings, skill: &SkillRef, version: Option<&str>) -> Option<String> {
    let pin = runtime.pins.iter().find(|pin| pin.skill == *skill)?;
    let wanted = pin.version.as_deref()?;
    if version.is_some_and(|version| satisfies(version, wanted)) {
        return None;
    }
    let found = version.map_or_else(
        || "it has no version".to_owned(),
        |version| format!("its version is {version}"),
    );
    Some(format!(
        "{found}, and the pin of the SkillRuntime requires {wanted} (spec.skillSelector.skills[].version)"
    ))
}

/// Whether this runtime serves a skill; the reason if not. Pins win over labels.
pub(super) fn accepts(runtime: &RuntimeSettings, source: &SkillSource) -> Result<(), String> {
    if source.suspend {
        return Err("suspended by its manifest".to_owned());
    }
    let Some(labels) = &source.labels else {
        return if runtime.match_labels.is_empty() {
            Ok(())
        } else {
            Err("the runtime selects by labels, but a folder without a manifest has none".to_owned())
        };
    };
    if runtime.pins.iter().any(|pin| pin.skill == source.id) {
        return Ok(());
    }
    // Without a manifest there is no namespace to be bound to.
    let without_manifest = runtime.name == RuntimeSettings::default().name;
    if !without_manifest && source.id.namespace != runtime.name.namespace {
        return Err(format!(
            "in namespace {}, the runtime serves {}",
            source.id.namespace, runtime.name.namespace
        ));
    }
    match runtime
        .match_labels
        .iter()
        .find(|(key, value)| labels.get(*key) != Some(value))
    {
        Some((key, value)) => Err(format!("label {key}={value} is missing")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use knack_gateway::catalog::LastGood;
    use knack_skill::catalog::Node;
    use knack_skill::risk::Risk;

    use super::*;
    use crate::dev::assemble::assemble;
    use crate::dev::find_sources::discover;
    use crate::dev::search_settings::Search;

    fn manifest(name: &str, spec: &str) -> String {
        format!("apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {{name: {name}}}\nspec: {spec}\n")
    }

    /// Somebody else's checkout beside it does not widen what the person sets, not even while the named file is broken.
    #[test]
    fn a_runtime_that_was_found_does_not_take_the_place_of_a_named_one() {
        let folder = tempfile::tempdir().unwrap();
        let (named, theirs) = (folder.path().join("runtime.yaml"), folder.path().join("theirs"));
        std::fs::create_dir(&theirs).unwrap();
        let wide = "{default: true, maxRisk: Critical, maxActivation: Always, packages: {constraints: [\"a<1\"]}}";
        let mut last = LastGood::default();
        for (mine, other, paths, risk) in [
            ("{maxRisk: Safe}", "other", [&named, &theirs], Risk::Safe),
            ("{maxRisk: Safe}", "other", [&theirs, &named], Risk::Safe),
            ("{maxRisk: Safe}", "mine", [&theirs, &named], Risk::Safe),
            // It was served last, and another file of its name is none of the person's.
            ("{maxRisk: [}", "mine", [&theirs, &named], Risk::Safe),
            ("{maxRisk: Moderate}", "mine", [&theirs, &named], Risk::Moderate),
        ] {
            std::fs::write(&named, manifest("mine", mine)).unwrap();
            std::fs::write(theirs.join("x.yaml"), manifest(other, wide)).unwrap();
            let found = discover(&Search::of(paths.map(Clone::clone).to_vec()));
            let is_broken = mine.contains('[');
            if !is_broken {
                assert_eq!(settings(&found.runtimes).max_risk, risk, "{mine} {other}");
                assert_eq!(package_rules(&found.runtimes).unwrap(), Rules::default());
            }
            let snapshot = assemble(found, Node::Absent, &mut last);
            assert_eq!(snapshot.runtime.max_risk, risk, "{mine} {other}");
            let said: Vec<String> = snapshot.reports.iter().map(ToString::to_string).collect();
            let is_told = said
                .iter()
                .any(|text| text.contains("was found by searching and is not used beside"));
            assert_eq!(is_told, !is_broken, "{said:?}");
        }
        // Where none is named, one that is found counts.
        let found = discover(&Search::of(vec![theirs]));
        assert_eq!(settings(&found.runtimes).max_risk, Risk::Critical);
    }

    #[test]
    fn a_file_that_is_named_is_not_found_once_more() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runtime.yaml");
        let spec = "{gateway: {upstreams: {openai: {url: \"https://llm.example.org/v1\"}}}}";
        std::fs::write(&file, manifest("mine", spec)).unwrap();
        let (folder, file) = (folder.path().to_owned(), file);
        for paths in [vec![folder.clone(), file.clone()], vec![file, folder]] {
            let snapshot = assemble(discover(&Search::of(paths)), Node::Absent, &mut LastGood::default());
            assert_eq!((snapshot.runtime.upstreams.len(), snapshot.reports), (1, Vec::new()));
        }
    }
}
