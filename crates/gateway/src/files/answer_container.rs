//! The container that an answer shows.
//!
//! Messages has it as a member of the response, Responses with each run. Where uploads are kept here it carries files: what
//! the runs of a request make is there for the runs of the next one that names it. Elsewhere it is an id and nothing more.

use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use knack_skill::plan::{Plan, ServedVersion};
use knack_wire::history::Caller;
use knack_wire::own_files::ANSWER_CONTAINER_PREFIX;
use knack_wire::request::ContainerSkill;
use knack_wire::{CallKind, Fault, Format, Injection, RequestFields};
use serde_json::json;

use super::user_files::named::fault_of_param;
use super::user_files::{Container, FilesCaller, UserFiles, text_time};
use crate::state::Gateway;

/// The lifetime that is reported for an id that carries nothing.
const WITHOUT_FILES: SignedDuration = SignedDuration::from_hours(1);

/// How long a request waits for its turn to open a container.
const OPEN_PATIENCE: Duration = Duration::from_secs(5);

/// The container of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnswerContainer {
    /// The container as JSON.
    pub shown: String,
    /// Where files of the runs go, if they are carried on.
    pub id: Option<String>,
}

/// The input of the decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContainerContext<'a> {
    /// The request.
    pub(crate) fields: &'a RequestFields,
    /// The request's plan.
    pub plan: &'a Plan,
    /// The injected plan.
    pub(crate) injection: &'a Injection,
    /// Where it came in.
    pub(crate) route: (Format, CallKind),
    /// The caller.
    pub caller: &'a Caller,
    /// Where it comes from, if nobody checked who it is.
    pub address: Option<IpAddr>,
    /// The gateway's id of the request.
    pub request_id: &'a str,
    /// Whether the client speaks the older Skills API of Anthropic, whose versions are named by the time of their making.
    pub beta: bool,
}

/// The container of an answer; `None`: it shows none of Knack's. `named`: the one that the request names. Errors (503, 507): none
/// can be opened, and the files of the runs would not be where the client reads.
pub(crate) async fn of(
    gateway: &Gateway,
    asked: &ContainerContext<'_>,
    named: Option<Container>,
) -> Result<Option<AnswerContainer>, Fault> {
    let (format, kind) = asked.route;
    // Where nothing is injected, no skill of Knack was used; a container that the client names is still its own.
    if kind != CallKind::Generate || asked.plan.litellm || (asked.plan.off && named.is_none()) {
        return Ok(None);
    }
    let is_replaced = asked.injection.code_tool.is_some() && !asked.plan.tools.is_empty();
    match format {
        Format::Responses if is_replaced => {
            let Some(store) = &gateway.user_files else {
                return Ok(None);
            };
            let container = match named {
                Some(named) => named,
                None => open(store, asked).await?,
            };
            Ok(Some(AnswerContainer {
                shown: json!({"id": container.id}).to_string(),
                id: Some(container.id),
            }))
        }
        // Knack's are removed from the container that goes upstream and restored in the response's: in the vendor's container,
        // beside native skills, or where it gives none in one of Knack's.
        Format::Messages if !asked.plan.container.ours.is_empty() || is_replaced || named.is_some() => {
            Ok(Some(of_messages(gateway, asked, named)))
        }
        _ => Ok(None),
    }
}

async fn open(store: &UserFiles, asked: &ContainerContext<'_>) -> Result<Container, Fault> {
    let caller = asked.caller.clone();
    let counted = caller.bucket();
    let who = FilesCaller::new(caller, counted, asked.address).waiting(OPEN_PATIENCE);
    let opened = store.open_container(&who).await;
    opened.map_err(|refusal| {
        let fault = fault_of_param(&refusal, "tools");
        // The request may name no file: it is the shell that needs a place for them.
        let message = format!(
            "The container of the tool \"shell\" cannot be opened. {}",
            fault.message
        );
        Fault { message, ..fault }
    })
}

fn of_messages(gateway: &Gateway, asked: &ContainerContext<'_>, named: Option<Container>) -> AnswerContainer {
    let own = &asked.plan.container;
    let own = own.ours.iter().zip(&own.versions);
    let own = own
        .filter(|_| !asked.plan.off)
        .filter_map(|(&index, served)| Some((asked.fields.container_skills.get(index)?, served)));
    let skills: Vec<_> = own
        .map(|(skill, served)| shown(skill, served.as_ref(), asked.beta))
        .collect();
    let store = gateway.user_files.as_ref();
    let now = store.map_or_else(Timestamp::now, |store| store.now());
    let idle = match (&named, store) {
        (Some(named), _) => named.idle,
        (None, Some(store)) => store.idle(),
        (None, None) => WITHOUT_FILES,
    };
    let expires = now.saturating_add(idle).unwrap_or(Timestamp::MAX);
    let id = named.map_or_else(
        || format!("{ANSWER_CONTAINER_PREFIX}{}", asked.request_id.replace('-', "")),
        |named| named.id,
    );
    AnswerContainer {
        shown: json!({"id": id, "expires_at": text_time(expires), "skills": skills}).to_string(),
        id: store.is_some().then_some(id),
    }
}

/// A skill with the version that was served, as a client stores it that asked for the latest.
fn shown(skill: &ContainerSkill, served: Option<&ServedVersion>, beta: bool) -> serde_json::Value {
    let served = served.map(|served| match &served.id {
        Some(id) if !beta => id,
        _ => &served.word,
    });
    let version = served.map(String::as_str).or(skill.version.text()).unwrap_or("latest");
    json!({"type": skill.kind, "skill_id": skill.id, "version": version})
}
