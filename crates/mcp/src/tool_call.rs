//! One call of a tool, on the way of a model's call.

use std::sync::{Arc, Mutex};

use ::http::HeaderMap;
use knack_gateway::Gateway;
use knack_gateway::delivered;
use knack_gateway::log::RequestLog;
use knack_gateway::tools::{LoopState, ToolRunner, file_url};
use knack_gateway::trace::CallTrace;
use knack_wire::Call;
use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::RequestContext;
use tokio::time::Instant;

use crate::answer;
use crate::asked::Asked;

/// Runs one call. It has an id of its own, so it runs once, and nothing of another call is in its work directory. Its
/// client's leaving cancels it.
pub(crate) async fn call_tool(
    gateway: &Gateway,
    asked: &Asked,
    params: CallToolRequestParams,
    headers: &HeaderMap,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let begun = Instant::now();
    let arguments = params.arguments.unwrap_or_default();
    let call = Call {
        token: 0,
        round: 1,
        name: params.name.into_owned(),
        id: context.id.to_string(),
        arguments: serde_json::Value::Object(arguments).to_string(),
    };
    let snapshot = &asked.offer.snapshot;
    let mut log = RequestLog {
        request_id: uuid::Uuid::now_v7().to_string(),
        begun: jiff::Timestamp::now(),
        format: "mcp",
        // A name that is none of ours is the client's text.
        model: asked
            .offer
            .plan
            .tool(&call.name)
            .map_or_else(String::new, |tool| tool.name.clone()),
        revision: snapshot.revision.clone(),
        status: 200,
        ..RequestLog::default()
    };
    let runner = Arc::new(runner(gateway, asked, &log.request_id));
    let trace = CallTrace::begin(&gateway.tracer, headers, &call);
    let outcome = Arc::clone(&runner)
        .run(call, log.request_id.clone(), context.ct.clone(), trace)
        .await;
    if !outcome.files.is_empty() {
        let id = log.request_id.clone();
        delivered::keep(gateway, &asked.caller, &id, &outcome.files, &mut log).await;
    }
    (log.executions, log.uses) = runner.take_notes();
    if context.ct.is_cancelled() {
        log.status = 499;
        log.end = Some("client left".to_owned());
    }
    log.duration = begun.elapsed();
    log.publish(&*gateway.console, &gateway.metrics, &gateway.recent);
    let base = Some(gateway.public_url.as_deref().unwrap_or_default());
    answer::result(outcome, |name| {
        file_url(base, &log.request_id, name).unwrap_or_default()
    })
}

fn runner(gateway: &Gateway, asked: &Asked, request_id: &str) -> ToolRunner {
    let key = asked.caller.bucket();
    ToolRunner {
        snapshot: Arc::clone(&asked.offer.snapshot),
        max_memory_bytes: None,
        plan: Arc::clone(&asked.offer.plan),
        executor: Arc::clone(&asked.executor),
        grants: Arc::clone(&gateway.grants),
        caller: knack_skill::digest::hex(&key),
        caller_key: key,
        request_id: request_id.to_owned(),
        request_start: knack_execution::now(),
        public_url: gateway.public_url.clone(),
        requests: gateway.requests.clone(),
        state: Mutex::new(LoopState::default()),
    }
}
