//! One call of a tool, on the way of a model's call.

use ::http::HeaderMap;
use knack_gateway::Gateway;
use knack_gateway::direct::Direct;
use knack_gateway::tools::file_url;
use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::RequestContext;

use crate::answer;
use crate::asked::Asked;

/// Runs one call. Its client's leaving cancels it.
pub(crate) async fn call_tool(
    gateway: &Gateway,
    asked: &Asked,
    params: CallToolRequestParams,
    headers: &HeaderMap,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let direct = Direct {
        gateway,
        caller: &asked.caller,
        snapshot: &asked.offer.snapshot,
        plan: &asked.offer.plan,
        executor: &asked.executor,
        headers,
        format: "mcp",
        history: gateway.history.clone(),
    };
    let arguments = serde_json::Value::Object(params.arguments.unwrap_or_default()).to_string();
    let (request_id, outcome) = direct
        .call(
            params.name.into_owned(),
            context.id.to_string(),
            arguments,
            context.ct.clone(),
        )
        .await;
    let base = Some(gateway.public_url.as_deref().unwrap_or_default());
    answer::result(outcome, |name| file_url(base, &request_id, name).unwrap_or_default())
}
