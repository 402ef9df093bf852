//! The settings of a sidecar: what a namespace writes into its ConfigMap keeps no pod from starting.

use std::fs::File;

use super::gateway::{Gateway, client, provider};
use super::port::free_port;
use super::program::{folder, knack};
use super::{err, out};

/// A sidecar with these settings that is alive, what `/readyz` says, the answer to a model call, and the log.
async fn sidecar(settings: &[(&str, &str)]) -> (String, (u16, String), String) {
    let folder = folder(&[]);
    let (upstream, _sender) = provider().await;
    let hub = format!("https://127.0.0.1:{}", free_port());
    let path = folder.path().join("log");
    let more = [&[("KNACK_START_WAIT_SECONDS", "0")], settings].concat();
    let log = File::create(&path).unwrap();
    let mut gateway = Gateway::logging(folder.path(), &upstream, &hub, &more, log.into());
    gateway.healthy().await;
    let (status, ready) = gateway.ready().await;
    assert_eq!(status, 200, "{settings:?}: {ready}");
    let answer = client().get(format!("{}/models", gateway.url)).send().await.unwrap();
    let answer = (answer.status().as_u16(), answer.text().await.unwrap());
    gateway.stop().await;
    (ready, answer, std::fs::read_to_string(path).unwrap())
}

#[tokio::test]
async fn settings_that_cannot_be_read_are_named_and_ignored() {
    for (variable, value) in [
        ("KNACK_MCP", "maybe"),
        ("KNACK_RECORD_STORE_MIB", "a"),
        ("KNACK_SANDBOX_CODE_TOOLS", "openai,none-such"),
        ("KNACK_PROVIDER_KEYS_WHOLE_ACCOUNT", "perhaps"),
        ("KNACK_PROVIDER_KEYS_WHOLE_ACCOUNT", "true"),
        ("KNACK_PROVIDER_KEYS_DIR", "/dev/null"),
        ("KNACK_CA_PEM", "no certificate"),
        ("KNACK_CA_FILE", "/there/is/none"),
        ("KNACK_REGISTRY", "registry/v1"),
        ("KNACK_HISTORY", "registry/v1"),
        ("KNACK_FILES_REGISTRY", "registry/v1"),
        ("KNACK_LOG", "a=loud"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "no collector"),
        // What libraries read.
        ("TMPDIR", "/there/is/none"),
        ("TMPDIR", "/proc"),
        ("TOKIO_WORKER_THREADS", "0"),
        ("TOKIO_WORKER_THREADS", "many"),
        ("RUST_MIN_STACK", "1000000000000000"),
    ] {
        let (_, answer, log) = sidecar(&[(variable, value)]).await;
        assert_eq!(answer, (200, "models".to_owned()), "{variable}={value}");
        let named = variable.split_once("_ENDPOINT").map_or(variable, |(begin, _)| begin);
        let warned = |line: &str| line.contains("WARN") && line.contains(named) && line.contains("ignored");
        assert!(log.lines().any(warned), "{variable}={value}: {log}");
    }
}

/// Where one of the two leads nowhere, the other one, or its default, may still have authorities.
#[tokio::test]
async fn a_sidecar_whose_authorities_are_nowhere_has_those_of_the_system() {
    let nowhere = [("SSL_CERT_FILE", "/there/is/none"), ("SSL_CERT_DIR", "/there/is/none")];
    let (_, answer, log) = sidecar(&nowhere).await;
    assert_eq!(answer, (200, "models".to_owned()));
    for (variable, _) in nowhere {
        let warned = |line: &str| line.contains("WARN") && line.contains(variable) && line.contains("ignored");
        assert!(log.lines().any(warned), "{variable}: {log}");
    }
}

#[tokio::test]
async fn settings_that_are_empty_are_none() {
    let settings = [
        "KNACK_RUNTIME",
        "KNACK_MCP",
        "KNACK_RECORD_STORE_MIB",
        "KNACK_SANDBOX_CODE_TOOLS",
        "KNACK_CLIENT_AUTH",
        "KNACK_PROVIDER_KEYS_DIR",
        "KNACK_CA_PEM",
        "KNACK_CA_FILE",
        "KNACK_REGISTRY",
        "KNACK_UPSTREAM_ANTHROPIC",
        "KNACK_LOG",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "SSL_CERT_FILE",
        "TMPDIR",
        "TOKIO_WORKER_THREADS",
    ];
    let (ready, answer, log) = sidecar(&settings.map(|variable| (variable, ""))).await;
    assert_eq!(answer, (200, "models".to_owned()));
    assert!(ready.contains("the hub has not answered yet"), "{ready}");
    assert!(!log.contains("ignored"), "{log}");
}

#[tokio::test]
async fn a_runtime_that_cannot_be_read_is_no_catalog() {
    let (ready, answer, log) = sidecar(&[("KNACK_RUNTIME", "tools")]).await;
    assert_eq!(answer, (200, "models".to_owned()));
    assert!(
        ready.contains("without catalog: KNACK_RUNTIME is not namespace/name"),
        "{ready}"
    );
    assert!(log.contains("KNACK_RUNTIME cannot be read"), "{log}");
}

#[tokio::test]
async fn nothing_is_sent_for_an_api_whose_base_url_cannot_be_read() {
    let (_, (status, text), log) = sidecar(&[("KNACK_UPSTREAM_OPENAI", "llm/v1")]).await;
    assert!(
        status == 502 && text.contains("KNACK_UPSTREAM_OPENAI"),
        "{status} {text}"
    );
    assert!(log.contains("KNACK_UPSTREAM_OPENAI is not a URL"), "{log}");
    let (_, answer, _) = sidecar(&[("KNACK_UPSTREAM_ANTHROPIC", "llm/v1"), ("KNACK_UPSTREAM_GEMINI", "x")]).await;
    assert_eq!(answer, (200, "models".to_owned()), "another API");
}

/// Its own address as an upstream: each call would come back to it.
#[tokio::test]
async fn nothing_is_sent_to_an_upstream_that_is_the_sidecar_itself() {
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    // Another address of the machine is another server.
    for host in ["127.0.0.1", "LOCALHOST", "0.0.0.0"] {
        let upstream = format!("http://{host}:{port}/anthropic");
        let settings = [
            ("KNACK_LISTEN", listen.as_str()),
            ("KNACK_UPSTREAM_OPENAI", upstream.as_str()),
        ];
        let (_, (status, text), log) = sidecar(&settings).await;
        assert!(
            status == 502 && text.contains("KNACK_UPSTREAM_OPENAI"),
            "{host}: {status} {text}"
        );
        assert!(
            log.contains("KNACK_UPSTREAM_OPENAI is the address of this gateway itself"),
            "{host}: {log}"
        );
    }
}

/// A setting that says who may come in, and does not say it, lets nobody in. The pod starts all the same.
#[tokio::test]
async fn nobody_is_let_in_where_it_is_not_known_who_may() {
    for value in ["token", "TokenReview", "true", "none,token-review"] {
        let (_, (status, text), log) = sidecar(&[("KNACK_CLIENT_AUTH", value)]).await;
        assert_eq!(status, 502, "{value}: {text}");
        assert!(text.contains("KNACK_CLIENT_AUTH"), "{value}: {text}");
        let warned = |line: &str| line.contains("WARN") && line.contains("KNACK_CLIENT_AUTH") && line.contains("502");
        assert!(log.lines().any(warned), "{value}: {log}");
    }
}

#[tokio::test]
async fn a_gateway_that_a_person_starts_ends_at_what_it_cannot_read() {
    let folder = folder(&[]);
    for (variable, value, word) in [
        ("KNACK_RECORD_STORE_MIB", "a", "--record-store-mib"),
        ("KNACK_RUNTIME", "x", "--runtime"),
        ("KNACK_MCP", "maybe", "--mcp"),
        ("KNACK_CLIENT_AUTH", "token", "--client-auth"),
        ("KNACK_UPSTREAM_OPENAI", "llm/v1", "--upstream-openai"),
        ("KNACK_CA_PEM", "no certificate", "--ca-pem"),
    ] {
        let flags = ["gateway", "--hub", "https://127.0.0.1:1", "--hub-ca", "ca.crt"];
        let own = [("KNACK_DEFAULT_RUNTIME", "sandboxes/default"), (variable, value)];
        let done = knack(folder.path(), &flags, &own).await;
        assert!(!done.status.success() && out(&done).is_empty(), "{variable}: {done:?}");
        assert!(err(&done).contains(word), "{variable}: {}", err(&done));
    }
}
