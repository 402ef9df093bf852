//! OmniRoute's search and install from catalogs, which are a server of this test.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use futures::StreamExt as _;
use http::{StatusCode, Uri};
use serde_json::{Value, json};

use super::Served;

pub(super) const SCRIPT: &str = r"
turns:
  - user: plover
    rounds:
      - when: {system: plover-120}
        reply: {text: served}
      - reply: {text: nothing}
";

/// Where AUTO finds it.
const DOCUMENT: &str =
    "---\nname: word\ndescription: Says a plover word.\ntags: [plover]\n---\nThe word is plover-120.\n";
/// The key of the catalog, in the variable that is named.
const KEY: (&str, &str) = ("CATALOG_KEY", "catalog-secret");

/// What the server was asked: path with query, and the key.
type Asked = Arc<Mutex<Vec<(String, String)>>>;

async fn answer(State(asked): State<Asked>, uri: Uri, headers: http::HeaderMap) -> Response {
    let key = headers.get("authorization").and_then(|value| value.to_str().ok());
    let path = uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    asked
        .lock()
        .unwrap()
        .push((path.clone(), key.unwrap_or_default().to_owned()));
    match path.as_str() {
        "/api/search?q=plover%20word&limit=20" => {
            let skill = json!({"id": "acme/skills/word", "skillId": "word", "name": "word", "installs": 7, "source": "acme/skills"});
            axum::Json(json!({"query": "plover word", "skills": [skill], "count": 1})).into_response()
        }
        "/api/search?q=plover%20word" => {
            axum::Json(json!({"success": true, "data": {"skills": [{"id": "1", "name": "word", "githubUrl": "u"}]}}))
                .into_response()
        }
        "/api/search?q=page&limit=20" => "<html>busy</html>".into_response(),
        "/files/acme/skills/main/skills/word/SKILL.md" => DOCUMENT.into_response(),
        "/files/acme/skills/main/skills/page/SKILL.md" => "<html>sign in</html>".into_response(),
        "/files/acme/skills/main/skills/endless/SKILL.md" | "/api/search?q=endless&limit=20" => endless(),
        // A loopback address that nobody named, of another family.
        "/files/acme/skills/main/skills/inside/SKILL.md" => Redirect::temporary("http://127.0.0.2:1/").into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// An answer that begins well and never ends.
fn endless() -> Response {
    let begin = futures::stream::once(async { bytes::Bytes::from_static(DOCUMENT.as_bytes()) });
    let more = futures::stream::repeat_with(|| bytes::Bytes::from_static(&[b' '; 1 << 13]));
    let parts = begin.chain(more).map(Ok::<_, std::convert::Infallible>);
    axum::body::Body::from_stream(parts).into_response()
}

/// A gateway whose catalog is a server of this test, with a variable of its environment.
async fn start_with(catalog: &str, more: &[&str], variable: (&str, &str)) -> (Served, Asked) {
    let asked = Asked::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let site = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(Arc::clone(&asked));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let (api, files) = (format!("{site}/api"), format!("{site}/files/"));
    let mut arguments = vec!["--catalog", catalog, "--catalog-url", &api];
    if catalog == "skillssh" {
        arguments.extend(["--catalog-files-url", &files]);
    }
    arguments.extend(more);
    (Served::with(SCRIPT, &[], &arguments, &[variable]).await, asked)
}

/// A program with a catalog, and its key in a variable that is named.
async fn start(catalog: &str) -> (Served, Asked) {
    start_with(catalog, &["--catalog-key-env", KEY.0], KEY).await
}

#[tokio::test]
async fn the_key_of_one_catalog_does_not_go_to_the_other() {
    let (served, asked) = start_with("skillssh", &[], ("SKILLSMP_API_KEY", "of-skillsmp")).await;
    let path = "/api/skills/skillssh?q=plover+word";
    let found = served.call("GET", path, &Value::Null, "one").await;
    assert_eq!(found.0, 200, "{}", found.1);
    let search = "/api/search?q=plover%20word&limit=20".to_owned();
    assert_eq!(*asked.lock().unwrap(), [(search, String::new())]);
}

fn word() -> Value {
    json!({"name": "word", "description": "Says a plover word.", "source": "acme/skills", "skillId": "word"})
}

#[tokio::test]
async fn a_skill_of_a_catalog_is_found_installed_as_auto_and_served() {
    let (served, asked) = start("skillssh").await;
    let found = served
        .call("GET", "/api/skills/skillssh?q=plover+word", &Value::Null, "one")
        .await;
    let skill =
        json!({"id": "acme/skills/word", "skillId": "word", "name": "word", "installs": 7, "source": "acme/skills"});
    assert_eq!(found, (200, json!({"skills": [skill]})));
    assert!(served.chat("plover", "one", &[]).await.contains("nothing"));
    let (status, done) = served
        .call("POST", "/api/skills/skillssh/install", &word(), "one")
        .await;
    assert_eq!((status, &done["success"]), (200, &json!(true)), "{done}");
    // AUTO: where it scores, for whoever installed it.
    assert!(served.chat("plover", "one", &[]).await.contains("served"));
    assert!(served.chat("plover", "two", &[]).await.contains("nothing"));
    let path = format!("/api/skills/{}", done["id"].as_str().unwrap());
    let (_, row) = served.call("GET", &path, &Value::Null, "one").await;
    let shown = ["name", "version", "mode", "sourceProvider", "handler"].map(|member| &row[member]);
    assert_eq!(json!(shown), json!(["word", "1.0.0", "auto", "skillssh", DOCUMENT]));
    for (source, total) in [("skillssh", 1), ("skillsmp", 0), ("local", 0)] {
        let (_, list) = served
            .call("GET", &format!("/api/skills?source={source}"), &Value::Null, "one")
            .await;
        assert_eq!(list["total"], total, "{source}");
    }
    let again = served
        .call("POST", "/api/skills/skillssh/install", &word(), "one")
        .await;
    assert_eq!(again.0, 409, "{}", again.1);
    let mut newer = word();
    newer["version"] = "1.1.0".into();
    newer["dryRun"] = true.into();
    let (status, dry) = served.call("POST", "/api/skills/skillssh/install", &newer, "one").await;
    assert_eq!(
        (status, &dry["change"], &dry["id"]),
        (200, &json!("update"), &done["id"]),
        "{dry}"
    );
    assert_eq!(served.call("GET", &path, &Value::Null, "one").await.1, row);
    newer["dryRun"] = false.into();
    let (status, newer) = served.call("POST", "/api/skills/skillssh/install", &newer, "one").await;
    assert_eq!((status, &newer["id"]), (200, &done["id"]));
    // The key goes to the catalog's site, which is also that of the files here; the client's goes nowhere.
    let asked = asked.lock().unwrap();
    assert!(asked.iter().all(|(_, key)| key == "Bearer catalog-secret"), "{asked:?}");
}

#[tokio::test]
async fn what_a_catalog_must_not_do_is_refused_and_nothing_is_installed() {
    let (served, _) = start("skillssh").await;
    let install = async |member: &str, value: Value| {
        let mut body = word();
        body[member] = value;
        served.call("POST", "/api/skills/skillssh/install", &body, "one").await
    };
    for (member, value, status, says) in [
        ("skillId", json!("gone"), 404, "acme/skills has no skills/gone/SKILL.md"),
        ("skillId", json!("inside"), 502, "did not answer as expected"),
        ("skillId", json!("endless"), 502, "did not answer as expected"),
        ("skillId", json!("page"), 400, "SKILL.md: not a SKILL.md"),
        ("skillId", json!("../word"), 400, "skillId"),
        ("source", json!("http://127.0.0.1/x"), 400, "source"),
        ("name", json!(""), 400, "name"),
        ("description", json!("x".repeat(1025)), 400, "description"),
        ("version", json!("1"), 400, "version"),
        ("apiKeyId", json!("x"), 400, "apiKeyId"),
    ] {
        let (found, body) = install(member, value).await;
        let told = body["error"].as_str().unwrap_or_default();
        assert!(found == status && told.contains(says), "{member}: {found} {body}");
        assert!(!told.contains("127.0.0.2"), "{told}");
    }
    let mp = json!({"name": "word", "description": "d", "skillMdContent": DOCUMENT});
    let (status, body) = served.call("POST", "/api/skills/marketplace/install", &mp, "one").await;
    let told = body["error"].as_str().unwrap();
    assert!(status == 409 && told.contains("--catalog skillsmp"), "{status} {told}");
    for asked in ["page", "endless"] {
        let path = format!("/api/skills/skillssh?q={asked}");
        let page = served.call("GET", &path, &Value::Null, "one").await;
        assert_eq!(page.0, 502, "{asked}: {}", page.1);
    }
    // SkillsMP asks for a key, and the one that is there is the active catalog's.
    let other = served
        .call("GET", "/api/skills/marketplace?q=word", &Value::Null, "one")
        .await;
    assert!(
        other.0 == 400 && other.1["error"].as_str().unwrap().contains("--catalog-key-env"),
        "{other:?}"
    );
    assert_eq!(
        served.call("GET", "/api/skills/marketplace", &Value::Null, "").await.0,
        401
    );
    let (_, list) = served.call("GET", "/api/skills", &Value::Null, "one").await;
    assert_eq!(list["total"], 0, "{list}");
}

#[tokio::test]
async fn skillsmp_is_searched_with_its_key_and_installed_from_the_body() {
    let (served, asked) = start("skillsmp").await;
    let empty = served.call("GET", "/api/skills/marketplace", &Value::Null, "one").await;
    assert_eq!(empty, (200, json!({"skills": []})));
    let found = served
        .call("GET", "/api/skills/marketplace?q=plover%20word", &Value::Null, "one")
        .await;
    assert_eq!(
        found,
        (200, json!({"skills": [{"id": "1", "name": "word", "githubUrl": "u"}]}))
    );
    assert_eq!(
        *asked.lock().unwrap(),
        [(
            "/api/search?q=plover%20word".to_owned(),
            "Bearer catalog-secret".to_owned()
        )]
    );
    let body = json!({"name": "word", "description": "d", "skillMdContent": DOCUMENT, "sourceUrl": "https://x"});
    let (status, done) = served
        .call("POST", "/api/skills/marketplace/install", &body, "one")
        .await;
    assert_eq!(status, 200, "{done}");
    assert!(served.chat("plover", "one", &[]).await.contains("served"));
}
