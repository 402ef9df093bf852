//! `/v1/executions`: runs, their records, and their end.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode};
use knack_execution::lines::{refusal_of_error, state_of_record};
use knack_execution::{ExecutionError, ExecutionId, ExecutionResult, Executor as _};
use knack_hub_api::{ExecutionPost, ExecutionState, HubRefusal, MountLine, RefusalCode, RuntimeName};
use knack_serving::bodies::{HeldBody, Holding};
use knack_serving::run_off_thread_if_large;
use knack_skill::model::SkillRef;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::execution_answer::{AbortOnDrop, NoResult, RunAnswer, Stage};
use super::{HubState, RefusalResponse, RuntimeQuery, granted, nobody};
use crate::account_auth::ServiceAccountCaller;
use crate::hub::access::GrantedCaller;
use crate::hub::admission::{self, Admission, MountedSkill};
use crate::hub::artifacts::ArtifactError;
use crate::hub::start::starting;
use crate::hub::trace::ExecutionTrace;
use crate::jobs::{Event, JobExecutor, JobRequest};
use crate::request_bodies::no_room;
use crate::selection::{Rejection, Revision, Scope};

/// Events that wait for a reader: what a run writes in about a second (4 KiB or 50 ms each). A reader that falls behind
/// loses live output, never the result.
const SPOOL_EVENTS: usize = 64;
/// `POST /v1/executions`.
pub(super) async fn run(
    State(state): State<Arc<HubState>>,
    Extension(caller): Extension<ServiceAccountCaller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RefusalResponse> {
    let refused = |refusal| RefusalResponse::new("executions", refusal);
    let begun = Instant::now();
    let mut trace = ExecutionTrace::begin(&state.settings.tracer, &headers, begun);
    let checked = match check(&state, &caller, &headers, body).await {
        Ok(checked) => checked,
        Err(refusal) => {
            trace.refuse(refusal.code.as_str());
            return Err(refused(refusal));
        }
    };
    let (id, live, runtime) = (checked.id, checked.post.live, checked.granted.name.to_string());
    trace.describe(&runtime, &id.to_string(), checked.skill().as_deref());
    let (sender, events) = mpsc::channel(SPOOL_EVENTS);
    let metrics = Arc::clone(&state.metrics);
    let task = tokio::spawn(carry_out(state, caller, checked, sender));
    let answer = RunAnswer {
        id,
        live,
        events,
        task: AbortOnDrop(task),
        metrics,
        runtime,
        begun,
        trace,
        stage: Stage::Accepted,
    };
    answer.respond().await.map_err(refused)
}

/// A request that is read, of a caller who may use the runtime.
struct CheckedRequest {
    id: ExecutionId,
    /// The skills that it mounts.
    skills: Vec<SkillRef>,
    post: ExecutionPost,
    granted: GrantedCaller,
    /// Its share of the budget, which it keeps until the run has ended, however long it waits.
    holding: Holding,
}

impl CheckedRequest {
    /// The skill that it runs for, as `namespace/name`.
    fn skill(&self) -> Option<String> {
        let skill = self.post.skill.and_then(|index| self.skills.get(index))?;
        Some(skill.to_string())
    }
}

/// Reads a body, or returns the reason for refusing it.
async fn check(
    state: &HubState,
    caller: &ServiceAccountCaller,
    headers: &HeaderMap,
    body: Body,
) -> Result<CheckedRequest, HubRefusal> {
    let HeldBody { bytes, mut holding } = state.bodies.read(&caller.key(), headers, body).await?;
    let (post, program_bytes) = run_off_thread_if_large(bytes.len(), move || parse(&bytes)).await?;
    let inputs = post.inputs.iter().map(|input| input.path.len() + input.data.0.len());
    holding.shrink_to(inputs.sum::<usize>() + program_bytes);
    let granted = state.access.check(caller, &post.runtime).await?;
    let (id, skills) = admission::read(&post)?;
    Ok(CheckedRequest {
        id,
        skills,
        post,
        granted,
        holding,
    })
}

/// Runs a request, or joins the run that it repeats. The head of the answer does not wait for it: a takeover by this replica, or
/// content that is read, may take long.
async fn carry_out(
    state: Arc<HubState>,
    caller: ServiceAccountCaller,
    checked: CheckedRequest,
    events: mpsc::Sender<Event>,
) -> Result<Arc<ExecutionResult>, NoResult> {
    let CheckedRequest {
        id,
        skills,
        post,
        granted,
        holding,
    } = checked;
    // A client that disconnects does not cancel: the run continues for the executor's grace period, and only DELETE ends it.
    let cancel = CancellationToken::new();
    // Before it is admitted: since its first request the runtime may have been suspended, or its skill replaced.
    let known = match state.executors.get(&granted.name) {
        Some(executor) => executor.known(&caller.key(), id).await.map_err(NoResult::Ended)?,
        None => None,
    };
    if let Some(known) = known {
        drop((post, holding));
        return known.attend(cancel, events).await.map_err(NoResult::Ended);
    }
    let executor = executor(&state, &granted).map_err(NoResult::Refused)?;
    let sharer = sharer(&state, &caller, &granted, post.client.as_deref()).await;
    let sharer = sharer.map_err(NoResult::Refused)?;
    let request = request(&state, &caller, &granted, &executor, post, (id, &skills)).await;
    let request = JobRequest {
        sharer,
        memory: Some(Arc::new(holding)),
        ..request.map_err(NoResult::Refused)?
    };
    let ran = executor.execute_streaming(request, cancel, events).await;
    ran.map_err(NoResult::Ended)
}

/// Longest `program`, bytes: source text that a model wrote, a command line, or arguments of a tool. As JSON values such
/// bytes take up to 64 times their size, so this is bounded before it is read.
const PROGRAM_MAX_BYTES: usize = 1 << 20;
/// Longest name of a sender's client.
const CLIENT_MAX_BYTES: usize = 64;

/// A post, and the bytes of its program.
fn parse(bytes: &[u8]) -> Result<(ExecutionPost, usize), HubRefusal> {
    #[derive(serde::Deserialize)]
    struct Shallow<'a> {
        #[serde(borrow, default)]
        program: Option<&'a serde_json::value::RawValue>,
    }
    let unreadable = |error| HubRefusal::new(RefusalCode::Invalid, format!("the body cannot be read: {error}"));
    let shallow: Shallow<'_> = serde_json::from_slice(bytes).map_err(unreadable)?;
    let program_bytes = shallow.program.map_or(0, |program| program.get().len());
    if program_bytes > PROGRAM_MAX_BYTES {
        let text = format!(
            "program: more than {} KiB; send large data as inputs, which are files",
            PROGRAM_MAX_BYTES >> 10
        );
        return Err(HubRefusal::new(RefusalCode::TooLarge, text));
    }
    let post = serde_json::from_slice(bytes).map_err(unreadable)?;
    Ok((post, program_bytes))
}

/// For whom a run waits in the queue: the caller, or a gateway's client.
async fn sharer(
    state: &HubState,
    caller: &ServiceAccountCaller,
    granted: &GrantedCaller,
    client: Option<&str>,
) -> Result<String, HubRefusal> {
    let is_name = |client: &&str| {
        client.len() <= CLIENT_MAX_BYTES && client.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    match client.filter(is_name) {
        Some(client) if state.access.asks_for_others(caller, &granted.name).await? => {
            Ok(format!("{}/{client}", caller.key()))
        }
        _ => Ok(caller.key()),
    }
}

/// The executor, or why there is none.
fn executor(state: &HubState, granted: &GrantedCaller) -> Result<Arc<JobExecutor>, HubRefusal> {
    let unavailable = |text: String| HubRefusal::new(RefusalCode::Unavailable, text);
    if !state.settings.runtime_namespaces.contains(&granted.name.namespace) {
        return Err(unavailable(format!(
            "the hub may not run code in namespace {0}; add it to the chart's value runtimeNamespaces",
            granted.name.namespace
        ))
        .retry_after(WAITS_FOR_A_PERSON));
    }
    if granted.runtime.spec.sandbox.own_image().is_none() && state.settings.default_image.is_none() {
        return Err(unavailable(format!(
            "SkillRuntime {} names no image to run code in; set spec.sandbox.image",
            granted.name
        ))
        .retry_after(WAITS_FOR_A_PERSON));
    }
    let fences = state.shared.read(|cluster_state| Arc::clone(&cluster_state.fences));
    // Where the hub may not read them they are never known: the controller's word counts then.
    if state.start.waiting_for().is_some() && !fences.is_known(&granted.name.namespace) {
        return Err(starting());
    }
    state.executors.serving(&granted.runtime, &fences).map_err(|stop| {
        // The controller judges an edit within a second; a suspension need not be faster.
        unavailable(stop.why).retry_after(if stop.is_suspended { WAITS_FOR_A_PERSON } else { 1 })
    })
}

/// `Retry-After` for a state that only a person changes, seconds.
const WAITS_FOR_A_PERSON: u64 = 30;

async fn request(
    state: &HubState,
    caller: &ServiceAccountCaller,
    granted: &GrantedCaller,
    executor: &JobExecutor,
    post: ExecutionPost,
    (id, skills): (ExecutionId, &[SkillRef]),
) -> Result<JobRequest, HubRefusal> {
    let mut mounted = Vec::with_capacity(skills.len());
    let mut mounted_bytes = 0_u64;
    for (line, skill) in post.mounts.iter().zip(skills) {
        let mount = mount(state, granted, line, skill).await?;
        // Before the next one is read.
        mounted_bytes = admission::with_mount(mounted_bytes, &mount.skill)?;
        mounted.push(mount);
    }
    let namespaces = state.shared.read(|cluster_state| cluster_state.namespaces.clone());
    let cluster_default = state.settings.is_cluster_default(&granted.name);
    let (default_image, allow_image_tags) = (state.settings.default_image.clone(), state.settings.allow_image_tags);
    let (runtime, resolved, caller) = (Arc::clone(&granted.runtime), executor.resolved(), caller.key());
    // Arguments of a declared tool are checked against the schema of a stranger: bounded work, but none for an async thread.
    let admitted = tokio::task::spawn_blocking(move || {
        let scope = Scope {
            cluster_default,
            namespaces: &namespaces,
            default_image: default_image.as_deref(),
            allow_image_tags,
            // Only images are asked of it here; the environment was looked up.
            environments: None,
        };
        let admission = Admission {
            mounted: &mounted,
            runtime: &runtime,
            resolved: &resolved,
            scope: &scope,
            caller,
        };
        admission::admit(post, id, &admission)
    });
    // It fails only if it panicked or the process ends.
    admitted.await.unwrap_or_else(|_| {
        Err(HubRefusal::new(
            RefusalCode::Failed,
            "the hub failed while checking the request; its log has the cause, report it",
        ))
    })
}

/// A skill that is served to this caller at this runtime, in the revision that he names. What was revoked since he saw it
/// is not run.
async fn mount(
    state: &HubState,
    granted: &GrantedCaller,
    line: &MountLine,
    skill: &SkillRef,
) -> Result<MountedSkill, HubRefusal> {
    let unknown = || {
        let text = format!(
            "skill {skill} is not (or no longer) served to you at SkillRuntime {}",
            granted.name
        );
        HubRefusal::new(RefusalCode::NotFound, text)
    };
    if !state.views.serves(&granted.name, granted.sees.as_deref(), skill) {
        return Err(
            if state.start.waiting_for().is_some() || state.artifacts.is_being_read(skill) {
                HubRefusal::new(
                    RefusalCode::Unavailable,
                    format!("skill {skill}: its content is still being read; try again in a second"),
                )
                .retry_after(1)
            } else {
                unknown()
            },
        );
    }
    let content = state
        .artifacts
        .content(skill, &line.digest)
        .await
        .map_err(|error| match error {
            ArtifactError::Unknown => HubRefusal::new(
                RefusalCode::NotFound,
                format!("skill {skill} has changed; load it again"),
            ),
            ArtifactError::NoRoom(over) => no_room(over),
            ArtifactError::Api(text) | ArtifactError::Broken(text) => {
                tracing::warn!(%skill, error = %text, "content cannot be read");
                let text =
                    format!("skill {skill}: its ConfigMaps cannot be read; try again, the hub's log has the cause");
                HubRefusal::new(RefusalCode::Unavailable, text).retry_after(1)
            }
        })?;
    let Some(loaded) = &content.skill else {
        return Err(unknown());
    };
    // The revision that is mounted, which need not be the one that is served by now.
    let revision = Revision {
        packages: content.summary.packages.as_ref(),
        image: loaded.sandbox.image.as_deref(),
        image_name: loaded.sandbox.image_name.as_deref(),
    };
    let not_run = |rejection: Rejection| {
        let why = rejection.message;
        let text = format!(
            "skill {skill} has changed, and the revision that you loaded is not run any more: {why}; load it again"
        );
        HubRefusal::new(RefusalCode::NotFound, text)
    };
    let (views, version) = (&state.views, loaded.version.as_deref());
    if let Some(rejection) = views.version_refusal(&granted.name, skill, version) {
        return Err(not_run(rejection));
    }
    let packages = views.environment(&granted.name, revision).map_err(not_run)?;
    Ok(MountedSkill {
        skill: Arc::clone(loaded),
        memory: content.share(),
        revision: content.summary.in_service.revision.clone(),
        resources: content.summary.resources.clone(),
        packages,
    })
}

/// `GET /v1/executions/{id}`.
pub(super) async fn read(
    State(state): State<Arc<HubState>>,
    Extension(caller): Extension<ServiceAccountCaller>,
    query: Query<RuntimeQuery>,
    Path(id): Path<String>,
) -> Result<Json<ExecutionState>, RefusalResponse> {
    let (executor, id, runtime) = known(&state, &caller, &query, &id).await?;
    let record = executor.get(&caller.key(), id).await;
    let record = record.map_err(|error| unanswered(&error, &runtime))?;
    Ok(Json(state_of_record(&record)))
}

/// `DELETE /v1/executions/{id}`.
pub(super) async fn cancel(
    State(state): State<Arc<HubState>>,
    Extension(caller): Extension<ServiceAccountCaller>,
    query: Query<RuntimeQuery>,
    Path(id): Path<String>,
) -> Result<StatusCode, RefusalResponse> {
    let (executor, id, runtime) = known(&state, &caller, &query, &id).await?;
    let ended = executor.cancel(&caller.key(), id).await;
    ended.map_err(|error| unanswered(&error, &runtime))?;
    Ok(StatusCode::NO_CONTENT)
}

/// The refusal of a look-up. While a replica takes the runtime over, nobody knows its executions: the caller asks again.
fn unanswered(error: &ExecutionError, runtime: &RuntimeName) -> RefusalResponse {
    let refusal = match error {
        ExecutionError::NotOwner { owner: None } => nobody(runtime),
        error => refusal_of_error(error),
    };
    RefusalResponse::new("executions", refusal)
}

async fn known(
    state: &HubState,
    caller: &ServiceAccountCaller,
    query: &Query<RuntimeQuery>,
    id: &str,
) -> Result<(Arc<JobExecutor>, ExecutionId, RuntimeName), RefusalResponse> {
    let granted = granted(state, caller, query, "executions").await?;
    // An id that is not valid cannot belong to an execution.
    let id: ExecutionId = id
        .parse()
        .map_err(|_| RefusalResponse::new("executions", refusal_of_error(&ExecutionError::NotFound)))?;
    // Earlier executions can be read, and ended, also while no new run may start.
    let executor = match state.executors.get(&granted.name) {
        Some(executor) => executor,
        None => executor(state, &granted).map_err(|refusal| RefusalResponse::new("executions", refusal))?,
    };
    Ok((executor, id, granted.name))
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;
    use http::header;

    use super::*;

    #[test]
    fn a_look_up_in_a_takeover_is_to_come_again_and_one_elsewhere_is_sent_to_the_owner() {
        let runtime = RuntimeName::new("run", "default");
        for (owner, status, retry_after) in [
            (None, StatusCode::SERVICE_UNAVAILABLE, Some("1")),
            (Some("https://o:1".to_owned()), StatusCode::MISDIRECTED_REQUEST, None),
        ] {
            let answer = unanswered(&ExecutionError::NotOwner { owner }, &runtime).into_response();
            let reported = answer.headers().get(header::RETRY_AFTER);
            let reported = reported.map(|value| value.to_str().unwrap());
            assert_eq!((answer.status(), reported), (status, retry_after));
        }
        let answer = unanswered(&ExecutionError::Gone, &runtime).into_response();
        assert_eq!(answer.status(), StatusCode::GONE);
    }
}
