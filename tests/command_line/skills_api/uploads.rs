//! Uploads under load and against their bounds: none is lost, and each refusal has the shape of the API that was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use knack_registry::{Files, zipped};
use knack_skill::model::SkillFile;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Served, form};

const SCRIPT: &str = "turns:\n  - rounds:\n      - reply: {text: hi}\n";
/// Over the bound of a request body.
const TOO_MANY_BYTES: usize = 33 << 20;
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_mins(1);

fn archive(name: &str, text: &str) -> Vec<u8> {
    let document = format!("---\nname: {name}\ndescription: Says a word. Use when asked for it.\n---\n{text}\n");
    let file = SkillFile {
        bytes: document.into_bytes().into(),
        executable: false,
    };
    zipped(name, &Files::from([("SKILL.md".to_owned(), file)])).unwrap()
}

/// Sends a zip to a path of OpenAI's API.
async fn send(served: &Served, path: &str, zip: Vec<u8>) -> (u16, Value) {
    served
        .send_form(path, form(&[], Some(("skill.zip", &zip))), "one")
        .await
}

/// Every skill of the caller by its id, over pages.
async fn listed(served: &Served, limit: usize) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut after = String::new();
    loop {
        let path = format!("/v1/skills?limit={limit}{after}");
        let (status, page) = served.call("GET", &path, &Value::Null, "one").await;
        assert_eq!(status, 200, "{page}");
        for skill in page["data"].as_array().unwrap() {
            let text = |member: &str| skill[member].as_str().unwrap().to_owned();
            assert_eq!(all.insert(text("id"), text("name")), None, "once");
        }
        if page["has_more"] == false {
            return all;
        }
        after = format!("&after={}", page["last_id"].as_str().unwrap());
    }
}

#[tokio::test]
async fn of_a_hundred_uploads_at_once_none_is_lost() {
    let served = Served::start(SCRIPT, &[]).await;
    let names: Vec<String> = (0..100).map(|number| format!("word-{number}")).collect();
    let sent = names
        .iter()
        .map(|name| send(&served, "/v1/skills", archive(name, name)));
    let mut made = BTreeMap::new();
    for ((status, skill), name) in join_all(sent).await.into_iter().zip(&names) {
        assert_eq!((status, &skill["name"]), (200, &json!(name)), "{skill}");
        made.insert(skill["id"].as_str().unwrap().to_owned(), name.clone());
    }
    assert_eq!(listed(&served, 30).await, made);

    // What was answered is on the disk: without any warning, as a machine ends.
    let Served {
        mut program,
        client,
        registry,
    } = served;
    program.kill().await;
    let program = Served::program(SCRIPT, &[], &registry, (&[], &[])).await;
    let served = Served {
        program,
        client,
        registry,
    };
    assert_eq!(listed(&served, 100).await, made);
    for (id, name) in &made {
        let request = served
            .client
            .get(format!("{}/v1/skills/{id}/content", served.program.url));
        let content = request.bearer_auth("one").send().await.unwrap().bytes().await.unwrap();
        assert_eq!(content, archive(name, name), "{name}");
    }
}

#[tokio::test]
async fn each_of_many_writers_gets_a_number_or_a_conflict_that_names_the_first() {
    let served = Served::start(SCRIPT, &[]).await;
    let sent = (0..10).map(|number| send(&served, "/v1/skills", archive("word", &format!("{number}"))));
    let answers = join_all(sent).await;
    let (made, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(status, _)| *status == 200);
    assert_eq!((made.len(), refused.len()), (1, 9));
    let id = made[0].1["id"].as_str().unwrap();
    for (status, body) in refused {
        assert_eq!((status, &body["error"]["param"]), (409, &json!("name")), "{body}");
        assert!(body["error"]["message"].as_str().unwrap().contains(id), "{body}");
    }
    let path = format!("/v1/skills/{id}/versions");
    let sent = (0..10).map(|number| send(&served, &path, archive("word", &format!("more {number}"))));
    let numbers: BTreeSet<String> = join_all(sent)
        .await
        .into_iter()
        .map(|(status, version)| {
            assert_eq!(status, 200, "{version}");
            version["version"].as_str().unwrap().to_owned()
        })
        .collect();
    let expected: BTreeSet<String> = (2..12).map(|number: u32| number.to_string()).collect();
    assert_eq!(numbers, expected);
}

/// A token of a page names an item, which may be gone when the next page is asked for.
#[tokio::test]
async fn pages_go_on_behind_a_skill_that_is_gone() {
    let served = Served::start(SCRIPT, &[]).await;
    let mut ids = Vec::new();
    for number in 0..5 {
        let name = format!("word-{number}");
        let (_, skill) = send(&served, "/v1/skills", archive(&name, &name)).await;
        ids.push(skill["id"].as_str().unwrap().to_owned());
    }
    let page = async |query: &str, version: Option<&str>| {
        let mut request = served
            .client
            .get(format!("{}/v1/skills?limit=2{query}", served.program.url));
        if let Some(version) = version {
            request = request.header("anthropic-version", version);
        }
        let (status, page) = served.send(request, "one").await;
        assert_eq!(status, 200, "{page}");
        let data = page["data"].as_array().unwrap();
        let ids: Vec<String> = data
            .iter()
            .map(|skill| skill["id"].as_str().unwrap().to_owned())
            .collect();
        (ids, page)
    };
    for version in [None, Some("2023-06-01")] {
        let (first, body) = page("", version).await;
        assert_eq!(first, [ids[ids.len() - 1].clone(), ids[ids.len() - 2].clone()]);
        let next = match version {
            None => format!("&after={}", first[1]),
            Some(_) => format!("&page={}", body["next_page"].as_str().unwrap()),
        };
        let (status, _) = served
            .call("DELETE", &format!("/v1/skills/{}", first[1]), &Value::Null, "one")
            .await;
        assert_eq!(status, 200);
        ids.remove(ids.len() - 2);
        let (second, _) = page(&next, version).await;
        assert_eq!(second[0], ids[ids.len() - 2], "{next}");
    }
}

/// What of an answer says the shape of its API.
fn told(api: &str, body: &Value) -> bool {
    match api {
        "agent flow" => body["detail"]["message"].is_string() && body["detail"]["field"].is_string(),
        "omniroute" => body["error"].is_string(),
        "anthropic" => body["type"] == "error" && body["request_id"].is_string(),
        _ => body["error"]["message"].is_string() && body["error"]["type"].is_string(),
    }
}

/// Sends a request by hand, of whose body no more comes than this, and reads the answer: an SDK would still be sending.
async fn by_hand(served: &Served, path: &str, headers: &str, (length, body): (usize, &str)) -> (String, Value) {
    let address = served.program.url.trim_start_matches("http://");
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer one\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server waits for more of the body before it closes the connection, so the end of the answer counts.
    let whole = async {
        let mut answer = Vec::new();
        while !answer.ends_with(b"}") && stream.read_buf(&mut answer).await.is_ok_and(|count| count > 0) {}
        answer
    };
    let answer = tokio::time::timeout(PATIENCE, whole).await.expect("an answer");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {answer}"));
    let body = serde_json::from_str(body).unwrap_or_else(|_| panic!("not JSON: {body}"));
    (head.to_ascii_lowercase(), body)
}

#[tokio::test]
async fn refused_body_is_answered_in_the_shape_of_its_api() {
    let served = Served::start(SCRIPT, &[]).await;
    let of_forms = "content-type: multipart/form-data; boundary=B\r\n";
    let anthropic = format!("{of_forms}anthropic-version: 2023-06-01\r\n");
    for (api, path, headers) in [
        ("openai", "/v1/skills", of_forms),
        ("anthropic", "/v1/skills", &anthropic),
        ("litellm", "/v1/skills?custom_llm_provider=litellm_proxy", of_forms),
        ("agent flow", "/api/v1/skills", "content-type: application/json\r\n"),
        ("omniroute", "/api/skills/install", "content-type: application/json\r\n"),
    ] {
        let (head, body) = by_hand(&served, path, headers, (TOO_MANY_BYTES, "")).await;
        assert!(head.starts_with("http/1.1 413 "), "{api}: {head}");
        assert!(told(api, &body), "{api}: {body}");
        assert!(body.to_string().contains("32 MiB"), "{api}: {body}");
        let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        let of_sdk = if api == "anthropic" {
            "request-id: "
        } else {
            "x-request-id: "
        };
        let named = header(of_sdk);
        assert!(
            named.is_some() && named == header("x-knack-request-id: "),
            "{api}: {head}"
        );
    }
}

#[tokio::test]
async fn json_that_nests_without_end_is_refused_by_every_api_that_takes_some() {
    let served = Served::start(SCRIPT, &[]).await;
    let (_, skill) = send(&served, "/v1/skills", archive("word", "x")).await;
    let default = format!("/v1/skills/{}", skill["id"].as_str().unwrap());
    for depth in [200, 100_000] {
        let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for (api, path, body) in [
            ("openai", default.as_str(), format!("{{\"default_version\": {deep}}}")),
            (
                "agent flow",
                "/api/v1/skills",
                format!("{{\"name\": \"ok\", \"content\": {deep}}}"),
            ),
            (
                "omniroute",
                "/api/skills/install",
                format!("{{\"name\": \"ok\", \"schema\": {deep}}}"),
            ),
            (
                "omniroute",
                "/api/skills/executions",
                format!("{{\"skillName\": \"word\", \"input\": {deep}}}"),
            ),
        ] {
            let request = served.client.post(format!("{}{path}", served.program.url));
            let request = request.header("content-type", "application/json").body(body);
            let (status, body) = served.send(request, "one").await;
            assert_eq!(status, 400, "{path} {depth}: {body}");
            assert!(told(api, &body), "{path} {depth}: {body}");
        }
        let fields = [
            ("display_title", "x"),
            ("instructions", "x"),
            ("metadata", deep.as_str()),
        ];
        let path = "/v1/skills?custom_llm_provider=litellm_proxy";
        let (status, body) = served.send_form(path, form(&fields, None), "one").await;
        assert_eq!((status, told("litellm", &body)), (400, true), "{depth}: {body}");
    }
    assert_eq!(
        listed(&served, 100).await.len(),
        1,
        "nothing is left of what was refused"
    );
}

/// A SKILL.md of any dialect: these uploads are listed, by a name and a description.
#[tokio::test]
async fn the_apis_of_vendors_take_no_activation_and_any_metadata() {
    let served = Served::start(SCRIPT, &[]).await;
    let zip = |name: &str, members: &str| {
        let document = format!("---\n{members}\n---\nSay it.\n");
        let file = SkillFile {
            bytes: document.into_bytes().into(),
            executable: false,
        };
        zipped(name, &Files::from([("SKILL.md".to_owned(), file)])).unwrap()
    };
    for (members, field) in [
        (
            "name: q\ndescription: d\nactivation: Always\ninputs: [{name: x}]",
            "activation",
        ),
        ("name: q\ndescription: d\nactivation: Never\nuser_id: me", "activation"),
        (
            "name: q\ndescription: d\nactivation: {mode: Auto}\ntool_env: [A]",
            "activation",
        ),
        ("name: q\ndescription: d\ntool_env: [A]\nenabled: false", "enabled"),
        ("name: q\ndescription: d\ninputs: [{name: x}]\nmode: auto", "mode"),
        ("name: q\ndescription: d\nactivation: Always", "activation"),
        ("description: d\ninputs: [{name: x}]", "name"),
        ("name: q\nuser_id: me", "description"),
        (
            "name: q\ndescription: d\nversion: \"1.0\"\ninputs: [{name: x}]",
            "version",
        ),
    ] {
        let (status, refused) = send(&served, "/v1/skills", zip("q", members)).await;
        assert_eq!(
            (status, &refused["error"]["param"]),
            (400, &json!(field)),
            "{members}: {refused}"
        );
    }
    // The example of the specification; keys of other dialects that say nothing of when the skill is shown.
    for (name, members) in [
        ("example", "metadata:\n  author: example-org\n  version: \"1.0\""),
        ("template", "inputs: [{name: x}]"),
        ("asks", "tool_env: [A]"),
    ] {
        let members = format!("name: {name}\ndescription: Says a word.\n{members}");
        let (status, created) = send(&served, "/v1/skills", zip(name, &members)).await;
        assert_eq!(status, 200, "{members}: {created}");
    }
    let (_, made) = send(&served, "/v1/skills", archive("word", "x")).await;
    let path = format!("/v1/skills/{}/versions", made["id"].as_str().unwrap());
    let always = zip(
        "word",
        "name: word\ndescription: d\nactivation: Always\ninputs: [{name: x}]",
    );
    assert_eq!(send(&served, &path, always).await.0, 400);
}

/// What is no zip is told so, in the words of an upload.
#[tokio::test]
async fn an_archive_of_another_kind_is_no_upload() {
    let served = Served::start(SCRIPT, &[]).await;
    for bytes in [&b"hello"[..], b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"] {
        let (status, refused) = send(&served, "/v1/skills", bytes.to_vec()).await;
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(status == 400 && message.contains("not a zip"), "{status} {message}");
    }
}

#[tokio::test]
async fn methods_and_paths_of_the_apis_are_those_of_http() {
    let served = Served::with(SCRIPT, &[], &["--files"], &[]).await;
    let (_, made) = send(&served, "/v1/skills", archive("word", "x")).await;
    let id = made["id"].as_str().unwrap();
    let ask = async |method: &str, path: &str| {
        let request = served
            .client
            .request(method.parse().unwrap(), format!("{}{path}", served.program.url));
        let answer = request.bearer_auth("one").send().await.unwrap();
        let allow = answer
            .headers()
            .get("allow")
            .map(|allow| allow.to_str().unwrap().to_owned());
        let length = answer.headers().get("content-length").cloned();
        (answer.status().as_u16(), allow, length, answer.bytes().await.unwrap())
    };
    for (method, path, status, allow) in [
        ("PUT", "/v1/skills".to_owned(), 405, Some("GET, HEAD, POST")),
        (
            "PATCH",
            format!("/v1/skills/{id}"),
            405,
            Some("DELETE, GET, HEAD, POST"),
        ),
        (
            "PUT",
            "/v1/skills?custom_llm_provider=litellm_proxy".to_owned(),
            405,
            Some("GET, HEAD, POST"),
        ),
        ("PUT", "/v1/files".to_owned(), 405, Some("GET, HEAD, POST")),
        ("GET", format!("/v1/skills/{id}/foo"), 404, None),
        ("GET", "/v1/files/file_knack_1/foo".to_owned(), 404, None),
        // A base path without `v1`, and parameters that say nothing.
        ("GET", "/gw/skills".to_owned(), 200, None),
        ("GET", format!("/gw/skills/{id}"), 200, None),
        ("GET", "/gw/files".to_owned(), 200, None),
        ("GET", "/v1/skills?source=&custom_llm_provider=".to_owned(), 200, None),
    ] {
        let answer = ask(method, &path).await;
        assert_eq!((answer.0, answer.1.as_deref()), (status, allow), "{method} {path}");
    }
    for path in [
        "/v1/skills".to_owned(),
        format!("/v1/skills/{id}"),
        format!("/v1/skills/{id}/content"),
        "/api/skills".to_owned(),
        "/api/v1/skills".to_owned(),
        "/v1/files".to_owned(),
    ] {
        let (got, _, length, body) = ask("GET", &path).await;
        let head = ask("HEAD", &path).await;
        assert_eq!((got, head.0, head.3.len()), (200, 200, 0), "{path}");
        assert_eq!(head.2, length, "{path}: of {} bytes", body.len());
    }
}

/// In the words that a skill from files has.
#[tokio::test]
async fn missing_values_of_an_upload_are_reported_once() {
    let file = |text: &str| SkillFile {
        bytes: text.as_bytes().into(),
        executable: false,
    };
    let document = "---\nname: rainy\ndescription: Tells the rain.\ntool_env: [REGION]\ntools:\n  - name: rain\n    description: d\n    \
                    command: [python3, rain.py]\n    env: [TOKEN]\n---\nx\n";
    let files = Files::from([
        ("SKILL.md".to_owned(), file(document)),
        ("rain.py".to_owned(), file("")),
    ]);
    let granted = ["--allow-env", "uploads/rainy:TOKEN"];
    let mut served = Served::with(SCRIPT, &[], &granted, &[("TOKEN", "granted")]).await;
    let (status, created) = send(&served, "/v1/skills", zipped("rainy", &files).unwrap()).await;
    assert_eq!(status, 200, "{created}");
    let mut told = Vec::new();
    for _ in 0..2 {
        served.chat("hello", "one", &[]).await;
        loop {
            let line = served.program.line().await;
            if line.contains(" chat ") {
                break;
            }
            told.push(line);
        }
    }
    told.retain(|line| !line.contains(" skills "));
    let expected = "warning: uploaded skill rainy, version 1: skill rainy: tools run without environment values that they ask for: \
                    rain: REGION; grant them with --allow-env uploads/rainy:REGION, or remove them from tool_env or env of the skill";
    assert_eq!(told, [expected]);
}
