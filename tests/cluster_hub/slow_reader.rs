//! Readers that stop: a gateway that asked for a run, and one that follows the catalog.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster_support::{progress, run};
use knack_api::Skill;
use knack_hub_api::ExecutionFrame;
use knack_hub_api::client::{HubClient, LineReader};
use kube::Api;
use kube::api::{Patch, PatchParams};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::answer::accepted;
use super::metrics::{metered_hub, metrics};
use super::support::{Installation, InstallationOptions, SOON, fresh_id, next_skill, patiently};

/// The inputs of the skill that is edited, and the bytes of the default value of each: its line in a catalog has both, 384 KB.
const INPUTS: usize = 24;
const INPUT_BYTES: usize = 16_000;
/// Edits of it that nobody reads: 6 MB. The kernel takes at most 4 MB for a connection by itself, and the hub buffers half a megabyte.
const EDITS: usize = 16;
/// The bytes that the reader which never reads has room for.
const ROOM_BYTES: u32 = 16 << 10;
/// How long the hub waits for a reader that takes nothing.
const STALLED: Duration = Duration::from_mins(1);
/// How often a condition without a signal is asked for.
const POLL: Duration = Duration::from_millis(100);

/// Edits the large skill: `edit` is in its version.
async fn edit(installation: &Installation, edit: usize) {
    let document = "---\nname: large\ndescription: A skill of a test.\n---\nx\n";
    let inputs: Vec<_> = (0..INPUTS)
        .map(|input| json!({"name": format!("input-{input}"), "default": "x".repeat(INPUT_BYTES)}))
        .collect();
    let body = json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": "large"},
        "spec": {
            "source": {"inline": {"files": {"SKILL.md": document}}}, "inputs": inputs, "version": format!("1.0.{edit}"),
        },
    });
    let api: Api<Skill> = Api::namespaced(installation.client.clone(), &installation.tenants[0]);
    let params = PatchParams::apply("hub-test").force();
    api.patch("large", &params, &Patch::Apply(&body)).await.unwrap();
}

/// Waits until a reader of the catalog has the edit.
async fn has(catalog: &mut LineReader, edit: usize) {
    let version = format!("1.0.{edit}");
    let line = next_skill(catalog, |skill| skill.overrides.version.as_ref() == Some(&version));
    tokio::time::timeout(SOON, line)
        .await
        .unwrap_or_else(|_| panic!("the reader that reads gets {version}"));
    progress(format!("edit {edit} of {EDITS} is served"));
}

/// Waits until the hub says that so many catalogs are followed.
async fn followed(probes: u16, count: usize, within: Duration) {
    let (begun, line) = (Instant::now(), format!("knack_hub_catalog_streams {count}"));
    loop {
        let text = metrics(probes).await;
        if text.lines().any(|found| found == line) {
            return;
        }
        assert!(begun.elapsed() < within, "{line} in\n{text}");
        progress(format!("waits for {line}"));
        tokio::time::sleep(POLL).await;
    }
}

/// Follows the catalog by a connection of which nothing is read after its handshake.
async fn silent(installation: &Installation) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    for authority in CertificateDer::pem_file_iter(installation.authorities_file()).unwrap() {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(ROOM_BYTES).unwrap();
    let stream = socket
        .connect(([127, 0, 0, 1], installation.port).into())
        .await
        .unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    let token = installation.token(&installation.tenants[0], "default", "knack").await;
    let head = format!(
        "GET {}&watch=true HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n\r\n",
        installation.catalog()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

/// Edits the skill until nothing more fits between the hub and a reader that reads nothing, while another one gets each edit in time.
/// Returns both.
async fn fill(installation: &Installation, client: &HubClient, probes: u16) -> (TlsStream<TcpStream>, LineReader) {
    edit(installation, 0).await;
    let path = format!("{}&watch=true", installation.catalog());
    let mut catalog = patiently(async || client.hub().watch(&path).await).await.unwrap();
    has(&mut catalog, 0).await;
    followed(probes, 1, SOON).await;
    let silent = silent(installation).await;
    followed(probes, 2, SOON).await;
    for number in 1..=EDITS {
        edit(installation, number).await;
        has(&mut catalog, number).await;
    }
    (silent, catalog)
}

/// The hub closes the connection of the reader that reads nothing, and no other; the reader never had the last edit.
async fn closed(mut silent: TlsStream<TcpStream>, probes: u16) {
    followed(probes, 1, STALLED + SOON).await;
    let text = metrics(probes).await;
    let line = "knack_hub_listener_connections_closed_total{reason=\"Stalled\"} 1";
    assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    let mut read = Vec::new();
    // It may end by a reset: what the hub had for it is gone.
    let ended = tokio::time::timeout(SOON, silent.read_to_end(&mut read)).await;
    drop(ended.expect("its connection has ended"));
    let read = String::from_utf8_lossy(&read);
    assert!(read.starts_with("HTTP/1.1 200 "), "{read:.200}");
    assert!(
        !read.contains(&format!("\"version\":\"1.0.{EDITS}\"")),
        "the last edit was read"
    );
}

/// A run whose reader stops before its result, and others meanwhile; the reader gets all of it when it reads on.
async fn result(installation: &Installation, client: &HubClient) {
    installation.skill(&installation.tenants[0], "loud", "print('x')").await;
    let skill = installation.served(client, "loud").await;
    let id = fresh_id().to_string();
    let program =
        "import sys\nfor i in range(1000): sys.stdout.write(str(i % 10) * 1000)\nopen('end','w').write('e' * 3000000)";
    let mut post = installation.post(&skill, &id, &["python3", "-c", program]);
    post["live"] = json!(true);
    let mut unread = accepted(client, post.to_string()).await;
    // Others run meanwhile; by the time that the third has run, the first is long over.
    for _ in 0..3 {
        let result = installation
            .run_skill(
                client,
                &installation.tenants[0],
                "loud",
                &["python3", "skills/loud/scripts/run.py"],
            )
            .await
            .unwrap();
        assert_eq!(result.stdout.text(), "x\n");
    }
    let (mut file_bytes, mut stdout) = (0, Vec::new());
    let reading = async {
        while let Some(frame) = unread.next_value::<ExecutionFrame>().await.unwrap() {
            match frame {
                ExecutionFrame::File(piece) => file_bytes += piece.data.0.len(),
                ExecutionFrame::Result(result) => stdout = result.stdout.0.to_vec(),
                ExecutionFrame::Error(refusal) => panic!("{refusal:?}"),
                _ => {}
            }
        }
    };
    tokio::time::timeout(SOON, reading).await.expect("the result comes");
    assert_eq!(file_bytes, 3_000_000);
    assert_eq!(stdout.len(), 1_000_000);
}

/// A reader that stops holds up neither its own run nor anybody else's, and gets the whole result when it reads on. One that never
/// reads its catalog is closed after the hub's minute, and until then others get each change.
#[test]
fn stopped_readers_delay_no_other() {
    run("stopped_readers_delay_no_other", async |cluster| {
        let installation = Installation::install(cluster, InstallationOptions::of(1, json!({}))).await;
        let (_hub, probes) = metered_hub(&installation).await;
        let client = installation.tenant(0).await;
        let (silent, mut catalog) = fill(&installation, &client, probes).await;
        // In the minute that the hub waits for it.
        result(&installation, &client).await;
        closed(silent, probes).await;
        edit(&installation, EDITS + 1).await;
        has(&mut catalog, EDITS + 1).await;
    });
}
