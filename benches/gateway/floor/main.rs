//! The floor: a bare proxy of axum and reqwest that does the least a skill gateway could do.
//!
//! It parses the whole JSON body, adds one system text, writes the JSON again, forwards it, and streams the answer back.
//! It is fair: the same versions, compiled for speed alone, TCP_NODELAY on both sides, the same pool, no logs.
//! It does not: look at tools, decode streams, keep anything, run anything.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::serve::ListenerExt;
use serde_json::{Value, json};

struct Floor {
    client: reqwest::Client,
    upstream: String,
    system: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| "a TLS provider is already installed")?;
    let mut args = std::env::args().skip(1);
    let (Some(upstream), Some(system_file), Some(port_file)) = (args.next(), args.next(), args.next()) else {
        return Err("usage: floor_proxy UPSTREAM SYSTEM_TEXT_FILE PORT_FILE".into());
    };
    let client = reqwest::Client::builder()
        .tcp_nodelay(true)
        .pool_max_idle_per_host(64)
        .build()?;
    let floor = Arc::new(Floor {
        client,
        upstream,
        system: std::fs::read_to_string(system_file)?,
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    std::fs::write(port_file, format!("{}\n", listener.local_addr()?.port()))?;
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, Router::new().fallback(forward).with_state(floor)).await?;
    Ok(())
}

async fn forward(State(floor): State<Arc<Floor>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, 32 << 20).await else {
        return status(400);
    };
    let Ok(mut value) = serde_json::from_slice::<Value>(&bytes) else {
        return status(400);
    };
    insert_system(&mut value, parts.uri.path(), &floor.system);
    let Ok(body) = serde_json::to_vec(&value) else {
        return status(500);
    };
    let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut headers = parts.headers;
    headers.remove(http::header::HOST);
    headers.remove(http::header::CONTENT_LENGTH);
    let sent = floor
        .client
        .request(parts.method, format!("{}{path}", floor.upstream))
        .headers(headers)
        .body(body)
        .send()
        .await;
    let Ok(upstream) = sent else { return status(502) };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = upstream.status();
    *response.headers_mut() = upstream.headers().clone();
    response.headers_mut().remove(http::header::CONTENT_LENGTH);
    response.headers_mut().remove(http::header::TRANSFER_ENCODING);
    *response.body_mut() = Body::from_stream(upstream.bytes_stream());
    response
}

/// The system text in the shape of each format, as simply as it can be done.
fn insert_system(value: &mut Value, path: &str, text: &str) {
    let text_member = match path {
        path if path.ends_with("/messages") => Some("system"),
        path if path.ends_with("/responses") => Some("instructions"),
        _ => None,
    };
    if let Some(member) = text_member {
        let own = value[member].as_str().map(|own| format!("{own}\n\n{text}"));
        value[member] = Value::String(own.unwrap_or_else(|| text.to_owned()));
    } else if path.contains("enerateContent") {
        match value["systemInstruction"]["parts"].as_array_mut() {
            Some(parts) => parts.push(json!({ "text": text })),
            None => value["systemInstruction"] = json!({"parts": [{"text": text}]}),
        }
    } else if let Some(messages) = value["messages"].as_array_mut() {
        let first = messages.first_mut().filter(|first| first["role"] == "system");
        match first {
            Some(first) => {
                let own = first["content"].as_str().unwrap_or_default();
                first["content"] = Value::String(format!("{own}\n\n{text}"));
            }
            None => messages.insert(0, json!({"role": "system", "content": text})),
        }
    }
}

fn status(code: u16) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response
}
