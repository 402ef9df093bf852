//! The log of a request, as far as its plan decides it.

use knack_hub_api::SkillUseKind;
use knack_skill::plan::{ActivationCause, Active, Plan};
use knack_wire::{Format, RequestFields};

use crate::catalog::Snapshot;
use crate::runs::skill_runs::RunOrigin;
use crate::telemetry::log::RequestLog;
use crate::telemetry::request_report::cut_copy;
use crate::telemetry::skill_metrics::SkillUse;

/// The log of a request that begins now; `run`: it is the request of a run of a skill.
pub(super) fn new_log(format: Format, request_id: String, run: Option<&RunOrigin>) -> RequestLog {
    RequestLog {
        request_id,
        begun: jiff::Timestamp::now(),
        format: word(format),
        notes: run.map(|run| format!("run by POST {}", run.path)).into_iter().collect(),
        ..RequestLog::default()
    }
}

/// Adds the plan of a request to its log.
pub(super) fn describe(log: &mut RequestLog, fields: &RequestFields, plan: &Plan, snapshot: &Snapshot) {
    // A client can make it as long as a body.
    log.subject = cut_copy(&fields.model);
    log.stream = fields.stream;
    log.skills = plan
        .active
        .iter()
        .map(|active| format!("{} ({})", active.handle, why(active.why)))
        .collect();
    log.uses = plan.active.iter().map(carried).collect();
    let is_run = plan.active.iter().any(|active| active.why == ActivationCause::Run);
    if !plan.off && !is_run {
        log.listed = snapshot.listed;
    }
    log.added_tokens = plan.added_tokens;
    let notes = plan.notes.iter().map(|note| {
        note.skill.as_ref().map_or_else(
            || note.text.clone(),
            |skill| format!("skill {}: {}", skill.name, note.text),
        )
    });
    log.notes.extend(notes);
}

fn carried(active: &Active) -> SkillUse {
    SkillUse {
        skill: active.skill.id.to_string(),
        what: SkillUseKind::Carried,
        tokens: knack_skill::texts::tokens(active.skill.body.len()),
        call: None,
    }
}

const fn why(why: ActivationCause) -> &'static str {
    match why {
        ActivationCause::Always => "always",
        ActivationCause::Mention => "@mention",
        ActivationCause::Header => "header",
        ActivationCause::Container | ActivationCause::Litellm => "container",
        ActivationCause::Auto => "auto",
        ActivationCause::Run => "run",
    }
}

/// The word for a format in logs.
const fn word(format: Format) -> &'static str {
    match format {
        Format::Chat => "chat",
        Format::Messages => "messages",
        Format::Responses => "responses",
        Format::Gemini => "gemini",
    }
}
