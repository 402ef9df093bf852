//! The status of a skill from what was made of it. Pure.

use k8s_openapi::jiff::Timestamp;
use knack_api::SkillStatus;
use knack_api::skill_status::{ArtifactStatus, ConfigMapStatus, InputStatus, TokenStatus, ToolStatus};
use knack_skill::risk::Risk;
use knack_skill::texts;
use knack_vocabulary::ANNOTATION_REQUESTED_AT;
use kube::core::ObjectMeta;

use super::super::conditions::{Verdict, VerdictState, conditions};
use super::super::reason::Reason;
use super::super::settings::DESCRIPTION_MAX;
use super::deliver::Delivery;
use super::judge::{JUDGE, ValidatedSkill};
use super::outline::Outline;
use super::verdicts::Verdicts;
use crate::counted::counted;
use crate::shortened::cut;

/// Most warnings that a condition lists.
const WARNINGS_MAX: usize = 3;

/// A skill's status without conditions and runtimes.
pub(super) fn content(validated: &ValidatedSkill, config_maps: Vec<ConfigMapStatus>) -> SkillStatus {
    let (skill, artifact) = (validated.skill(), validated.artifact());
    let tools = skill.tools.iter().take(64).map(|tool| ToolStatus {
        name: cut(&tool.name, 64),
        path: tool
            .command
            .iter()
            .find(|part| skill.files.contains_key(*part))
            .cloned(),
        risk: (tool.risk > Risk::Safe).then(|| tool.risk.into()),
        config: tool.config.iter().map(Into::into).collect(),
    });
    let inputs = skill.inputs.iter().take(64).map(|input| InputStatus {
        name: input.name.clone(),
        required: input.required,
    });
    SkillStatus {
        name: Some(cut(&skill.title, 256)),
        description: Some(cut(&skill.description, DESCRIPTION_MAX)),
        version: skill.version.as_deref().map(|version| cut(version, 64)),
        activation: Some(skill.activation.into()),
        artifact: Some(ArtifactStatus {
            revision: artifact.revision.clone(),
            digest: artifact.digest.clone(),
            size: number(artifact.size),
            file_count: number(artifact.file_count),
        }),
        config_maps,
        judged_by: Some(JUDGE.to_owned()),
        tools: tools.collect(),
        inputs: inputs.collect(),
        ids: skill.ids.clone(),
        packages: validated.packages().cloned(),
        tokens: Some(TokenStatus {
            listing: number(texts::tokens(skill.id.name.len() + skill.description.len())),
            body: number(texts::tokens(skill.body.len())),
        }),
        // Of each look, not of the content: `status` sets them. Without a rest, so that a new member is no oversight.
        observed_generation: None,
        last_handled_reconcile_at: None,
        conditions: Vec::new(),
        earlier: Vec::new(),
        runtimes: Vec::new(),
    }
}

fn number(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// How a delivered skill reads.
pub(super) fn delivered(validated: &ValidatedSkill, made: &Delivery) -> Verdict {
    let (artifact, warnings) = (validated.artifact(), validated.warnings());
    let mut message = format!(
        "revision {} delivered: {}, {} bytes",
        artifact.revision,
        counted(artifact.file_count, "file"),
        artifact.size
    );
    if !made.replaced.is_empty() {
        message.push_str(&format!("; {}", replaced(&made.replaced).message));
    }
    if !warnings.is_empty() {
        let shown: Vec<_> = warnings.iter().take(WARNINGS_MAX).cloned().collect();
        message.push_str(&format!(
            "; {}: {}",
            counted(warnings.len(), "warning"),
            shown.join("; ")
        ));
        if warnings.len() > WARNINGS_MAX {
            message.push_str("; `knack skill validate` lists all");
        }
    }
    Verdict::new(VerdictState::Ready, Reason::Delivered, message)
}

/// Reports that our ConfigMaps were replaced by others: an Event, and a text in the condition until the next revision.
pub(super) fn replaced(names: &[String]) -> Verdict {
    let text = format!(
        "ConfigMap {} had been changed; the controller deleted it and created it again",
        names.join(", ")
    );
    Verdict::new(VerdictState::Retrying, Reason::ContentReplaced, text)
}

/// A failure beside a last good revision says that the latter still serves.
pub(super) fn with_last_good(mut verdict: Verdict, before: &SkillStatus) -> Verdict {
    if let Some(artifact) = &before.artifact
        && matches!(verdict.state, VerdictState::Stalled | VerdictState::Retrying)
    {
        verdict.message = format!(
            "{}. Revision {} stays in service until this is fixed",
            cut(&verdict.message, 1_800),
            artifact.revision
        );
    }
    verdict
}

/// The whole status: new content, or the last good one; conditions; what runtimes say.
pub(super) fn status(
    outline: &Outline,
    content: Option<SkillStatus>,
    verdict: &Verdict,
    verdicts: &Verdicts,
    now: Timestamp,
) -> SkillStatus {
    let before = outline.before();
    let generation = outline.meta().generation.unwrap_or_default();
    let made = conditions(&before.conditions, generation, verdict, Some(&verdicts.acceptance), now);
    // Without a rest: whether a new member is of the content, or of each look, is decided here.
    let SkillStatus {
        observed_generation: _,
        last_handled_reconcile_at: _,
        conditions: _,
        name,
        description,
        version,
        activation,
        artifact,
        config_maps,
        judged_by,
        tools,
        inputs,
        ids,
        tokens,
        packages,
        earlier: _,
        runtimes: _,
    } = content.unwrap_or_else(|| before.clone());
    SkillStatus {
        observed_generation: Some(generation),
        last_handled_reconcile_at: requested_at(outline.meta()),
        conditions: made,
        name,
        description,
        version,
        activation,
        artifact,
        config_maps,
        judged_by,
        tools,
        inputs,
        ids,
        tokens,
        packages,
        earlier: verdicts.earlier.clone(),
        runtimes: verdicts.listed.clone(),
    }
}

/// The value of the annotation that requests a reconcile, cut to what status holds.
pub(super) fn requested_at(meta: &ObjectMeta) -> Option<String> {
    let annotations = meta.annotations.as_ref()?;
    Some(cut(annotations.get(ANNOTATION_REQUESTED_AT)?, 256))
}
