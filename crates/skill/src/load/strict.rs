//! What a dialect's specification demands beyond what can be served: the Strict profile only.

use serde_json::{Map, Value};

use super::document::Document;
use super::types::LoadInput;
use crate::agent_flow;
use crate::agentskills;
use crate::finding::Finding;
use crate::husk;
use crate::model::Dialect;
use crate::problem::{Problem, ProblemKind, Profile, Severity};

/// The demands of the document's own dialect that it does not meet.
pub(super) fn check(document: &Document, input: &LoadInput) -> Vec<Problem> {
    if input.profile != Profile::Strict || document.node.is_none() {
        return Vec::new();
    }
    let findings = match document.dialect {
        Dialect::AgentSkills => agentskills_demands(document, &input.id.name),
        Dialect::AgentFlow => agent_flow_demands(document, &input.id.name),
        Dialect::Husk => husk::problems(&document.members),
    };
    let refused = findings.into_iter().filter(Finding::is_refused);
    refused
        .map(|finding| {
            Problem::new(Severity::Error, finding.kind, finding.message, finding.help)
                .in_file(document.file.as_str())
                .at_line(document.line_of(&finding.field))
                .on(finding.field)
        })
        .collect()
}

fn agentskills_demands(document: &Document, name: &str) -> Vec<Finding> {
    let form = document
        .node
        .as_ref()
        .and_then(|node| agentskills::strict_form(node, &document.yaml));
    let mut findings = agentskills::validate(&as_written(document), name);
    findings.extend(form.map(|reason| {
        let help = "write block style, plain values and no anchors";
        Finding::refused(
            ProblemKind::YamlInvalid,
            "",
            format!("not valid YAML under the Agent Skills specification: {reason}"),
            help,
        )
    }));
    findings
}

/// Top-level scalars as written, everything else as JSON.
fn as_written(document: &Document) -> Map<String, Value> {
    let text = |key: &String, value: &Value| document.written(key).map_or_else(|| value.clone(), Value::String);
    document
        .members
        .iter()
        .map(|(key, value)| (key.clone(), text(key, value)))
        .collect()
}

fn agent_flow_demands(document: &Document, name: &str) -> Vec<Finding> {
    let frontmatter = agent_flow::Frontmatter {
        members: document.members.clone(),
        body: document.body.clone(),
    };
    let (_, mut findings) = agent_flow::read(name, frontmatter);
    findings.extend(agent_flow::check_size(&document.text).err());
    findings
}
