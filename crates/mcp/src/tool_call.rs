//! One call of a tool, on the way of a model's call.

use ::http::request::Parts;
use ::http::{StatusCode, header};
use knack_gateway::Gateway;
use knack_gateway::files::file_url::file_url;
use knack_gateway::http_server::request_id::RequestId;
use knack_gateway::runs::direct::Direct;
use knack_gateway::telemetry::log::MCP;
use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::RequestContext;

use crate::answer;
use crate::call_context::CallContext;

/// Runs one call. Its client's leaving cancels it.
pub(crate) async fn call_tool(
    gateway: &Gateway,
    asked: &CallContext,
    params: CallToolRequestParams,
    parts: &Parts,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let direct = Direct {
        gateway,
        caller: &asked.caller,
        snapshot: &asked.mcp_catalog.snapshot,
        plan: &asked.mcp_catalog.plan,
        executor: &asked.executor,
        headers: &parts.headers,
        request_id: RequestId::find(&parts.extensions),
        format: MCP,
        history: gateway.history.clone(),
        // The result of a tool is no error of HTTP.
        refused: StatusCode::OK.as_u16(),
        identity: None,
    };
    let arguments = serde_json::Value::Object(params.arguments.unwrap_or_default()).to_string();
    let (files_id, outcome) = direct
        .call(
            params.name.into_owned(),
            context.id.to_string(),
            arguments,
            context.ct.clone(),
        )
        .await;
    let base = gateway.public_url.clone().unwrap_or_else(|| called(parts));
    answer::result(outcome, |name| {
        file_url(Some(&base), &files_id, name).unwrap_or_default()
    })
}

/// Where the client called, for a gateway without a configured public URL: a resource must have a whole URI, and one that is
/// read from there has the same way.
fn called(parts: &Parts) -> String {
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| parts.uri.authority().map(::http::uri::Authority::as_str));
    format!("http://{}", host.unwrap_or("localhost"))
}
