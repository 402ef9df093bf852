//! The requests of MCP.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use knack_gateway::Gateway;
use knack_gateway::telemetry::request_report::cut_copy;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, DiscoverResult, ErrorCode,
    GetSkillRequestParams, GetSkillResult, Implementation, InitializeRequestParams, InitializeResult,
    ListResourcesResult, ListSkillsResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use crate::call_context::{CallContext, bad_cursor, call_context};
use crate::management;
use crate::mcp_catalog::page;
use crate::tool_call::call_tool;

/// Answers requests; everything that one needs comes with it.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    gateway: Arc<Gateway>,
}

impl Server {
    pub(crate) const fn new(gateway: Arc<Gateway>) -> Self {
        Self { gateway }
    }
}

/// The text that a model request without any naming gets: the list of skills, and those that are always active.
fn instructions(asked: &CallContext) -> Option<String> {
    let text = &asked.mcp_catalog.plan.system;
    (!text.is_empty()).then(|| text.to_string())
}

/// The methods that have parameters here. The SDK takes a request whose parameters do not fit as one of an unknown method.
pub(crate) const METHODS: [&str; 8] = [
    "initialize",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/read",
    "skills/list",
    "skills/get",
    "server/discover",
];

impl ServerHandler for Server {
    /// Without `listChanged`: there is no session to notify. A list is always that of the current catalog.
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_skills()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("knack", env!("CARGO_PKG_VERSION")))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let mut result = self.negotiate_initialize(&request)?;
        result.instructions = instructions(call_context(&context)?.1);
        context.peer.set_peer_info(request);
        Ok(result)
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let mut info = self.get_info();
        info.instructions = instructions(call_context(&context)?.1);
        let versions = self.supported_protocol_versions().into_owned();
        Ok(DiscoverResult::from_server_info(versions, info))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let (parts, asked) = call_context(&context)?;
        if asked.cursor(request)?.is_some() {
            return Err(bad_cursor());
        }
        // In one page: a host that reads only the first page would miss tools that the texts name.
        let mut tools = asked.mcp_catalog.tools.clone();
        tools.extend(management::tools(&self.gateway, parts));
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (parts, asked) = call_context(&context)?;
        asked.called.store(true, Ordering::Relaxed);
        if let Some(result) = management::call(&self.gateway, parts, &request.name, request.arguments.as_ref()).await {
            return Ok(result.into());
        }
        let result = call_tool(&self.gateway, asked, request, parts, &context).await;
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let (_, asked) = call_context(&context)?;
        let cursor = asked.cursor(request)?;
        let page = page(
            &asked.mcp_catalog.resources,
            |resource| &resource.uri,
            cursor.as_deref(),
        );
        let (resources, next) = page.ok_or_else(bad_cursor)?;
        let mut result = ListResourcesResult::with_all_items(resources);
        result.next_cursor = next;
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let (_, asked) = call_context(&context)?;
        match asked.mcp_catalog.content(&request.uri) {
            Some(content) => Ok(ReadResourceResult::new(vec![content]).into()),
            None => Err(ErrorData::resource_not_found(
                format!("no skill served here has a file {}", cut_copy(&request.uri)),
                None,
            )),
        }
    }

    async fn list_skills(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        let (_, asked) = call_context(&context)?;
        let cursor = asked.cursor(request)?;
        let page = page(&asked.mcp_catalog.skills, |skill| &skill.uri, cursor.as_deref());
        let (skills, next) = page.ok_or_else(bad_cursor)?;
        let mut result = ListSkillsResult::with_all_items(skills);
        result.next_cursor = next;
        Ok(result)
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        let (_, asked) = call_context(&context)?;
        let skill = asked.mcp_catalog.skills.iter().find(|skill| skill.uri == request.uri);
        skill.cloned().map(GetSkillResult::new).ok_or_else(|| {
            let text = format!("no skill served here has the URI {}", cut_copy(&request.uri));
            ErrorData::invalid_params(text, None)
        })
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        Err(if METHODS.contains(&method.as_str()) {
            let text = format!("params: a member that {method} requires is missing, or one has the wrong type");
            ErrorData::invalid_params(text, None)
        } else {
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, cut_copy(&method), None)
        })
    }
}
