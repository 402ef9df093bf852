//! A hub that is lost in the middle of an answer, over TLS on loopback.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use knack_hub_api::client::{Authorities, HubClient, HubClientSettings, HubError, Route, Token};
use rcgen::{CertifiedKey, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Progress, RemoteExecutor};
use crate::{ExecutionId, ExecutionRequest, Language, Program};

/// Leads to one server after another.
#[derive(Debug)]
struct Turns {
    ports: Vec<u16>,
    asked: AtomicUsize,
}

#[async_trait]
impl Route for Turns {
    async fn base(&self, _at: Option<&str>) -> Result<String, HubError> {
        match self.ports.get(self.asked.fetch_add(1, Ordering::Relaxed)) {
            Some(0) => Err(HubError::Unreachable("no pod of the hub is ready".to_owned())),
            Some(port) => Ok(format!("https://localhost:{port}")),
            None => Err(HubError::Protocol("asked too often".to_owned())),
        }
    }
}

/// A server that answers one request with these lines and hangs up; whole, or in the middle of a line. The ids that it was
/// asked for go to `ids`.
async fn server(pair: &CertifiedKey<KeyPair>, lines: &'static str, ids: Arc<Mutex<Vec<String>>>) -> u16 {
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
            if let Some((_, body)) = text.split_once("\r\n\r\n")
                && let Ok(body) = serde_json::from_str::<serde_json::Value>(body)
            {
                break body;
            }
        };
        ids.lock()
            .unwrap()
            .push(body["id"].as_str().unwrap_or_default().to_owned());
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ncontent-length: 100000\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(lines.as_bytes()).await.unwrap();
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

#[tokio::test]
async fn a_run_is_followed_over_a_lost_hub_by_its_id_and_each_byte_is_shown_once() {
    // Another test may have done so.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let ids = Arc::new(Mutex::new(Vec::new()));
    let first = server(&pair, CUT, Arc::clone(&ids)).await;
    let mut ports = vec![first, 0, 0];
    for _ in 0..4 {
        ports.push(server(&pair, THROTTLED, Arc::clone(&ids)).await);
    }
    ports.push(server(&pair, WHOLE, Arc::clone(&ids)).await);
    let client = HubClient::new(HubClientSettings {
        url: "https://localhost:1".to_owned(),
        authorities: Authorities::Pem(pair.cert.pem()),
        token: Token::Fixed("t".to_owned()),
        address: Some(std::net::Ipv4Addr::LOCALHOST.into()),
    })
    .unwrap()
    .routed(Arc::new(Turns {
        ports,
        asked: AtomicUsize::new(0),
    }));
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
    let executor = RemoteExecutor::new(client, "a/b".parse().unwrap());
    let cancel = CancellationToken::new();
    let running = executor.execute_shown(&request, &cancel, &show);
    let result = tokio::time::timeout(Duration::from_secs(20), running)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(result.stdout.text(), "one two");
    assert_eq!(*seen.lock().unwrap(), "one two");
    assert_eq!(*ids.lock().unwrap(), vec![request.id.to_string(); 6]);
}
