//! The skills at the paths of a command.

use std::path::PathBuf;

use super::terminal;
use crate::dev::{DiscoveredSources, Search};

/// Searches paths by `discover` or a function like it, off the async runtime, and says what could not be read.
pub(super) async fn discovered(
    paths: Vec<PathBuf>,
    by: fn(&Search) -> DiscoveredSources,
) -> anyhow::Result<DiscoveredSources> {
    let found = tokio::task::spawn_blocking(move || by(&Search::of(paths))).await?;
    for report in &found.reports {
        terminal::note(&report.to_string());
    }
    Ok(found)
}
