//! The index for installers, and how often an account may read, by the registry as it answers requests.

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, StatusCode, header};
use knack_registry::index::{SkillFileKind, entries};
use knack_serving::probes::Probes as _;
use knack_serving::sources::SourcePermit;
use knack_skill::digest::sha256;
use reqwest::Url;

use super::*;
use crate::registry::request::{READS, answer};
use crate::registry::state::RegistryState;
use crate::registry::{Registry, RegistrySettings};

const INDEX: &str = "/.well-known/agent-skills/index.json";

struct Running {
    state: Arc<RegistryState>,
    fake: Fake,
    _registry: Registry,
}

struct Answered {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Running {
    async fn start() -> Self {
        let fake = Fake::default();
        fake.0.lock().unwrap().refused = Some("system:serviceaccount:team:stranger".to_owned());
        let settings = RegistrySettings {
            watch_namespaces: BTreeSet::default(),
            history: None,
            files: None,
            catalogs: None,
        };
        let registry = Registry::start(&fake.client().await, settings).unwrap();
        let state = Arc::clone(&registry.state);
        while state.ready().is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        Self {
            state,
            fake,
            _registry: registry,
        }
    }

    async fn send(&self, method: &str, path: &str, (account, tag): (&str, &str)) -> Answered {
        let mut request = Request::builder().method(method).uri(path);
        if !account.is_empty() {
            let claims = json!({"aud": ["knack"], "exp": u32::MAX, "sub": account}).to_string();
            let token = format!("e30.{}.{account}", URL_SAFE_NO_PAD.encode(claims));
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if !tag.is_empty() {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        let request = request.body(Body::empty()).unwrap();
        let (parts, body) = answer(State(Arc::clone(&self.state)), request).await.into_parts();
        Answered {
            status: parts.status,
            headers: parts.headers,
            body: to_bytes(body, 1 << 20).await.unwrap().to_vec(),
        }
    }

    async fn get(&self, path: &str) -> Answered {
        self.send("GET", path, ("app", "")).await
    }

    /// Name, path and digest of what an index offers, each of which is there with that digest.
    async fn offered(&self, index: &str) -> Vec<(String, String)> {
        let answered = self.get(index).await;
        assert_eq!(
            answered.status,
            StatusCode::OK,
            "{}",
            String::from_utf8_lossy(&answered.body)
        );
        let base = Url::parse(&format!("https://registry{index}")).unwrap();
        let mut found = Vec::new();
        for entry in entries(&base, &answered.body).unwrap().skills {
            let file = self.get(entry.url.path()).await;
            assert_eq!(file.status, StatusCode::OK, "{}", entry.url);
            assert_eq!(entry.digest, format!("sha256:{}", sha256(&file.body)));
            let is_document = entry.url.path().ends_with("/SKILL.md");
            assert_eq!(entry.kind == Some(SkillFileKind::SkillMd), is_document, "{}", entry.url);
            found.push((entry.name, entry.url.path().to_owned()));
        }
        found
    }
}

fn two_files(name: &str) -> Draft {
    let mut draft = draft(name, "two");
    let more = SkillFile {
        bytes: b"more".as_slice().into(),
        executable: false,
    };
    draft.files.insert("more.txt".to_owned(), more);
    draft.digest = knack_skill::tree::digest(&draft.files);
    draft
}

#[tokio::test]
async fn installers_get_the_default_versions_that_the_caller_may_list() {
    let running = Running::start().await;
    let cluster = &running.state.shared.cluster;
    assert_eq!(running.offered(INDEX).await, []);
    let draw = cluster.create(OF, None, draft("draw", "one")).await.unwrap();
    cluster.create(OF, None, two_files("box")).await.unwrap();
    let other = Actor {
        namespace: "other",
        ..OF
    };
    cluster.create(other, None, draft("elsewhere", "one")).await.unwrap();

    let folder = "/.well-known/agent-skills";
    let pair = |name: &str, path: String| (name.to_owned(), path);
    let expected = [
        pair("box", format!("{folder}/box.zip")),
        pair("draw", format!("{folder}/draw/SKILL.md")),
    ];
    assert_eq!(running.offered(INDEX).await, expected);
    // What is offered in a namespace that the address names has its addresses there.
    assert_eq!(
        running.offered(&format!("/namespaces/other{INDEX}")).await,
        [pair(
            "elsewhere",
            format!("/namespaces/other{folder}/elsewhere/SKILL.md")
        )]
    );
    assert_eq!(
        running.get(&format!("{folder}/elsewhere/SKILL.md")).await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        running.get(&format!("{folder}/draw.zip")).await.status,
        StatusCode::NOT_FOUND
    );

    // Another version, served or not.
    cluster
        .add_version(OF, &draw.id, draft("draw", "more"), false)
        .await
        .unwrap();
    let text = async || String::from_utf8(running.get(&format!("{folder}/draw/SKILL.md")).await.body).unwrap();
    assert!(text().await.ends_with("one"));
    cluster.set_default(OF, &draw.id, 2).await.unwrap();
    assert!(text().await.ends_with("more"));
    assert_eq!(running.offered(INDEX).await, expected);
    let tag = running.get(INDEX).await.headers[header::ETAG]
        .to_str()
        .unwrap()
        .to_owned();
    let again = running.send("GET", INDEX, ("app", &tag)).await;
    assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0));
    cluster.set_mode(OF, &draw.id, Mode::Off).await.unwrap();
    assert_eq!(running.offered(INDEX).await, expected[..1]);
    assert_eq!(
        running.get(&format!("{folder}/draw/SKILL.md")).await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn the_index_needs_a_token_and_the_right_to_list() {
    let running = Running::start().await;
    let cluster = &running.state.shared.cluster;
    cluster.create(OF, None, draft("draw", "one")).await.unwrap();
    for path in [
        INDEX,
        "/.well-known/agent-skills/draw/SKILL.md",
        "/namespaces/team/.well-known/agent-skills/index.json",
    ] {
        for (account, expected) in [
            ("", StatusCode::UNAUTHORIZED),
            ("stranger", StatusCode::FORBIDDEN),
            ("app", StatusCode::OK),
        ] {
            let answered = running.send("GET", path, (account, "")).await;
            let text = String::from_utf8_lossy(&answered.body).into_owned();
            assert_eq!(answered.status, expected, "{path} {account}: {text}");
            assert!(expected == StatusCode::OK || !text.contains("draw\""), "{text}");
        }
    }
    assert_eq!(
        running.send("POST", INDEX, ("app", "")).await.status,
        StatusCode::METHOD_NOT_ALLOWED
    );
    let before = running.fake.0.lock().unwrap().writes;
    running.get(INDEX).await;
    assert_eq!(running.fake.0.lock().unwrap().writes, before, "it only reads");
}

#[tokio::test]
async fn an_account_that_reads_too_much_is_refused_and_no_other() {
    let running = Running::start().await;
    let take = || running.state.reads.take("team/app/app", tokio::time::Instant::now());
    let under_way: Vec<SourcePermit> = std::iter::from_fn(take).collect();
    assert_eq!(under_way.len(), READS.at_once);
    for path in ["/v1/skills", "/api/skills", INDEX] {
        let refused = running.get(path).await;
        let text = String::from_utf8_lossy(&refused.body);
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{path}: {text}");
        assert!(refused.headers.contains_key(header::RETRY_AFTER), "{path}");
        assert!(
            text.contains("ServiceAccount team/app sends too many"),
            "{path}: {text}"
        );
        let other = running.send("GET", path, ("reader", "")).await;
        assert_eq!(other.status, StatusCode::OK, "{path}");
    }
    let change = running.send("DELETE", "/api/skills/unknown", ("app", "")).await;
    assert_eq!(
        change.status,
        StatusCode::NOT_FOUND,
        "changes are counted by themselves"
    );
    drop(under_way);
    assert_eq!(running.get("/v1/skills").await.status, StatusCode::OK);
}
