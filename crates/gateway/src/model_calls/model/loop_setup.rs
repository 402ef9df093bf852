//! What the loop of a call begins with: its settings, the container of its answer, and what runs its tools.

use std::sync::{Arc, LazyLock, Mutex};

use http::request::Parts;
use knack_execution::Executor;
use knack_registry::{Dialect, SKILLS_BETA};
use knack_wire::{CallKind, DriveSettings, Fault};

use super::prepare::Prepared;
use crate::callers::caller;
use crate::catalog::Snapshot;
use crate::files::answer_container::{self, AnswerContainer, ContainerContext};
use crate::files::user_files::Container;
use crate::model_calls::call::ModelCall;
use crate::model_calls::client_timeout;
use crate::model_calls::hidden_turns::HiddenTurnLookup;
use crate::runs::tools::{LoopState, ToolRunner};

/// Skill calls of one turn that are run: as many as a model makes that splits work over parallel calls.
const CALLS_PER_TURN: usize = 32;
/// The answer to a call beyond those.
static CALLS_TEXT: LazyLock<String> = LazyLock::new(|| knack_skill::texts::too_many_calls(CALLS_PER_TURN));

/// What decides it.
pub(super) struct LoopSetup<'a> {
    pub(super) call: &'a ModelCall,
    pub(super) kind: CallKind,
    pub(super) parts: &'a Parts,
    pub(super) snapshot: &'a Arc<Snapshot>,
    pub(super) prepared: &'a Prepared,
    pub(super) hidden: &'a HiddenTurnLookup,
}

impl LoopSetup<'_> {
    /// The container of the answer. `named`: the one that the request names.
    pub(super) async fn container(&self, named: Option<Container>) -> Result<Option<AnswerContainer>, Fault> {
        let asked = ContainerContext {
            fields: &self.prepared.fields,
            plan: &self.prepared.plan,
            injection: &self.prepared.injection,
            route: (self.call.format, self.kind),
            caller: &self.hidden.caller,
            address: caller::unchecked_address(self.parts),
            request_id: &self.call.log.request_id,
            beta: Dialect::of(&self.parts.headers, SKILLS_BETA) == Dialect::Anthropic { beta: true },
        };
        answer_container::of(&self.call.gateway, &asked, named).await
    }

    /// The settings of the loop. `array`: the client gets its stream as one array.
    pub(super) fn settings(&self, container: Option<&AnswerContainer>, array: bool) -> DriveSettings {
        let Prepared {
            fields,
            plan,
            injection,
            ..
        } = self.prepared;
        let injects = !plan.tools.is_empty();
        let has_code_tool = injection.code_tool.is_some();
        let takes_skills = !injection.own_skills.is_empty() || injection.own_inline_skills;
        let asks = fields.code_execution || has_code_tool || (fields.code_tool.is_some() && takes_skills);
        let native = asks && injects && !plan.litellm && self.kind == CallKind::Generate;
        let deadline = self.snapshot.runtime.deadline;
        DriveSettings {
            max_rounds: self.snapshot.runtime.max_tool_rounds,
            deadline: if fields.stream {
                deadline
            } else {
                client_timeout::deadline(deadline, &self.parts.headers)
            },
            last_note: knack_skill::texts::LAST_CALL,
            limit_text: knack_skill::texts::LIMIT_REACHED,
            lost_text: knack_skill::texts::NO_LONGER_AVAILABLE,
            max_calls: CALLS_PER_TURN,
            calls_text: &CALLS_TEXT,
            native,
            run_tool: self.hidden.run_tool.clone(),
            container: container.map(|container| container.shown.clone()),
            litellm: plan.litellm,
            array,
            request_id: Some(self.call.log.request_id.clone()),
        }
    }

    /// What runs the tools of the loop.
    pub(super) fn tool_runner(&self, executor: Arc<dyn Executor>, max_memory_bytes: Option<u64>) -> Arc<ToolRunner> {
        let gateway = &self.call.gateway;
        let runner = ToolRunner {
            snapshot: Arc::clone(self.snapshot),
            max_memory_bytes,
            plan: Arc::clone(&self.prepared.plan),
            request_start: executor.now(),
            executor,
            grants: Arc::clone(&gateway.grants),
            caller_key: self.hidden.bucket(),
            request_id: self.call.log.request_id.clone(),
            public_url: gateway.public_url.clone(),
            requests: gateway.requests.clone(),
            history: gateway.history.clone(),
            state: Mutex::new(LoopState::default()),
        };
        runner.stage_attachments_later(self.prepared.request.clone());
        Arc::new(runner)
    }
}
