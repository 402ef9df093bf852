//! What clients upload, and containers, in the shapes of both vendors (docs/files.md).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use knack_gateway::files::user_files::{Bounds, Clock};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::support::{Answer, Running, Start, client, start};

/// 2026-11-25, in seconds.
pub(crate) const BEGIN: i64 = 1_795_600_000;

/// A clock that a test sets.
#[derive(Clone)]
pub(crate) struct Hand(Arc<AtomicI64>);

impl Hand {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(BEGIN)))
    }

    pub(crate) fn clock(&self) -> Clock {
        let seconds = Arc::clone(&self.0);
        Arc::new(move || Timestamp::from_second(seconds.load(Ordering::Relaxed)).unwrap())
    }

    pub(crate) fn pass(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

/// A gateway that keeps uploads, without a sandbox.
pub(crate) async fn keeping(bounds: Bounds, hand: &Hand) -> Running {
    start(Start {
        user_files: Some((bounds, hand.clock())),
        ..Start::default()
    })
    .await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    General,
    Beta,
    OpenAi,
}

const DIALECTS: [Dialect; 3] = [Dialect::General, Dialect::Beta, Dialect::OpenAi];

/// One client.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) knack: &'a Running,
    pub(crate) dialect: Dialect,
    pub(crate) key: &'a str,
}

pub(crate) type Part<'a> = (&'a str, Option<&'a str>, &'a [u8]);

pub(crate) fn form(parts: &[Part<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, file, content) in parts {
        let file = file.map(|file| format!("; filename=\"{file}\"")).unwrap_or_default();
        out.extend(format!("--BOUND\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").into_bytes());
        out.extend_from_slice(content);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"--BOUND--\r\n");
    out
}

impl<'a> Caller<'a> {
    pub(crate) fn new(knack: &'a Running, dialect: Dialect) -> Self {
        Self {
            knack,
            dialect,
            key: "key-a",
        }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = client().request(method, format!("{}{path}", self.knack.url));
        match self.dialect {
            Dialect::OpenAi => request.bearer_auth(self.key),
            Dialect::General => request
                .header("x-api-key", self.key)
                .header("anthropic-version", "2023-06-01"),
            Dialect::Beta => request
                .header("x-api-key", self.key)
                .header("anthropic-version", "2023-06-01")
                .header("anthropic-beta", "other-1,files-api-2025-04-14"),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.knack.send(self.request(Method::GET, path)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.knack.send(self.request(Method::DELETE, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        let request = self
            .request(Method::POST, path)
            .header("content-type", "application/json");
        self.knack.send(request.body(body.to_string())).await
    }

    pub(crate) async fn send_form(&self, path: &str, body: Vec<u8>) -> Answer {
        let request = self.request(Method::POST, path);
        let request = request.header("content-type", "multipart/form-data; boundary=BOUND");
        self.knack.send(request.body(body)).await
    }

    async fn upload_with(&self, name: &str, content: &[u8], more: &[Part<'_>]) -> Answer {
        let mut parts = vec![("file", Some(name), content)];
        if self.dialect == Dialect::OpenAi {
            parts.push(("purpose", None, b"user_data"));
        }
        parts.extend_from_slice(more);
        self.send_form("/v1/files", form(&parts)).await
    }

    pub(crate) async fn upload(&self, name: &str, content: &[u8]) -> String {
        let answer = self.upload_with(name, content, &[]).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["id"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn ids(list: &Value) -> Vec<String> {
    let data = list["data"].as_array().unwrap();
    data.iter()
        .map(|item| item["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_file_comes_is_read_and_goes_in_the_shapes_of_each_dialect_and_a_stranger_sees_nothing() {
    let knack = keeping(Bounds::default(), &Hand::new()).await;
    for dialect in DIALECTS {
        let caller = Caller::new(&knack, dialect);
        let stranger = Caller { key: "key-b", ..caller };
        let id = caller.upload("a folder/Data.CSV", b"a,b\n").await;
        assert!(id.starts_with("file_knack_"), "{id}");
        let line = knack.told("200 files POST /v1/files | ").await;
        assert!(!line.contains("skills:"), "{line}");
        let path = format!("/v1/files/{id}");
        let expected = match dialect {
            Dialect::OpenAi => json!({"id": id, "object": "file", "bytes": 4, "created_at": BEGIN,
                "expires_at": BEGIN + 24 * 3600, "filename": "Data.CSV", "purpose": "user_data", "status": "processed"}),
            _ => json!({"id": id, "type": "file", "filename": "Data.CSV", "mime_type": "text/csv", "size_bytes": 4,
                "created_at": "2026-11-25T09:46:40Z", "downloadable": true, "expires_at": "2026-11-26T09:46:40Z"}),
        };
        assert_eq!(caller.get(&path).await.json(), expected);
        let list = match dialect {
            Dialect::General => json!({"data": [expected], "next_page": null}),
            Dialect::Beta => json!({"data": [expected], "first_id": id, "last_id": id, "has_more": false}),
            Dialect::OpenAi => {
                json!({"object": "list", "data": [expected], "first_id": id, "last_id": id, "has_more": false})
            }
        };
        assert_eq!(caller.get("/v1/files").await.json(), list);
        let content = caller.get(&format!("{path}/content")).await;
        assert_eq!(
            (content.text.as_str(), &content.headers["content-type"]),
            ("a,b\n", &"text/csv".parse().unwrap())
        );
        assert_eq!(content.headers["content-disposition"], "attachment");
        for (answer, what) in [
            (stranger.get(&path).await, "get"),
            (stranger.get(&format!("{path}/content")).await, "content"),
            (stranger.delete(&path).await, "delete"),
        ] {
            assert_eq!(answer.status, 404, "{what}: {}", answer.text);
            let kind = &answer.json()["error"]["type"];
            let expected = if dialect == Dialect::OpenAi {
                "invalid_request_error"
            } else {
                "not_found_error"
            };
            assert_eq!(kind, expected, "{what}");
        }
        assert_eq!(ids(&stranger.get("/v1/files").await.json()), Vec::<String>::new());
        let deleted = match dialect {
            Dialect::OpenAi => json!({"id": id, "object": "file", "deleted": true}),
            _ => json!({"id": id, "type": "file_deleted"}),
        };
        assert_eq!(caller.delete(&path).await.json(), deleted);
        assert_eq!(caller.get(&path).await.status, 404);
        assert_eq!(caller.request(Method::PUT, &path).send().await.unwrap().status(), 405);
    }
    assert_eq!(knack.mock.handle.requests().len(), 0, "nothing went to the provider");
}

#[tokio::test]
async fn lists_have_pages_that_go_on_when_their_items_are_deleted() {
    let hand = Hand::new();
    let knack = keeping(Bounds::default(), &hand).await;
    let caller = Caller::new(&knack, Dialect::OpenAi);
    let mut made = Vec::new();
    for n in 0..5 {
        made.push(caller.upload(&format!("{n}.txt"), b"x").await);
        hand.pass(1);
    }
    let newest: Vec<String> = made.iter().rev().cloned().collect();
    let knack = caller.knack;
    let list = |dialect, query: String| async move {
        let answer = Caller::new(knack, dialect).get(&format!("/v1/files?{query}")).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text);
        (ids(&answer.json()), answer.json())
    };
    let (first, body) = list(Dialect::OpenAi, "limit=2".to_owned()).await;
    assert_eq!((&first[..], &body["has_more"]), (&newest[..2], &json!(true)));
    let (all, _) = list(Dialect::OpenAi, "order=asc&limit=9".to_owned()).await;
    assert_eq!(all, made);
    let (first, body) = list(Dialect::General, "limit=2".to_owned()).await;
    assert_eq!(first, newest[..2]);
    let page = body["next_page"].as_str().unwrap().to_owned();
    let (second, _) = list(Dialect::General, format!("limit=2&page={page}")).await;
    assert_eq!(second, newest[2..4]);
    let (named, body) = list(
        Dialect::General,
        format!("ids%5B%5D={}&ids[]={}&ids[]=file_01", made[0], made[3]),
    )
    .await;
    assert_eq!(
        (named, &body["next_page"]),
        (vec![made[3].clone(), made[0].clone()], &Value::Null)
    );
    let (before, body) = list(Dialect::Beta, format!("limit=2&before_id={}", made[0])).await;
    assert_eq!((&before[..], &body["has_more"]), (&newest[2..4], &json!(true)));
    // A client that deletes what it lists.
    caller.delete(&format!("/v1/files/{}", newest[1])).await;
    let (rest, body) = list(Dialect::Beta, format!("limit=9&after_id={}", newest[1])).await;
    assert_eq!((&rest[..], &body["has_more"]), (&newest[2..], &json!(false)));
    assert_eq!(
        list(Dialect::OpenAi, "purpose=assistants".to_owned()).await.0,
        Vec::<String>::new()
    );
    for (dialect, query) in [
        (Dialect::OpenAi, "limit=0"),
        (Dialect::OpenAi, "order=up"),
        (Dialect::OpenAi, "after=file_9"),
        (Dialect::General, "limit=1001"),
        (Dialect::General, "page=file_9"),
        (Dialect::Beta, "after_id=file_9"),
        (Dialect::Beta, "before_id=file_9"),
        (Dialect::Beta, "scope_id=s"),
    ] {
        let answer = Caller::new(knack, dialect).get(&format!("/v1/files?{query}")).await;
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, error["type"].as_str()),
            (400, Some("invalid_request_error")),
            "{query}"
        );
        let (parameter, _) = query.split_once('=').unwrap();
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{parameter}: ")), "{query}: {message}");
    }
}

/// A form with a file of a type.
fn typed(subtype: &str) -> Vec<u8> {
    let file = format!(
        "--BOUND\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\nContent-Type: x/{subtype}\r\n\r\ny\r\n"
    );
    [file.into_bytes(), form(&[("purpose", None, b"user_data")])].concat()
}

#[tokio::test]
async fn forms_that_are_no_upload_are_refused_by_name() {
    let knack = keeping(Bounds::default(), &Hand::new()).await;
    let caller = Caller::new(&knack, Dialect::OpenAi);
    let purpose: Part<'_> = ("purpose", None, b"user_data");
    let file: Part<'_> = ("file", Some("a.txt"), b"x");
    let whole = form(&[purpose, file]);
    for (body, said) in [
        (whole[..whole.len() - 20].to_vec(), "cannot be read"),
        (form(&[purpose]), "no file received"),
        (form(&[purpose, file, file]), "one file"),
        (form(&[purpose, ("file", None, b"x")]), "no filename"),
        (form(&[purpose, ("file", Some("a/.."), b"x")]), "no file name"),
        (form(&[file]), "purpose is missing"),
        (form(&[file, ("purpose", None, b"batch")]), "is for the provider"),
        (
            form(&[file, purpose, ("expires_after[seconds]", None, b"7200")]),
            "anchor must be created_at",
        ),
        (
            form(&[
                file,
                purpose,
                ("expires_after[anchor]", None, b"created_at"),
                ("expires_after[seconds]", None, b"9"),
            ]),
            "seconds must be from 3600",
        ),
        (
            form(&[file, purpose, ("expires_after[anchor]", None, b"created_at")]),
            "seconds must be from 3600",
        ),
        (form(&[file, purpose, ("x", None, &[0xff])]), "fields besides its file"),
        (
            form(&[file, purpose, (&"x".repeat(5000), None, b"y")]),
            "fields besides its file",
        ),
        (typed(&"x".repeat(256)), "longer than 255 bytes"),
        (b"nothing".to_vec(), "cannot be read"),
    ] {
        let answer = caller.send_form("/v1/files", body).await;
        assert_eq!(answer.status, 400, "{said}: {}", answer.text);
        assert!(answer.text.contains(said), "{said}: {}", answer.text);
    }
    let longest = caller.send_form("/v1/files", typed(&"x".repeat(253))).await;
    assert_eq!(longest.status, 200, "{}", longest.text);
    let id = longest.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(caller.delete(&format!("/v1/files/{id}")).await.status, 200);
    let answer = caller.post("/v1/files", &json!({})).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    let anthropic = Caller::new(&knack, Dialect::General);
    let answer = anthropic
        .upload_with("a", b"x", &[("expires_in_seconds", None, b"soon")])
        .await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert_eq!(ids(&caller.get("/v1/files").await.json()), Vec::<String>::new());
}

#[tokio::test]
async fn bounds_hold_for_each_file_and_caller_and_for_all() {
    let bounds = Bounds {
        file_bytes: 10,
        caller_bytes: 16,
        caller_files: 3,
        bytes: 20,
        container_files: 1,
        container_bytes: 8,
        caller_containers: 2,
        ..Bounds::default()
    };
    let knack = keeping(bounds, &Hand::new()).await;
    let caller = Caller::new(&knack, Dialect::General);
    let other = Caller { key: "key-b", ..caller };
    let status = |answer: Answer| (answer.status, answer.headers.get("x-should-retry").is_some());
    let large = caller.upload_with("a", &[0; 11], &[]).await;
    assert_eq!(large.json()["error"]["type"], "request_too_large");
    assert_eq!(status(large), (413, true));
    let first = caller.upload("a", &[0; 10]).await;
    assert_eq!(
        status(caller.upload_with("b", &[0; 10], &[]).await),
        (507, true),
        "bytes of the caller"
    );
    assert_eq!(status(other.upload_with("b", &[0; 10], &[]).await).0, 200);
    assert_eq!(
        status(caller.upload_with("b", &[0; 1], &[]).await),
        (507, true),
        "bytes of all"
    );
    caller.delete(&format!("/v1/files/{first}")).await;
    for n in 0..3 {
        caller.upload(&n.to_string(), &[0; 1]).await;
    }
    assert_eq!(
        status(caller.upload_with("4", &[0; 1], &[]).await),
        (507, true),
        "count of the caller"
    );
    let openai = Caller::new(&knack, Dialect::OpenAi);
    let mut made = Vec::new();
    for n in 0..3 {
        let answer = openai.post("/v1/containers", &json!({"name": n.to_string()})).await;
        made.push(answer.json()["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(
        openai.get(&format!("/v1/containers/{}", made[0])).await.status,
        404,
        "the oldest went for the newest"
    );
    let files = format!("/v1/containers/{}/files", made[2]);
    let add = |name: &'static str, size: usize| {
        let (files, content) = (files.clone(), vec![0; size]);
        async move {
            openai
                .send_form(&files, form(&[("file", Some(name), &content)]))
                .await
                .status
        }
    };
    assert_eq!(add("a", 9).await, 507, "bytes of a container");
    assert_eq!(add("a", 4).await, 200);
    assert_eq!(add("a", 5).await, 200, "the same path again");
    assert_eq!(add("b", 1).await, 507, "files of a container");
    assert_eq!(ids(&openai.get(&files).await.json()).len(), 1);
}

#[tokio::test]
async fn what_has_expired_is_gone_and_is_reported_as_expired() {
    let hand = Hand::new();
    let knack = keeping(Bounds::default(), &hand).await;
    let (caller, openai) = (
        Caller::new(&knack, Dialect::General),
        Caller::new(&knack, Dialect::OpenAi),
    );
    let short = caller
        .upload_with("a", b"x", &[("expires_in_seconds", None, b"3600")])
        .await
        .json();
    assert_eq!(short["expires_at"], "2026-11-25T10:46:40Z");
    let more = [
        ("expires_after[anchor]", None, &b"created_at"[..]),
        ("expires_after[seconds]", None, b"2592000"),
    ];
    let long = openai.upload_with("b", b"x", &more).await.json();
    assert_eq!(long["expires_at"], BEGIN + 24 * 3600, "within the bound");
    let container = openai
        .post(
            "/v1/containers",
            &json!({"name": "n", "expires_after": {"anchor": "last_active_at", "minutes": 5}}),
        )
        .await;
    let container = format!("/v1/containers/{}", container.json()["id"].as_str().unwrap());
    hand.pass(299);
    let used = openai
        .send_form(&format!("{container}/files"), form(&[("file", Some("a"), b"x")]))
        .await;
    assert_eq!(used.status, 200, "{}", used.text);
    hand.pass(299);
    assert_eq!(openai.get(&container).await.json()["last_active_at"], BEGIN + 299);
    hand.pass(1);
    let gone = openai.get(&container).await;
    assert_eq!(
        (gone.status, gone.text.contains("has expired")),
        (404, true),
        "{}",
        gone.text
    );
    hand.pass(3001);
    let path = format!("/v1/files/{}", short["id"].as_str().unwrap());
    for path in [path.clone(), format!("{path}/content")] {
        let answer = caller.get(&path).await;
        assert_eq!(
            (answer.status, &answer.json()["error"]["details"]["error_code"]),
            (404, &json!("file_expired")),
            "{}",
            answer.text
        );
        assert_eq!(openai.get(&path).await.json()["error"]["code"], "file_expired");
    }
    assert_eq!(caller.get(&path).await.json()["error"]["type"], "not_found_error");
    assert_eq!(
        ids(&caller.get("/v1/files").await.json()),
        [long["id"].as_str().unwrap()]
    );
    // A stranger is not told that it was there.
    let stranger = Caller { key: "key-b", ..openai };
    assert_eq!(stranger.get(&path).await.json()["error"]["code"], "not_found");
}

#[tokio::test]
async fn without_the_setting_all_of_it_is_the_providers() {
    let knack = start(Start::default()).await;
    let caller = Caller::new(&knack, Dialect::OpenAi);
    for (method, path) in [
        (Method::POST, "/v1/files"),
        (Method::GET, "/v1/files"),
        (Method::GET, "/v1/files/file-1/content"),
        (Method::POST, "/v1/containers"),
        (Method::GET, "/v1/containers/cntr_1/files"),
    ] {
        let before = knack.mock.handle.requests().len();
        caller.request(method.clone(), path).send().await.unwrap();
        assert_eq!(knack.mock.handle.requests().len(), before + 1, "{method} {path}");
    }
    let keeping = keeping(Bounds::default(), &Hand::new()).await;
    let caller = Caller::new(&keeping, Dialect::OpenAi);
    for path in ["/v1/files/file-1", "/v1/containers/cntr_1", "/v1/uploads"] {
        let before = keeping.mock.handle.requests().len();
        caller.get(path).await;
        assert_eq!(keeping.mock.handle.requests().len(), before + 1, "{path}");
    }
}
