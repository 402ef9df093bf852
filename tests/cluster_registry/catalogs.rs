//! Search and install from a catalog, which is a server of this test on loopback.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use http::{HeaderMap, StatusCode, Uri};
use knack_api::Skill;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::installation::Installation;
use super::requests::{Answer, Dialect, Program};
use super::{digest, until_ready};

const SEARCH: &str = "/api/skills/skillssh?q=word";
const INSTALL: &str = "/api/skills/skillssh/install";

/// A path that was asked for, and the credential that came with it.
type Asked = (String, Option<String>);

/// The site of a catalog.
#[derive(Clone)]
struct Site {
    url: String,
    /// The SKILL.md of the skill `word`.
    document: Arc<Mutex<String>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Places of searches for `slow`.
    slow: Arc<Semaphore>,
}

impl Site {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let site = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            document: Arc::default(),
            asked: Arc::default(),
            slow: Arc::new(Semaphore::new(0)),
        };
        let router = Router::new().fallback(answer).with_state(site.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        site.says("It is plover.");
        site
    }

    fn says(&self, text: &str) {
        *self.document.lock().unwrap() =
            format!("---\nname: word\ndescription: Says a word.\ntags: [plover]\n---\n{text}\n");
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// What `knack registry` is told of it.
    fn words(&self) -> Vec<String> {
        vec![
            "--catalog=skillssh".to_owned(),
            format!("--catalog-url={}/api", self.url),
            format!("--catalog-files-url={}/files", self.url),
        ]
    }
}

async fn answer(State(site): State<Site>, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let key = headers.get("authorization").or_else(|| headers.get("x-api-key"));
    let key = key.map(|key| key.to_str().unwrap().to_owned());
    site.asked.lock().unwrap().push((path.clone(), key));
    match path.as_str() {
        "/api/search?q=word&limit=20" => {
            let skill =
                json!({"id": "a/b/word", "skillId": "word", "name": "word", "installs": 7, "source": "a/b", "x": 1});
            axum::Json(json!({"skills": [skill]})).into_response()
        }
        "/api/search?q=slow&limit=20" => {
            site.slow.acquire().await.unwrap().forget();
            axum::Json(json!({"skills": []})).into_response()
        }
        "/files/a/b/main/skills/word/SKILL.md" => site.document.lock().unwrap().clone().into_response(),
        "/files/a/b/main/skills/large/SKILL.md" => "x".repeat((1 << 20) + 1).into_response(),
        // A loopback address that nobody named: the guard of addresses holds for redirects.
        "/files/a/b/main/skills/inside/SKILL.md" => Redirect::temporary("http://127.0.0.2:1/").into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn install_of(member: &str, value: Value) -> Value {
    let mut body = json!({"name": "word", "description": "Says a word.", "source": "a/b", "skillId": "word"});
    body[member] = value;
    body
}

async fn install(program: &Program, member: &str, value: Value) -> Answer {
    let body = install_of(member, value);
    program.send(Dialect::OpenAi, "POST", INSTALL, Some(body.into())).await
}

async fn search(program: &Program) -> Answer {
    program.send(Dialect::OpenAi, "GET", SEARCH, None).await
}

/// The text of an error of this API.
fn told(answer: &Answer) -> String {
    answer.json()["error"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_skill_of_a_catalog_is_a_skill_of_the_cluster_pinned_by_its_digest() {
    let test = "a_skill_of_a_catalog_is_a_skill_of_the_cluster_pinned_by_its_digest";
    cluster_support::run(test, async |cluster| {
        let mut installation = Installation::start(cluster).await;
        let team = installation.client_of("team", "default").await;
        for answer in [search(&team).await, install(&team, "version", json!("1.0.0")).await] {
            let text = told(&answer);
            assert!(
                answer.status == StatusCode::NOT_FOUND && text.contains("registry.catalog.name"),
                "{}",
                answer.text()
            );
        }
        let site = Site::start().await;
        installation.kill_registry();
        installation.words = site.words();
        installation.start_registry().await;

        let found = search(&team).await;
        let skill = json!({"id": "a/b/word", "skillId": "word", "name": "word", "installs": 7, "source": "a/b"});
        assert_eq!(
            (found.status, found.json()),
            (StatusCode::OK, json!({"skills": [skill]}))
        );
        let done = install(&team, "version", json!("1.0.0")).await;
        assert_eq!(done.status, StatusCode::OK, "{}", done.text());
        let id = done.json()["id"].as_str().unwrap().to_owned();
        let skills: Api<Skill> = Api::namespaced(installation.client.clone(), &installation.team);
        let first = skills.get("word").await.unwrap();
        let activation = serde_json::to_value(&first.spec.activation).unwrap();
        assert_eq!(
            (activation, first.spec.version.as_deref()),
            (json!({"mode": "Auto"}), Some("1.0.0"))
        );
        let by = &first.annotations()["knack.dev/uploaded-by"];
        assert_eq!(*by, format!("system:serviceaccount:{}:default", &*installation.team));
        until_ready(&skills, "word", &digest(&first)).await;

        // What the catalog has later changes nothing until another version is installed.
        site.says("It is another.");
        let again = install(&team, "version", json!("1.0.0")).await;
        assert_eq!(again.status, StatusCode::CONFLICT, "{}", again.text());
        let newer = install(&team, "version", json!("1.1.0")).await;
        assert_eq!(newer.json()["id"], json!(id), "{}", newer.text());
        let second = skills.get("word").await.unwrap();
        assert_ne!(digest(&second), digest(&first));
        assert_eq!(digest(&skills.get("word-v1").await.unwrap()), digest(&first));
        until_ready(&skills, "word", &digest(&second)).await;
        let row = team.json(Dialect::OpenAi, "GET", &format!("/api/skills/{id}")).await;
        let shown = ["name", "version", "mode", "sourceProvider"].map(|member| &row[member]);
        assert_eq!(json!(shown), json!(["word", "1.1.0", "auto", "skillssh"]), "{row}");
        assert!(row["handler"].as_str().unwrap().contains("It is another."), "{row}");
        // It outlives the process that installed it.
        installation.kill_registry();
        installation.start_registry().await;
        let list = team.json(Dialect::OpenAi, "GET", "/api/skills?source=skillssh").await;
        assert_eq!(
            (&list["total"], &list["data"][0]["id"]),
            (&json!(1), &json!(id)),
            "{list}"
        );
        // No credential of a caller goes to the catalog.
        let asked = site.asked();
        assert!(
            asked.len() >= 4 && asked.iter().all(|(_, key)| key.is_none()),
            "{asked:?}"
        );
    });
}

#[test]
fn a_catalog_is_asked_for_those_who_may_install_and_nothing_else_is_fetched_or_kept() {
    let test = "a_catalog_is_asked_for_those_who_may_install_and_nothing_else_is_fetched_or_kept";
    cluster_support::run(test, async |cluster| {
        let mut installation = Installation::start(cluster).await;
        let site = Site::start().await;
        installation.kill_registry();
        installation.words = site.words();
        installation.start_registry().await;
        let team = installation.client_of("team", "default").await;
        let stranger = installation.client_of("team", "stranger").await;
        let mut reader = installation.client_of("other", "reader").await;
        reader.url = format!("{}/namespaces/{}", reader.url, &*installation.team);
        for who in [&stranger, &reader] {
            for answer in [search(who).await, install(who, "version", json!("1.0.0")).await] {
                let text = told(&answer);
                assert!(
                    answer.status == StatusCode::FORBIDDEN && text.contains("neither create nor update"),
                    "{}",
                    answer.text()
                );
            }
        }
        let nobody = search(&team.with_token("nonsense")).await;
        assert_eq!(nobody.status, StatusCode::UNAUTHORIZED, "{}", nobody.text());
        assert_eq!(site.asked(), [], "nothing was fetched for them");

        for (member, value, status, says) in [
            ("skillId", json!("gone"), 404, "a/b has no skills/gone/SKILL.md"),
            ("skillId", json!("inside"), 502, "did not answer as expected"),
            ("skillId", json!("large"), 502, "did not answer as expected"),
            ("source", json!("http://127.0.0.1/x"), 400, "source"),
            ("description", json!(""), 400, "description"),
        ] {
            let answer = install(&team, member, value).await;
            let text = told(&answer);
            assert!(
                answer.status == status && text.contains(says),
                "{member}: {}",
                answer.text()
            );
            assert!(!text.contains("127.0.0.2"), "{text}");
        }
        let body = json!({"name": "word", "description": "d", "skillMdContent": site.document.lock().unwrap().clone()});
        let path = "/api/skills/marketplace/install";
        let other = team.send(Dialect::OpenAi, "POST", path, Some(body.into())).await;
        let text = told(&other);
        assert!(
            other.status == StatusCode::CONFLICT && text.contains("--catalog skillsmp"),
            "{}",
            other.text()
        );
        let skills: Api<Skill> = Api::namespaced(installation.client.clone(), &installation.team);
        assert_eq!(
            skills
                .list(&kube::api::ListParams::default())
                .await
                .unwrap()
                .items
                .len(),
            0
        );

        // A namespace asks so much at once and no more; what it asks for waits for nobody else.
        let slow = "/api/skills/skillssh?q=slow";
        let many = (0..6).map(|_| team.send(Dialect::OpenAi, "GET", slow, None));
        let mut many: futures::stream::FuturesUnordered<_> = many.collect();
        for _ in 0..2 {
            let refused = futures::StreamExt::next(&mut many).await.unwrap();
            assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.text());
            assert!(refused.headers.contains_key("retry-after"));
        }
        site.slow.add_permits(4);
        let rest: Vec<Answer> = futures::StreamExt::collect(many).await;
        assert!(
            rest.iter().all(|answer| answer.status == StatusCode::OK),
            "{}",
            rest[0].text()
        );
    });
}
