//! A hub of one skill, over TLS, that is killed and started again at the same address; the registry of its cluster beside it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use knack_hub_api::fixture::runtime_line;
use knack_hub_api::{
    ActivationName, CatalogLine, ContentFile, ContentIndex, Hello, HubRefusal, Overrides, PROTOCOL, RefusalCode,
    Removed, SkillLine, Synced, UploadLine,
};
use knack_registry::{ID_PREFIX, REPORT_PATH};
use knack_skill::model::SkillFile;
use knack_skill::tree;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::port::free_port;
use super::registry_relay::{Asked, ON_THE_WAY};

/// How often a catalog's stream says that it lives.
const PING: Duration = Duration::from_secs(1);

/// An authority of its own for 127.0.0.1: what its clients must trust, as PEM, and what shakes hands by it.
pub(crate) fn authority() -> (String, TlsAcceptor) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (made.cert.pem(), TlsAcceptor::from(Arc::new(config)))
}

/// What the hub serves: versions of one skill, the last one while it is there.
#[derive(Debug, Clone, Default)]
struct Catalog {
    versions: Vec<BTreeMap<String, SkillFile>>,
    /// Ids that the last version has of the registry.
    ids: Option<Vec<String>>,
    /// Whether they are versions of an upload, of which the last one is served by default and each other one is an object beside it.
    is_upload: bool,
    is_removed: bool,
    /// Why nobody gets it.
    refused: Option<HubRefusal>,
    /// The oldest protocol that is spoken, which older hubs did not say, and the newest; `None`: this build's newest.
    spoken: Option<(Option<u32>, u32)>,
    /// `maxSnapshotAgeSeconds` of the runtime, if it has one of its own.
    max_age_seconds: Option<u64>,
    /// How many of the next requests for content meet a replica that does not know it yet.
    behind: usize,
}

impl Catalog {
    fn upload(&self, number: usize) -> Option<UploadLine> {
        let number = u32::try_from(number).unwrap();
        self.is_upload.then(|| UploadLine {
            of: "steady".to_owned(),
            number,
        })
    }

    /// The objects of the versions of an upload that are not the default.
    fn earlier(&self, resource_version: &str) -> impl Iterator<Item = CatalogLine> {
        let count = self.versions.len().saturating_sub(1);
        let numbered = (1..=count).zip(&self.versions).filter(|_| self.is_upload);
        numbered.map(move |(number, files)| {
            CatalogLine::Skill(Box::new(SkillLine {
                namespace: "team".to_owned(),
                name: format!("steady-v{number}"),
                uid: format!("u-{number}"),
                resource_version: resource_version.to_owned(),
                digest: tree::digest(files),
                created: 0,
                overrides: Overrides {
                    activation: Some(ActivationName::OnRequest),
                    ..Overrides::default()
                },
                upload: self.upload(number),
                withheld_tools: Vec::new(),
            }))
        })
    }

    /// The index, or a change of it, with its end.
    fn lines(&self) -> Vec<CatalogLine> {
        let resource_version = (10 + self.versions.len() + usize::from(self.is_removed)).to_string();
        let (namespace, name, uid) = ("team".to_owned(), "steady".to_owned(), "u".to_owned());
        let skill = self.versions.last().map(|files| {
            if self.is_removed {
                return CatalogLine::Removed(Removed {
                    namespace,
                    name,
                    uid,
                    resource_version: resource_version.clone(),
                });
            }
            CatalogLine::Skill(Box::new(SkillLine {
                namespace,
                name,
                uid,
                resource_version: resource_version.clone(),
                digest: tree::digest(files),
                created: 0,
                overrides: Overrides {
                    ids: self.ids.clone(),
                    ..Overrides::default()
                },
                upload: self.upload(self.versions.len()),
                withheld_tools: Vec::new(),
            }))
        });
        let end = CatalogLine::Synced(Synced {
            resource_version: resource_version.clone(),
        });
        self.earlier(&resource_version).chain(skill).chain([end]).collect()
    }
}

/// The hub; what it serves outlives its process.
pub(crate) struct Hub {
    pub(crate) url: String,
    /// What its clients must trust.
    pub(crate) pem: String,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    catalog: watch::Sender<Catalog>,
    /// Ended as a whole: no connection outlives it.
    process: Option<tokio::runtime::Runtime>,
    /// What the registry got.
    pub(crate) asked: Asked,
    /// What else it serves.
    pub(crate) more: Router,
}

impl Hub {
    /// A hub that is not started yet.
    pub(crate) fn new() -> Self {
        let (pem, acceptor) = authority();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        Self {
            url: format!("https://{address}"),
            pem,
            address,
            acceptor,
            catalog: watch::Sender::new(Catalog::default()),
            process: None,
            asked: Asked::default(),
            more: Router::new(),
        }
    }

    pub(crate) fn start(&mut self) {
        let process = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (acceptor, address) = (self.acceptor.clone(), self.address);
        let router = Router::new()
            .route("/v1/catalog", get(stream))
            .route("/v1/content/{digest}", get(index))
            .route("/v1/content/{digest}/{*path}", get(file))
            .with_state(self.catalog.clone())
            .merge(self.more.clone())
            .fallback({
                let (asked, catalog) = (self.asked.clone(), self.catalog.clone());
                move |request| registry(request, asked, catalog)
            });
        process.spawn(async move {
            // The process that was killed holds the address a moment longer.
            let listener = loop {
                match TcpListener::bind(address).await {
                    Ok(listener) => break listener,
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            };
            axum::serve(Tls { listener, acceptor }, router).await
        });
        self.process = Some(process);
    }

    pub(crate) fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.shutdown_background();
        }
    }

    /// Another version of the skill, whose instructions are this text.
    pub(crate) fn skill(&self, text: &str) {
        add(&self.catalog, text, None);
    }

    /// Another version of the skill with a number of its own and a tool, as the registry keeps what programs upload.
    pub(crate) fn release(&self, version: &str) {
        let document = format!(
            "---\nname: steady\ndescription: Speaks.\nmetadata:\n  version: {version}\ntools:\n  - name: speak\n    description: Speaks.\n    \
             command: [\"true\"]\n---\nSay {version}.\n"
        );
        self.catalog.send_modify(|catalog| {
            catalog.versions.push(BTreeMap::from([file_of("SKILL.md", &document)]));
            catalog.is_upload = true;
        });
    }

    /// From now on clients are refused, or served again.
    pub(crate) fn refuse(&self, why: Option<HubRefusal>) {
        self.catalog.send_modify(|catalog| catalog.refused = why);
    }

    /// Speaks these protocols in the next streams: the oldest, which older hubs did not say, and the newest.
    pub(crate) fn speak(&self, oldest: Option<u32>, newest: u32) {
        self.catalog
            .send_modify(|catalog| catalog.spoken = Some((oldest, newest)));
    }

    /// Catalogs are not served any longer than this without the hub.
    pub(crate) fn keep_for(&self, seconds: u64) {
        self.catalog
            .send_modify(|catalog| catalog.max_age_seconds = Some(seconds));
    }

    /// The next requests for content meet a replica that is behind the one that sent the catalog.
    pub(crate) fn be_behind(&self, requests: usize) {
        self.catalog.send_modify(|catalog| catalog.behind = requests);
    }

    /// The skill is deleted.
    pub(crate) fn remove(&self) {
        self.catalog.send_modify(|catalog| catalog.is_removed = true);
    }
}

fn file_of(path: &str, text: &str) -> (String, SkillFile) {
    let file = SkillFile {
        bytes: Arc::from(text.as_bytes()),
        executable: false,
    };
    (path.to_owned(), file)
}

/// Another version of the skill, with an id of the registry or without.
fn add(catalog: &watch::Sender<Catalog>, text: &str, id: Option<&str>) {
    let document = format!("---\nname: steady\ndescription: Speaks of {text}.\n---\nSay {text}.\n");
    let files = BTreeMap::from([file_of("SKILL.md", &document), file_of("notes/more.txt", "more")]);
    catalog.send_modify(|catalog| {
        catalog.versions.push(files);
        catalog.ids = id.map(|id| vec![id.to_owned()]);
    });
}

/// The registry: says what it got. What is posted is the next version of the skill, which the hub has some time later; behind an id
/// its answer has the id.
async fn registry(request: axum::extract::Request, asked: Asked, catalog: watch::Sender<Catalog>) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let told = format!("{} {}", parts.method, parts.uri);
    asked.push((told.clone(), parts.headers.clone(), body.to_vec()));
    if parts
        .headers
        .get("authorization")
        .is_none_or(|token| token == "Bearer refused")
    {
        return http::StatusCode::UNAUTHORIZED.into_response();
    }
    if parts.uri.path() == REPORT_PATH {
        return http::StatusCode::NO_CONTENT.into_response();
    }
    if parts.uri.path() == "/v1/executions" {
        let refusal = HubRefusal::new(RefusalCode::Forbidden, "nothing is run by this hub");
        return (http::StatusCode::FORBIDDEN, axum::Json(refusal)).into_response();
    }
    if parts.method == http::Method::POST {
        let text = String::from_utf8(body.to_vec()).unwrap();
        let (id, text) = match text.split_once(' ') {
            Some((id, text)) if id.starts_with(ID_PREFIX) => (Some(id.to_owned()), text.to_owned()),
            _ => (None, text),
        };
        let answer = id.as_ref().map(|id| axum::Json(json!({"id": id})));
        tokio::spawn(async move {
            tokio::time::sleep(ON_THE_WAY).await;
            add(&catalog, &text, id.as_deref());
        });
        if let Some(answer) = answer {
            return answer.into_response();
        }
    }
    ([("x-of-the-registry", "yes")], told).into_response()
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, from) = self.listener.accept().await.unwrap();
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, from);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

fn opening(catalog: &Catalog) -> Vec<CatalogLine> {
    let (protocol_min, protocol) = catalog.spoken.unwrap_or((None, PROTOCOL));
    let mut runtime = runtime_line();
    if let Some(seconds) = catalog.max_age_seconds {
        runtime.max_snapshot_age_seconds = seconds;
    }
    let hello = Hello {
        protocol,
        protocol_min,
        version: "1".to_owned(),
        resource_version: (10 + catalog.versions.len()).to_string(),
        client_namespace: None,
        watched_namespaces: None,
    };
    vec![CatalogLine::Hello(hello), CatalogLine::Runtime(Box::new(runtime))]
}

fn ndjson(lines: &[CatalogLine]) -> String {
    lines
        .iter()
        .map(|line| serde_json::to_string(line).unwrap() + "\n")
        .collect()
}

async fn stream(State(catalog): State<watch::Sender<Catalog>>) -> Response {
    if let Some(refusal) = &catalog.borrow().refused {
        return (http::StatusCode::FORBIDDEN, axum::Json(refusal)).into_response();
    }
    let mut changes = catalog.subscribe();
    let first = {
        let catalog = changes.borrow_and_update();
        let mut lines = opening(&catalog);
        lines.extend(catalog.lines());
        ndjson(&lines)
    };
    let lines = futures::stream::unfold((Some(first), changes), |(first, mut changes)| async move {
        let text = match first {
            Some(first) => first,
            None => match tokio::time::timeout(PING, changes.changed()).await {
                Ok(Ok(())) => ndjson(&changes.borrow_and_update().lines()),
                Ok(Err(_)) => return None,
                Err(_) => ndjson(&[CatalogLine::Ping]),
            },
        };
        Some((Ok::<_, Infallible>(text), (None, changes)))
    });
    Body::from_stream(lines).into_response()
}

fn found(catalog: &watch::Sender<Catalog>, digest: &str) -> Option<BTreeMap<String, SkillFile>> {
    let catalog = catalog.borrow();
    let mut versions = catalog.versions.iter();
    versions.find(|files| tree::digest(files) == digest).cloned()
}

async fn index(State(catalog): State<watch::Sender<Catalog>>, Path(digest): Path<String>) -> Response {
    let mut is_behind = false;
    catalog.send_if_modified(|catalog| {
        is_behind = catalog.behind > 0;
        catalog.behind = catalog.behind.saturating_sub(1);
        // No stream says anything new.
        false
    });
    if is_behind {
        let refusal = HubRefusal::new(
            RefusalCode::NotFound,
            "no skill visible to you at this runtime has the digest it",
        );
        return (http::StatusCode::NOT_FOUND, axum::Json(refusal)).into_response();
    }
    let Some(files) = found(&catalog, &digest) else {
        return http::StatusCode::NOT_FOUND.into_response();
    };
    let files = files
        .into_iter()
        .map(|(path, file)| ContentFile {
            path,
            size: file.bytes.len() as u64,
            sha256: knack_skill::digest::sha256(&file.bytes),
            executable: file.executable,
        })
        .collect();
    axum::Json(ContentIndex { digest, files }).into_response()
}

async fn file(State(catalog): State<watch::Sender<Catalog>>, Path((digest, path)): Path<(String, String)>) -> Response {
    match found(&catalog, &digest).and_then(|files| files.get(&path).cloned()) {
        Some(file) => file.bytes.to_vec().into_response(),
        None => http::StatusCode::NOT_FOUND.into_response(),
    }
}
