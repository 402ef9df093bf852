//! A request as the body of a POST.

use std::time::Duration;

use knack_hub_api::{
    Data, ExecutionPost, InputLineFile, LimitsLine, MountLine, ProgramLine, RuntimeName, WorkingDirectoryLine,
};

use crate::{ExecutionRequest, Limits, Program, WorkingDirectory};

/// First protocol with declared tools by name.
const PROTOCOL_OF_TOOLS: u32 = 2;

/// The body for a request at a runtime, as a hub of `protocol` reads it. Environment values stay behind: the runtime's
/// grants are the hub's.
pub(crate) fn post_of_request(
    runtime: &RuntimeName,
    request: &ExecutionRequest,
    live: bool,
    protocol: u32,
) -> ExecutionPost {
    let mounts: Vec<MountLine> = request
        .mounts
        .iter()
        .map(|mount| MountLine {
            mount: mount.name.clone(),
            namespace: mount.skill.id.namespace.clone(),
            name: mount.skill.id.name.clone(),
            digest: mount.skill.digest.clone(),
        })
        .collect();
    let skill = request.skill.as_ref();
    let skill = skill.and_then(|skill| request.mounts.iter().position(|mount| mount.skill.id == *skill));
    ExecutionPost {
        protocol,
        runtime: runtime.clone(),
        id: request.id.to_string(),
        skill,
        program: match (&request.program, &request.tool) {
            // The hub makes the command line itself: what is not sent cannot be forged.
            (_, Some(tool)) if protocol >= PROTOCOL_OF_TOOLS => ProgramLine::Tool {
                name: tool.tool.clone(),
                arguments: tool.arguments.clone(),
            },
            (Program::Code { language, source }, _) => ProgramLine::Code {
                language: language.as_str().to_owned(),
                source: source.clone(),
            },
            (Program::Command { argv }, _) => ProgramLine::Command { argv: argv.clone() },
        },
        mounts,
        inputs: request
            .inputs
            .iter()
            .map(|input| InputLineFile {
                path: input.path.clone(),
                data: Data(input.bytes.clone()),
            })
            .collect(),
        working_directory: match &request.working_directory {
            WorkingDirectory::Work => WorkingDirectoryLine::Work,
            WorkingDirectory::Skill(name) => WorkingDirectoryLine::Skill(name.clone()),
        },
        limits: LimitsLine {
            timeout_ms: Some(u64::try_from(request.limits.timeout.as_millis()).unwrap_or(u64::MAX)),
            max_output_bytes: Some(request.limits.max_output_bytes),
            max_files_bytes: Some(request.limits.max_files_bytes),
            max_files: Some(request.limits.max_files),
            memory_bytes: request.limits.memory_bytes,
            max_processes: request.limits.max_processes,
        },
        live,
        client: Some(client_of(&request.caller)),
    }
}

/// The caller's name for a hub, which shares capacity evenly between such names: it reveals nothing else about the
/// caller.
fn client_of(caller: &str) -> String {
    knack_skill::digest::sha256(caller)
        .chars()
        .take(CLIENT_DIGITS)
        .collect()
}

/// Hex digits of a client's name.
const CLIENT_DIGITS: usize = 16;

/// Limits of a POST under the runtime's own: `default` for what is not asked, never above `ceiling`, and never above the
/// defaults for what a runtime does not set.
pub fn limits_from(line: &LimitsLine, default: Duration, ceiling: Duration) -> Limits {
    let base = Limits::default();
    Limits {
        timeout: line.timeout_ms.map_or(default, Duration::from_millis).min(ceiling),
        max_output_bytes: line
            .max_output_bytes
            .map_or(base.max_output_bytes, |asked| asked.min(MAX_OUTPUT_BYTES)),
        max_files_bytes: line
            .max_files_bytes
            .map_or(base.max_files_bytes, |asked| asked.min(base.max_files_bytes)),
        max_files: line.max_files.map_or(base.max_files, |asked| asked.min(base.max_files)),
        memory_bytes: line.memory_bytes,
        max_processes: line.max_processes,
    }
}

/// Highest cap of stdout and of stderr that a skill may ask for: the CRD's own bound of `sandbox.maxOutputBytes`.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_the_runtimes_unless_tighter_ones_are_asked() {
        let (default, ceiling) = (Duration::from_secs(10), Duration::from_mins(1));
        let base = Limits::default();
        for (asked, expected) in [
            (None, default),
            (Some(5_000), Duration::from_secs(5)),
            (Some(600_000), ceiling),
            (Some(u64::MAX), ceiling),
        ] {
            let line = LimitsLine {
                timeout_ms: asked,
                max_files: Some(u32::MAX),
                max_files_bytes: Some(u64::MAX),
                max_output_bytes: Some(u64::MAX),
                ..LimitsLine::default()
            };
            let limits = limits_from(&line, default, ceiling);
            assert_eq!(limits.timeout, expected);
            assert_eq!(limits.max_files, base.max_files);
            assert_eq!(limits.max_files_bytes, base.max_files_bytes);
            assert_eq!(limits.max_output_bytes, MAX_OUTPUT_BYTES);
        }
    }
}
