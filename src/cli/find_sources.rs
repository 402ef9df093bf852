//! The skills at the paths of a command.

use std::path::PathBuf;

use knack_gateway::catalog::SkillSource;
use knack_skill::SpecOverrides;
use knack_skill::model::SandboxRequest;

use super::terminal;
use crate::dev::{DiscoveredSources, Search};

/// Searches paths by `discover` or a function like it, off the async runtime, and says what could not be read.
pub(super) async fn find_sources(
    paths: Vec<PathBuf>,
    by: fn(&Search) -> DiscoveredSources,
) -> anyhow::Result<DiscoveredSources> {
    let found = tokio::task::spawn_blocking(move || by(&Search::of(paths))).await?;
    for report in &found.reports {
        terminal::note(&report.to_string());
    }
    Ok(found)
}

/// The fields that the manifest of a skill sets beside its files.
pub(super) fn manifest_fields(source: &SkillSource) -> Vec<&'static str> {
    // Without a rest: a member that is forgotten here would be dropped without a word.
    let SpecOverrides {
        version,
        activation,
        tags,
        tools,
        inputs,
        ids,
        sandbox,
        packages,
    } = &source.overrides;
    let fields = [
        ("spec.version", version.is_some()),
        ("spec.activation.mode", activation.is_some()),
        ("spec.activation.tags", tags.is_some()),
        ("spec.tools", tools.is_some()),
        ("spec.inputs", inputs.is_some()),
        ("spec.ids", ids.is_some()),
        (
            "spec.sandbox",
            sandbox
                .as_ref()
                .is_some_and(|sandbox| *sandbox != SandboxRequest::default()),
        ),
        ("spec.packages", packages.is_some()),
        ("spec.suspend", source.suspend),
        ("spec.allowedRuntimes", source.has_allowed_runtimes),
    ];
    let set = fields.into_iter().filter(|(_, is_set)| *is_set);
    set.map(|(field, _)| field).collect()
}
