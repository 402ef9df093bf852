//! The skills of a gateway for every MCP client: streamable HTTP without state of sessions, answers as JSON (docs/mcp.md).
//!
//! ```text
//! POST /mcp ─▶ http: caller, slot, body ─▶ rmcp: JSON-RPC ─▶ server ─▶ offer: lists, resources   (made once per catalog)
//!                                                              └────▶ tool_call ─▶ ToolRunner ─▶ Executor
//!                                                                       └─▶ answer: text, images, files
//! ```
//!
//! A call goes the way of a model's call: the same names, schemas, texts, limits and sandbox. Nothing is kept between two
//! requests but what a catalog offers, so a client may come and go, and be restarted with the server or without.

mod answer;
mod call_context;
mod cancellation;
mod http;
mod management;
mod mcp_catalog;
mod server;
mod slots;
mod tool_call;

pub use crate::http::{PATH, router};
