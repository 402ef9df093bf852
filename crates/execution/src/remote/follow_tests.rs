//! A hub that is lost in the middle of an answer, over TLS on loopback.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use knack_hub_api::client::{Authorities, HubClient, HubClientSettings, HubError, Route, Token};
use knack_hub_api::{HEADER_PROTOCOL, PROTOCOL, PROTOCOL_MIN};
use knack_skill::call::ToolRun;
use knack_skill::model::SkillRef;
use knack_skill::risk::Risk;
use rcgen::{CertifiedKey, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Progress, RemoteExecutor};
use crate::{ExecutionError, ExecutionId, ExecutionRequest, Executor as _, Language, Program};

/// Longest wait for an end. With its pauses, one that is tried again takes seconds on a quiet machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// Leads to one server after another.
#[derive(Debug)]
struct ServerSequence {
    ports: Vec<u16>,
    asked: AtomicUsize,
}

#[async_trait]
impl Route for ServerSequence {
    async fn base(&self, _at: Option<&str>) -> Result<String, HubError> {
        match self.ports.get(self.asked.fetch_add(1, Ordering::Relaxed)) {
            Some(0) => Err(HubError::Unreachable("no pod of the hub is ready".to_owned())),
            Some(port) => Ok(format!("https://localhost:{port}")),
            None => Err(HubError::Protocol("asked too often".to_owned())),
        }
    }
}

/// The requests that servers got, in their order.
type Posts = Arc<Mutex<Vec<Value>>>;

/// How a stream of lines begins.
const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ncontent-length: 100000\r\n\r\n";

/// A server that answers one request so and hangs up; whole, or in the middle of a line.
async fn server(pair: &CertifiedKey<KeyPair>, answer: String, posts: Posts) -> u16 {
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![pair.cert.der().clone()],
            PrivateKeyDer::try_from(pair.signing_key.serialize_der()).unwrap(),
        )
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let mut stream = acceptor.accept(stream).await.unwrap();
        let mut request = Vec::new();
        let body = loop {
            let mut piece = [0; 4096];
            let count = stream.read(&mut piece).await.unwrap();
            request.extend_from_slice(&piece[..count]);
            let text = String::from_utf8_lossy(&request);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                if let Ok(body) = serde_json::from_str::<Value>(body) {
                    break body;
                }
                if head.starts_with("DELETE ") {
                    break json!("DELETE");
                }
            }
        };
        posts.lock().unwrap().push(body);
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
    });
    port
}

const CUT: &str = concat!(
    r#"{"type":"accepted","protocol":1,"id":"x"}"#,
    "\n",
    r#"{"type":"output","stream":"stdout","data":{"text":"one "}}"#,
    "\n",
    r#"{"type":"outp"#
);
/// After a hub was replaced: it has no cached tokens, and many call at once.
const THROTTLED: &str = concat!(
    r#"{"type":"error","code":"throttled","message":"m","retry_after_seconds":1}"#,
    "\n"
);
const WHOLE: &str = concat!(
    r#"{"type":"output","stream":"stdout","data":{"text":"one "}}"#,
    "\n",
    r#"{"type":"output","stream":"stdout","data":{"text":"two"}}"#,
    "\n",
    r#"{"type":"result","end":"code","code":0,"stdout":{"text":"one two"},"timings":{"queue_us":0,"total_us":1,"run_us":1,"warm":false}}"#,
    "\n"
);

fn authority() -> CertifiedKey<KeyPair> {
    // Another test may have done so.
    let _ = rustls::crypto::ring::default_provider().install_default();
    rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap()
}

/// An executor that asks these servers, one after the other.
fn executor(pair: &CertifiedKey<KeyPair>, ports: Vec<u16>) -> Arc<RemoteExecutor> {
    let client = HubClient::new(HubClientSettings {
        url: "https://localhost:1".to_owned(),
        authorities: Authorities::Pem(pair.cert.pem()),
        token: Token::Fixed("t".to_owned()),
        address: Some(std::net::Ipv4Addr::LOCALHOST.into()),
    })
    .unwrap()
    .routed(Arc::new(ServerSequence {
        ports,
        asked: AtomicUsize::new(0),
    }));
    RemoteExecutor::new(client, "a/b".parse().unwrap())
}

#[tokio::test]
async fn a_run_is_followed_over_a_lost_hub_by_its_id_and_each_byte_is_shown_once() {
    let (pair, posts) = (authority(), Posts::default());
    let first = server(&pair, format!("{STREAM}{CUT}"), Arc::clone(&posts)).await;
    let mut ports = vec![first, 0, 0];
    for _ in 0..4 {
        ports.push(server(&pair, format!("{STREAM}{THROTTLED}"), Arc::clone(&posts)).await);
    }
    ports.push(server(&pair, format!("{STREAM}{WHOLE}"), Arc::clone(&posts)).await);
    let executor = executor(&pair, ports);
    let program = Program::Code {
        language: Language::Python,
        source: String::new(),
    };
    let request = ExecutionRequest::new(ExecutionId::new(crate::now(), "r", 0, "c"), "cli", program);
    let seen = Mutex::new(String::new());
    let show = |progress: Progress| {
        if let Progress::Output { bytes, .. } = progress {
            seen.lock().unwrap().push_str(std::str::from_utf8(&bytes).unwrap());
        }
    };
    let cancel = CancellationToken::new();
    let running = executor.execute_shown(&request, &cancel, &show);
    let result = tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();
    assert_eq!(result.stdout.text(), "one two");
    assert_eq!(*seen.lock().unwrap(), "one two");
    let posts = posts.lock().unwrap();
    let ids: Vec<_> = posts.iter().map(|post| post["id"].as_str().unwrap()).collect();
    assert_eq!(ids, vec![request.id.to_string(); 6]);
}

/// The answer of a hub that speaks `protocol` and nothing newer.
fn refusal(protocol: u32) -> String {
    let body = json!({
        "code": "invalid",
        "message": format!("this hub understands protocol {protocol}, the request is of protocol {PROTOCOL}; upgrade the older one"),
    })
    .to_string();
    format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n{HEADER_PROTOCOL}: {protocol}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// While gateways are upgraded before hubs: a hub of a protocol that is still spoken is asked again in its own words, one that is
/// older still, or claims to be newer, is not.
#[tokio::test]
async fn a_hub_of_the_release_before_runs_what_it_understands() {
    let request = || {
        let argv: Vec<String> = ["python3", "scripts/now.py", "Oslo"].map(str::to_owned).into();
        let id = ExecutionId::new(crate::now(), "r", 0, "c");
        let mut request = ExecutionRequest::new(id, "cli", Program::Command { argv: argv.clone() });
        request.tool = Some(Arc::new(ToolRun {
            skill: SkillRef {
                namespace: "team".to_owned(),
                name: "weather".to_owned(),
            },
            tool: "now".to_owned(),
            arguments: json!({"place": "Oslo"}).as_object().cloned().unwrap(),
            argv,
            env: Vec::new(),
            is_open: false,
            risk: Risk::Safe,
            config: Vec::new(),
        }));
        request
    };
    let (pair, cancel) = (authority(), CancellationToken::new());
    for (protocol, is_understood) in [(PROTOCOL_MIN, true), (PROTOCOL_MIN - 1, false), (PROTOCOL + 1, false)] {
        let posts = Posts::default();
        let ports = vec![
            server(&pair, refusal(protocol), Arc::clone(&posts)).await,
            server(&pair, format!("{STREAM}{WHOLE}"), Arc::clone(&posts)).await,
        ];
        let (executor, request) = (executor(&pair, ports), request());
        let running = executor.execute_shown(&request, &cancel, &|_| {});
        let result = tokio::time::timeout(PATIENCE, running).await.unwrap();
        let posts = posts.lock().unwrap();
        let by_name = json!({"kind": "tool", "name": "now", "arguments": {"place": "Oslo"}});
        assert_eq!(
            (&posts[0]["protocol"], &posts[0]["program"]),
            (&json!(PROTOCOL), &by_name)
        );
        if is_understood {
            assert_eq!(result.unwrap().stdout.text(), "one two");
            // The hub of the release before knew no tools by name.
            let by_command = json!({"kind": "command", "argv": ["python3", "scripts/now.py", "Oslo"]});
            assert_eq!(
                (&posts[1]["protocol"], &posts[1]["program"]),
                (&json!(protocol), &by_command)
            );
            assert_eq!(posts[0]["id"], posts[1]["id"]);
        } else {
            let said = result.unwrap_err().to_string();
            assert!(said.contains("upgrade the older one"), "{said}");
            assert_eq!(posts.len(), 1);
        }
    }
}

/// An answer of a hub whose clock is behind this machine's.
const AHEAD: &str = concat!(
    "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\n",
    "content-length: 32\r\n\r\n",
    r#"{"code":"invalid","message":"m"}"#
);

/// A caller makes a new id for one that a hub refuses as ahead of its clock; it must not where an earlier hub may have
/// run the old one.
#[tokio::test]
async fn an_id_that_is_ahead_of_the_hubs_clock_is_invalid_unless_it_may_have_run() {
    let (pair, cancel) = (authority(), CancellationToken::new());
    for (is_first, expected) in [
        (true, ExecutionError::Invalid("m".to_owned())),
        (false, ExecutionError::Gone),
    ] {
        let posts = Posts::default();
        let mut ports = Vec::new();
        if !is_first {
            ports.push(server(&pair, format!("{STREAM}{CUT}"), Arc::clone(&posts)).await);
        }
        ports.push(server(&pair, AHEAD.to_owned(), Arc::clone(&posts)).await);
        let executor = executor(&pair, ports);
        let program = Program::Command {
            argv: vec!["true".to_owned()],
        };
        let request = ExecutionRequest::new(ExecutionId::new(crate::now(), "r", 0, "c"), "cli", program);
        let running = executor.execute_shown(&request, &cancel, &|_| {});
        let result = tokio::time::timeout(PATIENCE, running).await.unwrap();
        assert_eq!(result.unwrap_err(), expected);
        assert!(executor.now() < request.id.time(), "the hub's clock is known");
    }
}

/// A refusal of a look-up or of an end.
fn refused(status: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn an_execution_is_ended_by_the_owner_that_takes_it_over() {
    let (pair, posts) = (authority(), Posts::default());
    let nobody = json!({"code": "unavailable", "message": "no replica owns it now", "retry_after_seconds": 1});
    let another = json!({"code": "not_owner", "message": "m", "owner": "https://localhost:1"});
    let ended = "HTTP/1.1 204 No Content\r\n\r\n".to_owned();
    let mut ports = Vec::new();
    for answer in [
        refused("503 Service Unavailable", &nobody),
        refused("421 Misdirected Request", &another),
    ] {
        ports.push(server(&pair, answer, Arc::clone(&posts)).await);
    }
    ports.push(0);
    ports.push(server(&pair, ended, Arc::clone(&posts)).await);
    let id = ExecutionId::new(crate::now(), "r", 0, "c");
    assert_eq!(executor(&pair, ports).cancel("cli", id).await, Ok(()));
    assert_eq!(*posts.lock().unwrap(), vec![json!("DELETE"); 3]);

    let unknown = refused("404 Not Found", &json!({"code": "not_found", "message": "m"}));
    let ports = vec![server(&pair, unknown, Arc::clone(&posts)).await];
    let asked_once = executor(&pair, ports).cancel("cli", id).await;
    assert_eq!(asked_once, Err(ExecutionError::NotFound));
}
