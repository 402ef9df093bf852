//! Runs that a program asks for (`POST /api/skills/executions`), on the same path as a model's call.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use http::StatusCode;
use http::request::Parts;
use knack_registry::{AdHocRun, OnProgress, Progress, RunRefusal, Runs};
use knack_skill::plan::{Action, Plan, plan_of_all};
use tokio_util::sync::CancellationToken;

use super::direct::{Direct, DirectIdentity};
use super::run_history::{RunHistory, RunNote};
use super::run_lines::{duration_ms, status};
use crate::callers::caller;
use crate::catalog::Snapshot;
use crate::http_server::request_id::RequestId;
use crate::state::Gateway;

/// The message while the process starts or stops.
const ENDS: &str = "Skills execution is disabled: the process is starting or stopping";

/// Runs of one request.
#[derive(Debug)]
pub struct AdHocRuns<'a> {
    /// Runs tools; `None`: the process begins or ends.
    pub gateway: Option<Arc<Gateway>>,
    /// The request.
    pub parts: &'a Parts,
    /// The shared catalog.
    pub base: &'a Arc<Snapshot>,
}

/// Reports the state of a run to its caller, and keeps the last one.
struct ProgressKeeper {
    on_progress: OnProgress,
    last: Mutex<Option<Progress>>,
}

impl std::fmt::Debug for ProgressKeeper {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ProgressKeeper").finish_non_exhaustive()
    }
}

impl RunHistory for ProgressKeeper {
    fn note(&self, run: &RunNote) {
        let progress = Progress {
            status: status(run.status),
            output: run.output.clone(),
            error: run.error.clone(),
            duration_ms: duration_ms(run),
        };
        (self.on_progress)(progress.clone());
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }

    fn dropped(&self) -> u64 {
        0
    }
}

#[async_trait]
impl Runs for AdHocRuns<'_> {
    fn closed(&self) -> Option<String> {
        if self.base.is_suspended() {
            let text = "Skills execution is disabled: the SkillRuntime says suspend: true.";
            return Some(text.to_owned());
        }
        let Some(gateway) = &self.gateway else {
            return Some(ENDS.to_owned());
        };
        let missing = gateway.executor.capabilities().missing?;
        Some(format!("Skills execution is disabled: code is not run here: {missing}"))
    }

    async fn run(&self, run: AdHocRun, on_progress: OnProgress) -> Result<Progress, RunRefusal> {
        let gateway = self
            .gateway
            .as_ref()
            .ok_or_else(|| RunRefusal::Closed(ENDS.to_owned()))?;
        let (served, snapshot) = gateway.served_to(self.parts).await;
        let plan = Arc::new(plan_of_all(&snapshot.catalog, |_| true));
        let name = name_of(&plan, &run).ok_or_else(|| {
            let text = "its level of risk is above the runtime's maxRisk, it is hidden, or its skill is not served now";
            RunRefusal::NotOffered(format!(
                "the tool {} of {} is not offered: {text}",
                run.tool, run.skill.name
            ))
        })?;
        let keeper = Arc::new(ProgressKeeper {
            on_progress,
            last: Mutex::default(),
        });
        let caller = caller::identify(&gateway.secret.current(), &self.parts.headers, &self.parts.uri);
        let direct = Direct {
            gateway,
            caller: &caller,
            snapshot: &snapshot,
            plan: &plan,
            executor: &served.executor,
            headers: &self.parts.headers,
            request_id: RequestId::find(&self.parts.extensions),
            format: "omniroute",
            history: Some(Arc::clone(&keeper) as Arc<_>),
            refused: StatusCode::BAD_REQUEST.as_u16(),
            identity: Some(DirectIdentity {
                request: run.identity.request,
                begun: Duration::from_micros(u64::try_from(run.identity.begun).unwrap_or_default()),
            }),
        };
        let call = run.identity.execution;
        let (_, outcome) = direct.call(name, call, run.arguments, CancellationToken::new()).await;
        let last = keeper.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Nothing was run: the text says what is wrong with the arguments.
        last.ok_or(RunRefusal::Arguments(outcome.text))
    }
}

/// The name of a declared tool in a plan.
fn name_of(plan: &Plan, run: &AdHocRun) -> Option<String> {
    let found = plan.tools.iter().find(|planned| match &planned.action {
        Action::Declared { skill, tool } => {
            skill.id == run.skill && skill.tools.get(*tool).is_some_and(|tool| tool.name == run.tool)
        }
        _ => false,
    });
    found.map(|planned| planned.name.clone())
}
