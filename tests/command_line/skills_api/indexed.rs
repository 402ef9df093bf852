//! OmniRoute's search and install from an index of skills at an address that is named, which is a server of this test.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use futures::StreamExt as _;
use http::{StatusCode, Uri};
use knack_registry::zipped_content;
use knack_skill::digest::sha256;
use knack_skill::model::SkillFile;
use serde_json::{Value, json};

use super::Served;
use super::catalogs::SCRIPT;

const SCHEMA: &str = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";
const INSTALL: &str = "/api/skills/index/install";

fn document(name: &str) -> String {
    format!("---\nname: {name}\ndescription: Says a plover word.\ntags: [plover]\n---\nThe word is plover-120.\n")
}

/// A skill of two files, below a folder.
fn archive(below: &str) -> Vec<u8> {
    let file = |text: String| SkillFile {
        bytes: text.into_bytes().into(),
        executable: false,
    };
    let files = [
        (format!("{below}SKILL.md"), file(document("box"))),
        (format!("{below}more/words.txt"), file("plover".to_owned())),
    ];
    zipped_content(&BTreeMap::from(files)).unwrap()
}

/// A skill as large as Knack itself offers one, of files that cannot be compressed.
fn large() -> Vec<u8> {
    let file = |bytes: Vec<u8>| SkillFile {
        bytes: bytes.into(),
        executable: false,
    };
    let mut random = 1_u64;
    let mut noise = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        random.to_be_bytes()[0]
    };
    let files = [
        ("SKILL.md".to_owned(), file(document("large").into_bytes())),
        ("data.bin".to_owned(), file((0..3 << 20).map(|_| noise()).collect())),
    ];
    zipped_content(&BTreeMap::from(files)).unwrap()
}

/// What the site serves by path; beside it paths that do not end well.
type Files = BTreeMap<String, Vec<u8>>;

fn entry(name: &str, kind: &str, bytes: &[u8]) -> Value {
    json!({"name": name, "type": kind, "description": format!("The skill {name}."), "url": format!("/files/{name}"),
        "digest": format!("sha256:{}", sha256(bytes))})
}

fn site() -> Files {
    let (word, page, other) = (document("word"), "<html>sign in</html>", archive("else/"));
    let large = large();
    let entries = [
        entry("word", "skill-md", word.as_bytes()),
        entry("box", "archive", &archive("")),
        entry("lying", "skill-md", b"others"),
        entry("inside", "skill-md", b""),
        entry("endless", "skill-md", b""),
        entry("gone", "skill-md", b""),
        entry("page", "skill-md", page.as_bytes()),
        entry("other", "archive", &other),
        entry("broken", "archive", b"PK\x03\x04 and no more"),
        entry("odd", "bundle", b""),
        entry("large", "archive", &large),
    ];
    // As many and as long as Knack's own index may have them.
    let described = |number: usize| {
        let mut entry = entry(&format!("filler-{number}"), "skill-md", b"");
        entry["description"] = "d".repeat(1_024).into();
        entry
    };
    let entries: Vec<Value> = entries.into_iter().chain((0..980).map(described)).collect();
    let index = |schema: &str| json!({"$schema": schema, "skills": entries}).to_string();
    let files = [
        ("/.well-known/agent-skills/index.json", index(SCHEMA).into_bytes()),
        (
            "/old.json",
            index("https://schemas.agentskills.io/discovery/9/schema.json").into_bytes(),
        ),
        ("/list.json", json!([{"name": "word"}]).to_string().into_bytes()),
        ("/page.json", page.into()),
        ("/files/word", word.into_bytes()),
        ("/files/box", archive("")),
        ("/files/lying", document("lying").into_bytes()),
        ("/files/page", page.into()),
        ("/files/other", other),
        ("/files/large", large),
        ("/files/broken", b"PK\x03\x04 and no more".to_vec()),
    ];
    files
        .into_iter()
        .map(|(path, bytes)| (path.to_owned(), bytes))
        .collect()
}

async fn answer(State(files): State<Arc<Files>>, uri: Uri) -> Response {
    match uri.path() {
        "/inside.json" | "/files/inside" => Redirect::temporary("http://127.0.0.2:1/").into_response(),
        "/endless.json" | "/files/endless" => {
            let parts = futures::stream::repeat_with(|| bytes::Bytes::from_static(&[b' '; 1 << 13]));
            axum::body::Body::from_stream(parts.map(Ok::<_, std::convert::Infallible>)).into_response()
        }
        path => match files.get(path) {
            Some(bytes) => bytes.clone().into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        },
    }
}

/// A gateway whose catalog is the index at a path of the site.
async fn start(path: &str) -> Served {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}{path}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(Arc::new(site()));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Served::with(SCRIPT, &[], &["--catalog", "index", "--catalog-url", &url], &[]).await
}

async fn install(served: &Served, body: &Value) -> (u16, Value) {
    served.call("POST", INSTALL, body, "one").await
}

#[tokio::test]
async fn skills_of_an_index_are_found_and_installed_as_one_file_or_an_archive() {
    let served = start("/").await;
    let (status, found) = served
        .call("GET", "/api/skills/index?q=WORD", &Value::Null, "one")
        .await;
    assert_eq!(
        (status, found["skills"].as_array().map(Vec::len)),
        (200, Some(1)),
        "{found}"
    );
    let skill = &found["skills"][0];
    assert_eq!(
        (&skill["name"], &skill["type"]),
        (&json!("word"), &json!("skill-md")),
        "{found}"
    );
    let (_, all) = served
        .call("GET", "/api/skills/index?limit=3", &Value::Null, "one")
        .await;
    assert_eq!(all["skills"].as_array().map(Vec::len), Some(3), "{all}");

    assert!(served.chat("plover", "one", &[]).await.contains("nothing"));
    let mut body = json!({"name": "word", "digest": skill["digest"], "dryRun": true});
    let (status, dry) = install(&served, &body).await;
    assert_eq!(
        (status, &dry["change"], &dry["mode"]["to"]),
        (200, &json!("create"), &json!("auto")),
        "{dry}"
    );
    body["dryRun"] = false.into();
    let (status, done) = install(&served, &body).await;
    assert_eq!((status, &done["success"]), (200, &json!(true)), "{done}");
    assert!(served.chat("plover", "one", &[]).await.contains("served"));
    assert!(served.chat("plover", "two", &[]).await.contains("nothing"));

    let (status, done) = install(&served, &json!({"name": "box", "version": "2.0.0"})).await;
    assert_eq!(status, 200, "{done}");
    let (_, list) = served
        .call("GET", "/api/skills?source=index", &Value::Null, "one")
        .await;
    assert_eq!(list["total"], 2, "{list}");
    let path = format!("/v1/skills/{}", done["id"].as_str().unwrap());
    assert_eq!(served.call("GET", &path, &Value::Null, "one").await.0, 200);
    let path = format!("/api/skills/{}", done["id"].as_str().unwrap());
    let (_, row) = served.call("GET", &path, &Value::Null, "one").await;
    let shown = ["name", "version", "mode", "sourceProvider"].map(|member| &row[member]);
    assert_eq!(json!(shown), json!(["box", "2.0.0", "auto", "index"]));
    let (status, done) = install(&served, &json!({"name": "large"})).await;
    assert_eq!(status, 200, "{done}");
    // The other file of the archive came with it.
    let (status, dry) = install(&served, &json!({"name": "box", "version": "2.1.0", "dryRun": true})).await;
    assert_eq!((status, &dry["digest"]["from"]), (200, &dry["digest"]["to"]), "{dry}");
    assert_eq!(
        install(&served, &json!({"name": "box", "version": "2.0.0"})).await.0,
        409
    );
}

#[tokio::test]
async fn what_an_index_must_not_do_is_refused_and_nothing_is_installed() {
    let served = start("/").await;
    let promised = format!("sha256:{}", "0".repeat(64));
    for (body, status, says) in [
        (json!({"name": "lying"}), 502, "nothing was installed"),
        (json!({"name": "inside"}), 502, "did not answer as expected"),
        (json!({"name": "endless"}), 502, "did not answer as expected"),
        (json!({"name": "gone"}), 502, "did not answer as expected"),
        (json!({"name": "page"}), 400, "the file of page"),
        (json!({"name": "other"}), 400, "\"else\""),
        (json!({"name": "broken"}), 400, "the file of broken"),
        (json!({"name": "odd"}), 400, "type"),
        (json!({"name": "missing"}), 404, "the index has no skill missing"),
        (json!({"name": "../word"}), 404, "the index has no skill"),
        (json!({"name": "word", "digest": promised}), 409, "by now"),
        (json!({"name": "word", "version": "1"}), 400, "version"),
        (json!({"name": "word", "source": "a/b"}), 400, "source"),
        (json!({}), 400, "name"),
    ] {
        let (found, answer) = install(&served, &body).await;
        let told = answer["error"].as_str().unwrap_or_default();
        assert!(found == status && told.contains(says), "{body}: {found} {answer}");
        assert!(!told.contains("127.0.0.2"), "{told}");
    }
    let sh = json!({"name": "word", "description": "d", "source": "a/b", "skillId": "word"});
    let (status, told) = served.call("POST", "/api/skills/skillssh/install", &sh, "one").await;
    assert!(
        status == 409 && told["error"].as_str().unwrap().contains("--catalog skillssh"),
        "{told}"
    );
    assert_eq!(served.call("GET", "/api/skills/index", &Value::Null, "").await.0, 401);
    let (_, list) = served.call("GET", "/api/skills", &Value::Null, "one").await;
    assert_eq!(list["total"], 0, "{list}");
}

#[tokio::test]
async fn answer_that_is_no_index_is_a_502() {
    for path in [
        "/page.json",
        "/list.json",
        "/old.json",
        "/endless.json",
        "/inside.json",
        "/gone.json",
    ] {
        let served = start(path).await;
        for (status, answer) in [
            served
                .call("GET", "/api/skills/index?q=word", &Value::Null, "one")
                .await,
            install(&served, &json!({"name": "word"})).await,
        ] {
            let told = answer["error"].as_str().unwrap_or_default();
            assert!(
                status == 502 && told.contains("did not answer as expected"),
                "{path}: {status} {answer}"
            );
            assert!(!told.contains("127.0.0"), "{told}");
        }
    }
}
