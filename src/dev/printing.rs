//! The lines that `knack dev` prints while it starts and when its catalog changes.

use std::net::SocketAddr;
use std::path::Path;

use knack_execution::Capabilities;
use knack_gateway::catalog::Snapshot;

use crate::cli::terminal;
use crate::counted::counted;

/// Prints how code runs here, and where generated files are written.
pub(super) fn announce(capabilities: &Capabilities, files_folder: Option<&Path>) {
    for note in &capabilities.notes {
        terminal::line(note);
    }
    if let Some(missing) = &capabilities.missing {
        terminal::line(&format!("code is not run here: {missing}"));
    }
    if let Some(folder) = files_folder {
        terminal::line(&format!("generated files are written to {}", folder.display()));
    }
}

/// Prints the problems, the revision and the skills of a catalog.
pub(super) fn print_snapshot(snapshot: &Snapshot) {
    for report in &snapshot.reports {
        terminal::line(&report.to_string());
    }
    let names: Vec<&str> = snapshot.skills.iter().map(|skill| skill.id.name.as_str()).collect();
    terminal::line(&format!(
        "{} at revision {}: {}",
        counted(names.len(), "skill"),
        snapshot.revision,
        names.join(", ")
    ));
}

/// Prints how to point each SDK here: the only thing that a person must do.
pub(super) fn greet(address: SocketAddr, mock: bool) {
    terminal::line(&format!(
        "knack serves http://{address}{}",
        if mock { " with a scripted model behind it" } else { "" }
    ));
    terminal::line(&format!("  OpenAI SDKs     export OPENAI_BASE_URL=http://{address}/v1"));
    terminal::line(&format!("  Anthropic SDKs  export ANTHROPIC_BASE_URL=http://{address}"));
    terminal::line(&format!(
        "  Google Gen AI   export GOOGLE_GEMINI_BASE_URL=http://{address}"
    ));
    terminal::line(&format!("  MCP clients     http://{address}{}", knack_mcp::PATH));
}
