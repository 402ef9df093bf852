//! Definitions that are not installed yet. A real API server cannot lose its definitions while other tests use them, so
//! this one is made up: it knows no kinds, and then it does.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::controller::Controller;

const NOT_FOUND: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","code":404}"#;
const EMPTY: &str = r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[]}"#;

/// An API server that serves our kinds, empty, once enabled; and nothing else.
fn api_server(installed: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or(0);
            let ours = String::from_utf8_lossy(&request[..length]).contains(" /apis/knack.dev/");
            let (status, body) = if ours && installed.load(Ordering::SeqCst) {
                ("200 OK", EMPTY)
            } else {
                ("404 Not Found", NOT_FOUND)
            };
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(body.as_bytes()));
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn a_controller_without_definitions_waits_and_says_so() {
    let installed = Arc::new(AtomicBool::new(false));
    let server = api_server(Arc::clone(&installed));
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: a, cluster: {{server: \"{server}\"}}}}]\nusers: [{{name: a, user: {{}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\ncurrent-context: a\n"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let mut controller = Controller::launch(&kubeconfig, "home", &[], &[]);
    // The first answers may come before the API server was asked.
    controller.until_phase("kubectl apply --server-side -f crds/").await;
    assert!(controller.get("/readyz").unwrap().contains("503 Service Unavailable"));
    assert!(
        controller.get("/healthz").unwrap().contains("200 OK"),
        "waiting is no reason to be killed"
    );
    installed.store(true, Ordering::SeqCst);
    controller.until_phase("standing by").await;
    controller.stop();
}

#[test]
fn a_default_runtime_in_no_managed_namespace_is_refused_at_the_start() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_knack"));
    command.args([
        "controller",
        "--metrics-listen",
        "127.0.0.1:0",
        "--default-runtime",
        "sandboxes/main",
    ]);
    command.args(["--watch-namespace", "team", "--runtime-namespaces", "others"]);
    let ended = command.output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success(), "{told}");
    assert!(
        told.contains("neither among --watch-namespace nor among --runtime-namespaces"),
        "{told}"
    );
}
