//! What clients upload, and containers, in the shapes of both vendors (docs/files.md).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use knack_gateway::user_files::{Bounds, Clock};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::support::{Answer, Running, Start, client, start};
use super::talk::{Format, Talk};

const SCRIPT: &str = r#"
provider: {code_tools: false}
turns:
  - user: read it
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "print(open('inputs/data.csv').read())"}}]}
      - reply: {text: "{{results}}"}
  - user: write it
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "import os\nprint(sorted(name for name in os.listdir('.') if name[0] != '.' and name != 'skills'))\nopen('made.txt', 'a').write('made;')"}}]}
      - reply: {text: "{{results}}"}
  - repeat_last: true
    rounds:
      - reply: {text: "You said: {{user}}"}
"#;
/// 2026-11-25, in seconds.
const BEGIN: i64 = 1_795_600_000;

/// A clock that a test sets.
#[derive(Clone)]
struct Hand(Arc<AtomicI64>);

impl Hand {
    fn new() -> Self {
        Self(Arc::new(AtomicI64::new(BEGIN)))
    }

    fn clock(&self) -> Clock {
        let seconds = Arc::clone(&self.0);
        Arc::new(move || Timestamp::from_second(seconds.load(Ordering::Relaxed)).unwrap())
    }

    fn pass(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

/// A gateway that keeps uploads, without a sandbox.
async fn keeping(bounds: Bounds, hand: &Hand) -> Running {
    start(Start {
        user_files: Some((bounds, hand.clock())),
        ..Start::default()
    })
    .await
}

/// The same with a sandbox and a provider without tools that run programs.
async fn running() -> Running {
    start(Start {
        script: SCRIPT.to_owned(),
        executor: Arc::new(super::runner::executor(1).await),
        user_files: Some((Bounds::default(), Hand::new().clock())),
        ..Start::default()
    })
    .await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    General,
    Beta,
    OpenAi,
}

const DIALECTS: [Dialect; 3] = [Dialect::General, Dialect::Beta, Dialect::OpenAi];

/// One client.
#[derive(Clone, Copy)]
struct Caller<'a> {
    knack: &'a Running,
    dialect: Dialect,
    key: &'a str,
}

type Part<'a> = (&'a str, Option<&'a str>, &'a [u8]);

fn form(parts: &[Part<'_>]) -> Vec<u8> {
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
    fn new(knack: &'a Running, dialect: Dialect) -> Self {
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

    async fn get(&self, path: &str) -> Answer {
        self.knack.send(self.request(Method::GET, path)).await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.knack.send(self.request(Method::DELETE, path)).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        let request = self
            .request(Method::POST, path)
            .header("content-type", "application/json");
        self.knack.send(request.body(body.to_string())).await
    }

    async fn send_form(&self, path: &str, body: Vec<u8>) -> Answer {
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

    async fn upload(&self, name: &str, content: &[u8]) -> String {
        let answer = self.upload_with(name, content, &[]).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["id"].as_str().unwrap().to_owned()
    }
}

fn ids(list: &Value) -> Vec<String> {
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
        (Dialect::Beta, "scope_id=s"),
    ] {
        let answer = Caller::new(knack, dialect).get(&format!("/v1/files?{query}")).await;
        assert_eq!(
            (answer.status, answer.json()["error"]["type"].as_str()),
            (400, Some("invalid_request_error")),
            "{query}"
        );
    }
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
        (form(&[purpose]), "no file came"),
        (form(&[purpose, file, file]), "one file"),
        (form(&[purpose, ("file", None, b"x")]), "no filename"),
        (form(&[purpose, ("file", Some("a/.."), b"x")]), "no name"),
        (form(&[file]), "purpose is missing"),
        (form(&[file, ("purpose", None, b"batch")]), "is for the provider"),
        (
            form(&[file, purpose, ("expires_after[seconds]", None, b"7200")]),
            "the anchor is created_at",
        ),
        (
            form(&[
                file,
                purpose,
                ("expires_after[anchor]", None, b"created_at"),
                ("expires_after[seconds]", None, b"9"),
            ]),
            "seconds from 3600",
        ),
        (form(&[file, purpose, ("x", None, &[0xff])]), "fields beside its file"),
        (b"nothing".to_vec(), "cannot be read"),
    ] {
        let answer = caller.send_form("/v1/files", body).await;
        assert_eq!(answer.status, 400, "{said}: {}", answer.text);
        assert!(answer.text.contains(said), "{said}: {}", answer.text);
    }
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
async fn what_has_expired_is_gone_and_is_said_to_have_expired() {
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
    hand.pass(3000);
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

/// A conversation that names an upload in the format's own part.
fn naming(row: (Format, bool), text: &str, id: &str) -> Talk {
    let mut talk = Talk::plain(row, text);
    talk.history[0] = match row.0 {
        Format::Messages => json!({"role": "user", "content": [{"type": "text", "text": text},
            {"type": "container_upload", "file_id": id}]}),
        Format::Responses => json!({"role": "user", "content": [{"type": "input_text", "text": text},
            {"type": "input_file", "file_id": id}]}),
        _ => json!({"role": "user", "content": [{"type": "text", "text": text},
            {"type": "file", "file": {"file_id": id}}]}),
    };
    talk
}

#[tokio::test]
async fn runs_read_an_upload_that_a_message_names_in_each_format() {
    let knack = running().await;
    let id = Caller::new(&knack, Dialect::OpenAi)
        .upload("data.csv", b"kumquat")
        .await;
    for format in [Format::Chat, Format::Messages, Format::Responses] {
        for stream in [false, true] {
            let mut talk = naming((format, stream), "read it", &id);
            let said = talk.hear(&knack).await.text;
            assert!(said.contains("kumquat"), "{format:?} {stream}: {said}");
            let sent = knack.upstream().to_string();
            assert!(
                !sent.contains("file_knack_") && sent.contains("inputs/data.csv"),
                "{sent}"
            );
            // The next turn names it again, as the history does.
            talk.say("hello");
            let said = talk.hear(&knack).await.text;
            assert!(said.contains("You said: hello"), "{said}");
        }
        let mut talk = naming((format, false), "read it", &id);
        talk.key = "key-b";
        let answer = talk.send(&knack).await;
        assert_eq!(answer.status, 404, "{}", answer.text);
        assert!(answer.text.contains("was not found"), "{}", answer.text);
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

#[tokio::test]
async fn what_only_the_provider_could_read_is_refused_with_what_to_do() {
    let knack = running().await;
    let id = Caller::new(&knack, Dialect::OpenAi).upload("data.pdf", b"x").await;
    let document = json!({"type": "document", "source": {"type": "file", "file_id": id}});
    let image = json!({"type": "input_image", "file_id": id});
    let messages = json!({"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": [document]}]});
    let responses = json!({"model": "gpt-x", "input": [{"role": "user", "content": [image]}]});
    for (format, body, said) in [
        (Format::Messages, messages, "container_upload"),
        (Format::Responses, responses, "input_file"),
    ] {
        let talk = Talk::plain((format, false), "");
        let answer = knack.send(talk.request(&knack.url, &body)).await;
        assert_eq!(
            (answer.status, answer.text.contains(said)),
            (400, true),
            "{}",
            answer.text
        );
    }
    assert_eq!(knack.mock.handle.requests().len(), 0);
}

#[tokio::test]
async fn a_container_is_made_filled_read_and_deleted() {
    let knack = keeping(Bounds::default(), &Hand::new()).await;
    let caller = Caller::new(&knack, Dialect::OpenAi);
    let stranger = Caller { key: "key-b", ..caller };
    let upload = caller.upload("a.csv", b"a,b").await;
    let made = caller
        .post(
            "/v1/containers",
            &json!({"name": "n", "memory_limit": "1g", "file_ids": [upload]}),
        )
        .await;
    let made = made.json();
    let id = made["id"].as_str().unwrap().to_owned();
    assert_eq!(
        made,
        json!({"id": id, "object": "container", "created_at": BEGIN, "name": "n", "status": "running",
            "last_active_at": BEGIN, "expires_after": {"anchor": "last_active_at", "minutes": 20},
            "network_policy": {"type": "disabled"}, "memory_limit": "1g"})
    );
    let path = format!("/v1/containers/{id}");
    let files = format!("{path}/files");
    let by_form = caller
        .send_form(&files, form(&[("file", Some("x/b.txt"), b"bee")]))
        .await
        .json();
    let by_id = caller.post(&files, &json!({"file_id": upload})).await.json();
    assert_eq!(by_form["path"], "/mnt/data/b.txt");
    let listed = caller.get(&format!("{files}?order=asc")).await.json();
    assert_eq!(
        (ids(&listed).len(), &listed["has_more"]),
        (2, &json!(false)),
        "a.csv is there once"
    );
    assert_eq!(
        by_id,
        json!({"id": by_id["id"], "object": "container.file", "container_id": id, "created_at": BEGIN, "bytes": 3,
            "path": "/mnt/data/a.csv", "source": "user"})
    );
    let file = format!("{files}/{}", by_form["id"].as_str().unwrap());
    assert_eq!(caller.get(&file).await.json(), by_form);
    assert_eq!(caller.get(&format!("{file}/content")).await.text, "bee");
    for path in [&path, &files, &file] {
        assert_eq!(stranger.get(path).await.status, 404, "{path}");
    }
    assert_eq!(caller.get("/v1/containers?name=n").await.json()["data"], json!([made]));
    assert_eq!(
        ids(&caller.get("/v1/containers?name=m").await.json()),
        Vec::<String>::new()
    );
    assert_eq!(caller.delete(&file).await.json()["deleted"], true);
    assert_eq!(caller.get(&file).await.status, 404);
    assert_eq!(caller.delete(&path).await.json()["object"], "container.deleted");
    assert_eq!(
        (caller.get(&path).await.status, caller.delete(&path).await.status),
        (404, 404)
    );
    for (body, said) in [
        (json!({}), "name"),
        (json!({"name": "n", "skills": [{}]}), "skills"),
        (
            json!({"name": "n", "network_policy": {"type": "allowlist"}}),
            "network_policy",
        ),
        (json!({"name": "n", "memory_limit": "3g"}), "memory_limit"),
        (
            json!({"name": "n", "expires_after": {"anchor": "x", "minutes": 1}}),
            "expires_after",
        ),
        (json!({"name": "n", "file_ids": ["file-1"]}), "file of the provider"),
    ] {
        let answer = caller.post("/v1/containers", &body).await;
        assert_eq!(
            (answer.status, answer.text.contains(said)),
            (400, true),
            "{body}: {}",
            answer.text
        );
    }
    let unknown = caller
        .post("/v1/containers", &json!({"name": "n", "file_ids": ["file_knack_0"]}))
        .await;
    assert_eq!(unknown.status, 404, "{}", unknown.text);
}

/// A Responses request with a tool that runs programs.
async fn ask(knack: &Running, stream: bool, tool: &Value) -> Vec<Value> {
    let mut talk = Talk::plain((Format::Responses, stream), "write it");
    let body = json!({"model": "gpt-x", "stream": stream, "input": "write it", "tools": [tool]});
    let answer = knack.send(talk.request(&knack.url, &body)).await;
    talk.take(&answer);
    talk.history
}

fn text_of(items: &[Value]) -> String {
    items.last().unwrap()["content"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_container_carries_files_from_the_runs_of_one_request_to_those_of_the_next() {
    let knack = running().await;
    let caller = Caller::new(&knack, Dialect::OpenAi);
    let upload = caller.upload("in.csv", b"x").await;
    for stream in [false, true] {
        let shell = |environment: Value| json!({"type": "shell", "environment": environment});
        let first = ask(
            &knack,
            stream,
            &shell(json!({"type": "container_auto", "file_ids": [upload]})),
        )
        .await;
        assert!(text_of(&first).contains("['in.csv']"), "{first:?}");
        let call = first.iter().find(|item| item["type"] == "shell_call").unwrap();
        assert_eq!(call["environment"]["type"], "container_reference", "{call}");
        let id = call["environment"]["container_id"].as_str().unwrap().to_owned();
        let files = caller.get(&format!("/v1/containers/{id}/files?order=asc")).await.json();
        let shown: Vec<(&str, &str)> = files["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|file| (file["path"].as_str().unwrap(), file["source"].as_str().unwrap()))
            .collect();
        assert_eq!(
            shown,
            [("/mnt/data/in.csv", "user"), ("/mnt/data/made.txt", "assistant")]
        );
        for tool in [
            shell(json!({"type": "container_reference", "container_id": id})),
            json!({"type": "code_interpreter", "container": id}),
        ] {
            let next = ask(&knack, stream, &tool).await;
            assert!(text_of(&next).contains("['in.csv', 'made.txt']"), "{next:?}");
            let sent = knack.upstream().to_string();
            assert!(
                !sent.contains("cntr_knack_") && !sent.contains("code_interpreter"),
                "{sent}"
            );
        }
        let made = ids(&files)[1].clone();
        assert_eq!(
            caller
                .get(&format!("/v1/containers/{id}/files/{made}/content"))
                .await
                .status,
            404,
            "replaced"
        );
        let files = caller.get(&format!("/v1/containers/{id}/files")).await.json();
        let content = caller
            .get(&format!("/v1/containers/{id}/files/{}/content", ids(&files)[0]))
            .await;
        assert_eq!(content.text, "made;made;made;");
    }
    let gone = json!({"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_knack_0"}});
    let body = json!({"model": "gpt-x", "input": "write it", "tools": [gone]});
    let talk = Talk::plain((Format::Responses, false), "");
    assert_eq!(knack.send(talk.request(&knack.url, &body)).await.status, 404);
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

#[tokio::test]
async fn the_container_of_an_answer_of_messages_carries_files_too() {
    let knack = running().await;
    let caller = Caller::new(&knack, Dialect::General);
    let upload = caller.upload("data.csv", b"x").await;
    let tools = json!([{"type": "code_execution_20250825", "name": "code_execution"}]);
    let content = json!([{"type": "text", "text": "write it"}, {"type": "container_upload", "file_id": upload}]);
    let mut container = Value::Null;
    for (turn, expected) in [(0, "['inputs']"), (1, "['inputs', 'made.txt']")] {
        let mut body = json!({"model": "claude-x", "max_tokens": 99, "tools": tools, "messages": [{"role": "user", "content": content}]});
        if turn == 1 {
            body["container"] = container["id"].clone();
        }
        let answer = knack.send(knack.messages(&body)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(answer.said().contains(expected), "{turn}: {}", answer.text);
        if turn == 1 {
            assert_eq!(answer.json()["container"]["id"], container["id"]);
        }
        container = answer.json()["container"].clone();
        assert!(
            container["id"].as_str().unwrap().starts_with("container_knack_"),
            "{container}"
        );
        assert_eq!(container["expires_at"], "2026-11-25T10:06:40Z");
    }
    // What a run made is in the list of files, and can be deleted.
    let files = caller.get("/v1/files").await.json();
    let made = files["data"]
        .as_array()
        .unwrap()
        .iter()
        .find(|file| file["filename"] == "made.txt");
    let made = format!("/v1/files/{}", made.unwrap()["id"].as_str().unwrap());
    assert_eq!(caller.delete(&made).await.json()["type"], "file_deleted");
    assert_eq!(caller.get(&made).await.status, 404);
}
