//! Uploads and containers that the registry of a cluster keeps for several gateways (docs/files.md#on-a-cluster): a real
//! `knack registry`, whose API server knows tokens and no objects.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{StatusCode, Uri};
use knack_execution::{DisabledExecutor, Executor};
use knack_gateway::files::user_files::{RemoteFiles, UserFiles};
use knack_gateway::runs::code_tools::CodeTools;
use knack_hub_api::client::{Authorities, HubClient, HubClientSettings, Token};
use knack_memory::MemoryBudget;
use serde_json::{Value, json};

use super::containers::{RUNS, naming};
use super::port::free_port;
use super::support::{Running, Start, client, start};
use super::talk::{Format, Talk};
use super::user_files::{Caller, Dialect, form, ids};

/// Longest wait for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A registry, killed when dropped, with what it keeps and whom it trusts.
pub(crate) struct Kept {
    pub(crate) folder: tempfile::TempDir,
    authority: String,
    pub(crate) port: u16,
    process: Option<Child>,
    /// Which folders it keeps what in: `files`, `history`.
    keeps: Vec<&'static str>,
}

/// An unsigned token of a ServiceAccount, as its API server would read it.
pub(crate) fn token(account: &str) -> String {
    let claims = json!({"aud": ["knack"], "exp": 4_000_000_000_u64, "sub": account}).to_string();
    format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(claims))
}

/// An API server: it reviews tokens, and has no Skills.
async fn api_server() -> String {
    let answer = |uri: Uri, body: Bytes| async move {
        if uri.query().is_some_and(|query| query.contains("watch=true")) {
            std::future::pending::<()>().await;
        }
        if uri.path().ends_with("/skills") {
            let list = json!({"kind": "SkillList", "apiVersion": "knack.dev/v1alpha1", "metadata": {"resourceVersion": "1"},
                "items": []});
            return (StatusCode::OK, Json(list));
        }
        if !uri.path().ends_with("/tokenreviews") {
            return (
                StatusCode::NOT_FOUND,
                Json(json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": 404, "reason": "NotFound", "message": "tokens and Skills only"})),
            );
        }
        let mut review: Value = serde_json::from_slice(&body).unwrap();
        let claims = review["spec"]["token"]
            .as_str()
            .unwrap()
            .split('.')
            .nth(1)
            .unwrap()
            .to_owned();
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
        let account = claims["sub"].as_str().unwrap();
        review["status"] = json!({"authenticated": true, "audiences": ["knack"],
            "user": {"username": format!("system:serviceaccount:{account}"), "uid": account}});
        (StatusCode::CREATED, Json(review))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    url
}

impl Kept {
    async fn start() -> Self {
        Self::keeping(&["files"]).await
    }

    pub(crate) async fn keeping(keeps: &[&'static str]) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
        write("tls.crt", made.cert.pem());
        write("tls.key", made.signing_key.serialize_pem());
        let named =
            |part: Value| json!([{"name": "a", "cluster": part.clone(), "user": part.clone(), "context": part}]);
        let server = json!({"server": api_server().await});
        write(
            "kubeconfig",
            json!({"apiVersion": "v1", "kind": "Config", "current-context": "a", "clusters": named(server),
                "users": named(json!({})), "contexts": named(json!({"cluster": "a", "user": "a"}))})
            .to_string(),
        );
        let port = free_port();
        let mut kept = Self {
            folder,
            authority: made.cert.pem(),
            port,
            process: None,
            keeps: keeps.to_vec(),
        };
        kept.begin().await;
        kept
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Starts the process and waits until it answers.
    pub(crate) async fn begin(&mut self) {
        let process = Command::new(env!("CARGO_BIN_EXE_knack"))
            .args(["registry", "--metrics-listen=127.0.0.1:0", "--shutdown-pause-seconds=0"])
            .arg(format!("--listen=127.0.0.1:{}", self.port))
            .arg(format!("--tls-dir={}", self.folder.path().display()))
            .args(
                self.keeps
                    .iter()
                    .map(|kept| format!("--{kept}-dir={}", self.path(kept))),
            )
            .env("KUBECONFIG", self.path("kubeconfig"))
            .env("KNACK_LOG", "error")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        self.process = Some(process);
        let answers = async {
            while tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, answers)
            .await
            .expect("the registry listens");
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// What asks it, as an account.
    pub(crate) fn client(&self, account: &str) -> HubClient {
        HubClient::new(HubClientSettings {
            url: format!("https://127.0.0.1:{}", self.port),
            authorities: Authorities::Pem(self.authority.clone()),
            token: Token::Fixed(token(account)),
            address: None,
        })
        .unwrap()
    }

    /// A gateway of an account.
    async fn gateway(&self, account: &str, executor: Arc<dyn Executor>) -> Running {
        let client = self.client(account);
        let memory = MemoryBudget::new(256 << 20);
        start(Start {
            script: RUNS.to_owned(),
            executor,
            kept_files: Some(UserFiles::of(RemoteFiles::new(client, None, &memory))),
            ..Start::default()
        })
        .await
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.kill();
    }
}

fn contents(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("files/contents")).unwrap().count()
}

#[tokio::test]
async fn what_one_gateway_takes_another_of_its_account_uses_and_no_other_sees() {
    let mut kept = Kept::start().await;
    let executor: Arc<dyn Executor> = Arc::new(super::runner::executor(1).await);
    let first = kept.gateway("team:app", Arc::clone(&executor)).await;
    let second = kept.gateway("team:app", Arc::clone(&executor)).await;
    let elsewhere = kept.gateway("other:app", Arc::clone(&executor)).await;
    let id = Caller::new(&first, Dialect::General)
        .upload("data.csv", b"kumquat")
        .await;
    let path = format!("/v1/files/{id}");
    for dialect in [Dialect::General, Dialect::Beta, Dialect::OpenAi] {
        let caller = Caller::new(&second, dialect);
        assert_eq!(ids(&caller.get("/v1/files").await.json()), [id.as_str()]);
        assert_eq!(caller.get(&format!("{path}/content")).await.text, "kumquat");
        for stranger in [Caller { key: "key-b", ..caller }, Caller::new(&elsewhere, dialect)] {
            assert_eq!(ids(&stranger.get("/v1/files").await.json()), Vec::<String>::new());
            for answer in [
                stranger.get(&path).await,
                stranger.get(&format!("{path}/content")).await,
                stranger.delete(&path).await,
            ] {
                assert_eq!(answer.status, 404, "{}", answer.text);
            }
        }
    }
    // A message at the second names what came to the first.
    for format in [Format::Chat, Format::Messages, Format::Responses] {
        let mut talk = naming((format, false), "read it", &id);
        let said = talk.hear(&second).await.text;
        assert!(said.contains("kumquat"), "{format:?}: {said}");
        let answer = naming((format, false), "read it", &id).send(&elsewhere).await;
        assert_eq!(answer.status, 404, "{}", answer.text);
    }
    // The registry is killed: what it said it keeps is there when it is back, and meanwhile it is said to be away.
    kept.kill();
    let caller = Caller::new(&second, Dialect::OpenAi);
    for answer in [
        caller.get(&path).await,
        caller.get("/v1/files").await,
        naming((Format::Chat, false), "read it", &id).send(&second).await,
    ] {
        let said = &answer.json()["error"]["message"];
        assert_eq!(answer.status, 503, "{}", answer.text);
        assert!(said.as_str().unwrap().contains("registry that stores files"), "{said}");
    }
    // A shell that runs here needs a container, which it has from the registry.
    let shell = start(Start {
        executor,
        sandbox_code_tools: vec![CodeTools::OpenAi],
        kept_files: Some(UserFiles::of(RemoteFiles::new(
            kept.client("team:app"),
            None,
            &MemoryBudget::new(256 << 20),
        ))),
        ..Start::default()
    })
    .await;
    let tool = json!({"type": "shell", "environment": {"type": "container_auto"}});
    let body = json!({"model": "gpt-x", "input": "hello", "tools": [tool]});
    let talk = Talk::plain((Format::Responses, false), "hello");
    let refused = shell.send(talk.request(&shell.url, &body)).await;
    let said = refused.json()["error"]["message"].to_string();
    assert_eq!((refused.status, shell.mock.handle.requests().len()), (503, 0), "{said}");
    assert!(
        said.contains("container of the tool") && said.contains("registry that stores files"),
        "{said}"
    );
    assert!(refused.headers.contains_key("retry-after"));
    let plain = Talk::plain((Format::Chat, false), "hello").send(&second).await;
    assert_eq!(
        plain.status, 200,
        "a request without files needs no registry: {}",
        plain.text
    );
    kept.begin().await;
    assert_eq!(caller.get(&format!("{path}/content")).await.text, "kumquat");
    assert_eq!(contents(kept.folder.path()), 1);
    assert_eq!(caller.delete(&path).await.json()["deleted"], true);
    assert_eq!(Caller::new(&first, Dialect::OpenAi).get(&path).await.status, 404);
    assert_eq!(contents(kept.folder.path()), 0);
}

#[tokio::test]
async fn a_container_is_continued_at_another_gateway_and_keeps_what_both_put_into_it() {
    let kept = Kept::start().await;
    let executor: Arc<dyn Executor> = Arc::new(super::runner::executor(1).await);
    let first = kept.gateway("team:app", Arc::clone(&executor)).await;
    let second = kept.gateway("team:app", Arc::clone(&executor)).await;
    let (one, two) = (
        Caller::new(&first, Dialect::OpenAi),
        Caller::new(&second, Dialect::OpenAi),
    );
    let upload = one.upload("a.csv", b"a,b").await;
    let made = one
        .post("/v1/containers", &json!({"name": "n", "file_ids": [upload]}))
        .await
        .json();
    let id = made["id"].as_str().unwrap().to_owned();
    assert_eq!(two.get(&format!("/v1/containers/{id}")).await.json()["name"], "n");
    let files = format!("/v1/containers/{id}/files");
    let (mut at_first, mut at_second) = (Vec::new(), Vec::new());
    for number in 0..5 {
        at_first.push(form(&[("file", Some(&format!("first-{number}")), b"x")]));
        at_second.push(form(&[("file", Some(&format!("second-{number}")), b"x")]));
    }
    let both = futures::future::join(
        futures::future::join_all(at_first.into_iter().map(|body| one.send_form(&files, body))),
        futures::future::join_all(at_second.into_iter().map(|body| two.send_form(&files, body))),
    );
    let (at_first, at_second) = both.await;
    for answer in at_first.iter().chain(&at_second) {
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    for caller in [&one, &two] {
        assert_eq!(ids(&caller.get(&files).await.json()).len(), 11, "nobody's file is lost");
    }
    // Runs at the one go on where runs at the other ended.
    let tool = json!({"type": "shell", "environment": {"type": "container_reference", "container_id": id}});
    for (gateway, expected) in [(&first, "made;"), (&second, "made;made;")] {
        let mut talk = Talk::plain((Format::Responses, false), "write it");
        let body = json!({"model": "gpt-x", "input": "write it", "tools": [tool.clone()]});
        let answer = gateway.send(talk.request(&gateway.url, &body)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        talk.take(&answer);
        let listed = two.get(&format!("{files}?limit=100")).await.json();
        let all = listed["data"].as_array().unwrap();
        let file = all.iter().find(|file| file["path"] == "/mnt/data/made.txt").unwrap();
        let content = two
            .get(&format!("{files}/{}/content", file["id"].as_str().unwrap()))
            .await;
        assert_eq!(content.text, expected);
    }
}

#[tokio::test]
async fn a_caller_that_asks_in_a_loop_is_refused_and_leaves_the_others_their_part() {
    let kept = Kept::start().await;
    let knack = kept.gateway("team:app", Arc::new(DisabledExecutor::by_flag())).await;
    let other = Caller {
        key: "key-b",
        ..Caller::new(&knack, Dialect::OpenAi)
    };
    // On connections that are kept: making one takes a busy machine as long as the allowance takes to be refilled.
    let flood = client();
    let asked = || knack.send(flood.get(format!("{}/v1/files", knack.url)).bearer_auth("key-a"));
    let mut refused = None;
    // Fewer at once than one may have, and as many as it takes: a busy machine answers hardly faster than the allowance is refilled.
    for _ in 0..400 {
        for answer in futures::future::join_all((0..14).map(|_| asked())).await {
            match answer.status {
                200 => {}
                _ => refused = Some(answer),
            }
        }
        if refused.is_some() {
            break;
        }
    }
    let refused = refused.expect("a bound");
    assert_eq!(refused.status, 429, "{}", refused.text);
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(refused.text.contains("by this caller"), "{}", refused.text);
    let list = other.get("/v1/files").await;
    assert_eq!(list.status, 200, "{}", list.text);
    // A model request waits for its turn.
    let id = other.upload("data.csv", b"kumquat").await;
    let mut talk = naming((Format::Chat, false), "hello", &id);
    talk.key = "key-b";
    assert_eq!(talk.send(&knack).await.status, 200);
    // An id that the registry would not take is the client's mistake, and no sign that the registry is away.
    let long = format!("/v1/files/file_knack_{}", "x".repeat(200));
    assert_eq!(other.get(&long).await.status, 400);
}
