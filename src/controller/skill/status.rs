//! The status of a skill from what was made of it. Pure.

use k8s_openapi::jiff::Timestamp;
use knack_skill::texts;
use kube::ResourceExt as _;
use sha2::{Digest as _, Sha256};

use super::super::conditions::{State, Verdict, conditions, cut};
use super::super::reason::Reason;
use super::judge::Judged;
use super::verdicts::Verdicts;
use crate::api::skill_status::{ArtifactStatus, ConfigMapStatus, TokenStatus, ToolStatus};
use crate::api::{Skill, SkillStatus};
use crate::artifact::Artifact;

/// Most warnings that a condition lists.
const WARNINGS_MAX: usize = 3;

/// What a skill's status says besides conditions and runtimes.
pub(super) fn content(judged: &Judged, artifact: &Artifact) -> SkillStatus {
    let skill = &judged.skill;
    let tools = skill.tools.iter().take(64).map(|tool| ToolStatus {
        name: cut(&tool.name, 64),
        path: tool
            .command
            .iter()
            .find(|part| skill.files.contains_key(*part))
            .cloned(),
    });
    let config_maps = artifact.shards.iter().map(|shard| ConfigMapStatus {
        name: shard.name_any(),
        digest: shard_digest(shard),
    });
    SkillStatus {
        name: Some(cut(&skill.title, 256)),
        description: Some(cut(&skill.description, 1024)),
        version: skill.version.as_deref().map(|version| cut(version, 64)),
        activation: Some(skill.activation.into()),
        artifact: Some(ArtifactStatus {
            revision: artifact.revision.clone(),
            digest: artifact.digest.clone(),
            size: number(artifact.size),
            file_count: number(artifact.file_count),
        }),
        config_maps: config_maps.collect(),
        tools: tools.collect(),
        tokens: Some(TokenStatus {
            listing: number(texts::tokens(skill.id.name.len() + skill.description.len())),
            body: number(texts::tokens(skill.body.len())),
        }),
        ..SkillStatus::default()
    }
}

/// Hash of a ConfigMap's content: its keys and values in order.
fn shard_digest(shard: &k8s_openapi::api::core::v1::ConfigMap) -> String {
    let mut hash = Sha256::new();
    let mut add = |key: &str, value: &[u8]| {
        hash.update(format!("{key} {}\n", value.len()));
        hash.update(value);
    };
    for (key, value) in shard.data.iter().flatten() {
        add(key, value.as_bytes());
    }
    for (key, value) in shard.binary_data.iter().flatten() {
        add(key, &value.0);
    }
    crate::digest::hex(&hash.finalize())
}

fn number(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// How a delivered skill reads.
pub(super) fn delivered(judged: &Judged) -> Verdict {
    let artifact = &judged.artifact;
    let mut message = format!(
        "revision {} delivered: {} files, {} bytes",
        artifact.revision, artifact.file_count, artifact.size
    );
    if !judged.warnings.is_empty() {
        let told: Vec<_> = judged.warnings.iter().take(WARNINGS_MAX).cloned().collect();
        message.push_str(&format!("; {} warnings: {}", judged.warnings.len(), told.join("; ")));
    }
    Verdict::new(State::Ready, Reason::Delivered, message)
}

/// A failure beside a last good revision says that the latter still serves.
pub(super) fn with_last_good(mut verdict: Verdict, before: &SkillStatus) -> Verdict {
    if let Some(artifact) = &before.artifact
        && matches!(verdict.state, State::Stalled | State::Retrying)
    {
        verdict.message = format!(
            "{}. Revision {} stays in service until this is mended",
            cut(&verdict.message, 1_800),
            artifact.revision
        );
    }
    verdict
}

/// The whole status: new content, or the last good one; conditions; what runtimes say.
pub(super) fn status(
    skill: &Skill,
    content: Option<SkillStatus>,
    verdict: &Verdict,
    verdicts: &Verdicts,
    now: Timestamp,
) -> SkillStatus {
    let before = skill.status.clone().unwrap_or_default();
    let generation = skill.metadata.generation.unwrap_or_default();
    let conditions = conditions(&before.conditions, generation, verdict, Some(&verdicts.acceptance), now);
    SkillStatus {
        observed_generation: Some(generation),
        last_handled_reconcile_at: requested_at(skill),
        conditions,
        runtimes: verdicts.listed.clone(),
        ..content.unwrap_or(before)
    }
}

/// The wish for a reconcile, cut to what status holds.
pub(super) fn requested_at(skill: &Skill) -> Option<String> {
    let value = skill
        .annotations()
        .get(crate::api::vocabulary::ANNOTATION_REQUESTED_AT)?;
    Some(cut(value, 256))
}
