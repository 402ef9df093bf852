//! Uploads and containers in model requests (docs/files.md).

use std::sync::Arc;
use std::time::{Duration, Instant};

use knack_execution::Executor;
use knack_gateway::files::user_files::Bounds;
use knack_gateway::runs::code_tools::CodeTools;
use serde_json::{Value, json};

use super::observed::Observed;
use super::support::{Running, Start, start};
use super::talk::{Format, Talk, events};
use super::user_files::{BEGIN, Caller, Dialect, Hand, form, ids, keeping};

/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) const RUNS: &str = r#"
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
/// A gateway that keeps uploads, with a sandbox and a provider without tools that run programs.
async fn running() -> Running {
    start(Start {
        script: RUNS.to_owned(),
        executor: Arc::new(super::runner::executor(1).await),
        user_files: Some((Bounds::default(), Hand::new().clock())),
        ..Start::default()
    })
    .await
}

/// A conversation that names an upload in the format's own part.
pub(crate) fn naming(row: (Format, bool), text: &str, id: &str) -> Talk {
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
}

#[tokio::test]
async fn a_container_that_cannot_be_made_is_refused_by_the_name_of_its_parameter() {
    let knack = keeping(Bounds::default(), &Hand::new()).await;
    let caller = Caller::new(&knack, Dialect::OpenAi);
    for (body, said) in [
        (json!({}), "\"param\":\"name\""),
        (json!({"name": 5}), "\"param\":\"name\""),
        (json!(["n", null, null, null, null, null]), "\"param\":\"body\""),
        (json!({"name": "n", "expires_after": {}}), "\"param\":\"expires_after\""),
        (
            json!({"name": "n", "file_ids": "file_knack_0"}),
            "\"param\":\"file_ids\"",
        ),
        (json!({"name": "n", "skills": [{}]}), "skill_reference"),
        (json!({"name": "n", "skills": [{"type": "inline"}]}), "/v1/skills"),
        (
            json!({"name": "n", "skills": [{"type": "skill_reference"}]}),
            "skill_id",
        ),
        (
            json!({"name": "n", "skills": [{"type": "skill_reference", "skill_id": "skill_of_openai"}]}),
            "skill_of_openai is not served here",
        ),
        (
            json!({"name": "n", "skills": [{"type": "skill_reference", "skill_id": "litellm:absent"}]}),
            "\"param\":\"skills\"",
        ),
        (
            json!({"name": "n", "skills": [{"type": "skill_reference", "skill_id": "litellm:listed", "version": "9.9.9"}]}),
            "9.9.9",
        ),
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

#[tokio::test]
async fn files_of_one_name_are_all_in_a_container_and_one_that_is_named_twice_is_there_once() {
    let knack = keeping(Bounds::default(), &Hand::new()).await;
    let caller = Caller::new(&knack, Dialect::OpenAi);
    let upload = caller.upload("a.csv", b"a,b").await;
    let other = caller.upload("x/a.csv", b"other").await;
    let made = caller
        .post(
            "/v1/containers",
            &json!({"name": "n", "file_ids": [upload, other, upload]}),
        )
        .await;
    let files = format!("/v1/containers/{}/files", made.json()["id"].as_str().unwrap());
    let listed = caller.get(&format!("{files}?order=asc")).await.json();
    let mut found = Vec::new();
    for file in listed["data"].as_array().unwrap() {
        let content = caller
            .get(&format!("{files}/{}/content", file["id"].as_str().unwrap()))
            .await;
        found.push((file["path"].as_str().unwrap(), content.text));
    }
    let expected = [("/mnt/data/a.csv", "a,b"), ("/mnt/data/2-a.csv", "other")];
    assert_eq!(found, expected.map(|(path, content)| (path, content.to_owned())));
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
async fn skills_of_a_container_are_those_of_every_request_that_names_it() {
    let script = r#"
provider: {code_tools: false}
turns:
  - user: add by skill
    rounds:
      - expect: {tool: run_code, system: "Run python3 skills/listed/add.py"}
        reply: {calls: [{tool: run_code, arguments: {skill: listed, command: "python3 skills/listed/add.py 2 3"}}]}
      - expect: {result: {line: "5"}}
        reply: {text: "The sum is 5."}
  - repeat_last: true
    rounds:
      - reply: {text: "You said: {{user}}"}
"#;
    let knack = start(Start {
        script: script.to_owned(),
        executor: Arc::new(super::runner::executor(1).await),
        user_files: Some((Bounds::default(), Hand::new().clock())),
        ..Start::default()
    })
    .await;
    let caller = Caller::new(&knack, Dialect::OpenAi);
    let skill = json!({"type": "skill_reference", "skill_id": "litellm:listed", "version": "latest"});
    let made = caller
        .post("/v1/containers", &json!({"name": "n", "skills": [skill]}))
        .await;
    assert_eq!(made.status, 200, "{}", made.text);
    assert_eq!(made.json()["memory_limit"], "1g", "that of the API where none is set");
    let shell =
        json!({"type": "shell", "environment": {"type": "container_reference", "container_id": made.json()["id"]}});
    for stream in [false, true] {
        let mut talk = Talk::plain((Format::Responses, stream), "add by skill");
        let mut body = talk.body();
        body["tools"] = json!([shell]);
        let answer = knack.send(talk.request(&knack.url, &body)).await;
        assert_eq!(talk.take(&answer).text, "The sum is 5.", "{}", answer.text);
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// Two runs, of which the second replaces a file of the first.
const CITED: &str = r#"
provider: {code_tools: false}
turns:
  - user: write two
    rounds:
      - reply: {text: "First.", calls: [{tool: run_code, arguments: {code: "open('a.txt', 'w').write('1')\nopen('b.txt', 'w').write('1')"}}]}
      - reply: {calls: [{tool: run_code, arguments: {code: "open('b.txt', 'w').write('2')"}}]}
      - reply: {text: "Größe in a.txt."}
  - repeat_last: true
    rounds:
      - reply: {text: "You said: {{user}}"}
"#;

#[tokio::test]
async fn files_that_runs_made_are_cited_on_the_text_that_follows_them() {
    let citing = || async {
        start(Start {
            script: CITED.to_owned(),
            executor: Arc::new(super::runner::executor(1).await),
            user_files: Some((Bounds::default(), Hand::new().clock())),
            sandbox_code_tools: vec![CodeTools::OpenAi],
            ..Start::default()
        })
        .await
    };
    let knack = citing().await;
    let caller = Caller::new(&knack, Dialect::OpenAi);
    for stream in [false, true] {
        let mut talk = Talk::plain((Format::Responses, stream), "write two");
        let mut body = talk.body();
        body["tools"] = json!([{"type": "shell", "environment": {"type": "container_auto"}}]);
        let answer = knack.send(talk.request(&knack.url, &body)).await;
        talk.take(&answer);
        let call = talk.history.iter().find(|item| item["type"] == "shell_call").unwrap();
        let id = call["environment"]["container_id"].as_str().unwrap().to_owned();
        let files = caller.get(&format!("/v1/containers/{id}/files?order=asc")).await.json();
        let ids = ids(&files);
        assert_eq!(ids.len(), 2, "{files}");
        let citation = |file: &str, name: &str, start: u64, end: u64| {
            json!({"type": "container_file_citation", "container_id": id, "file_id": file, "filename": name,
                "start_index": start, "end_index": end})
        };
        let cited = json!([citation(&ids[0], "a.txt", 9, 14), citation(&ids[1], "b.txt", 15, 15)]);
        let texts: Vec<&Value> = talk.history.iter().filter(|item| item["type"] == "message").collect();
        let annotations: Vec<&Value> = texts.iter().map(|item| &item["content"][0]["annotations"]).collect();
        assert_eq!(annotations, [&json!([]), &cited], "{stream}");
        if stream {
            let events = events(&answer.text);
            for (number, event) in events.iter().enumerate() {
                assert_eq!(event["sequence_number"], number, "{event}");
            }
            let at = |kind: &str| events.iter().rposition(|event| event["type"] == kind).unwrap();
            let done = at("response.output_text.done");
            for (place, annotation) in cited.as_array().unwrap().iter().enumerate() {
                let event = &events[done - 2 + place];
                assert_eq!(event["type"], "response.output_text.annotation.added");
                assert_eq!(
                    (
                        &event["annotation_index"],
                        &event["annotation"],
                        &event["item_id"],
                        &event["output_index"]
                    ),
                    (
                        &json!(place),
                        annotation,
                        &events[done]["item_id"],
                        &events[done]["output_index"]
                    )
                );
            }
            assert_eq!(events[at("response.content_part.done")]["part"]["annotations"], cited);
            let item = &events[at("response.output_item.done")]["item"];
            assert_eq!(item["content"][0]["annotations"], cited);
        }
        // No provider knows them: neither after the turn was saved, nor where it is lost.
        talk.say("hello");
        for knack in [&knack, &citing().await] {
            let answer = talk.send(knack).await;
            assert!(answer.text.contains("You said: hello"), "{}", answer.text);
            let sent = knack.upstream().to_string();
            assert!(sent.contains("a.txt") && !sent.contains("cntr_knack_"), "{sent}");
            assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
        }
    }
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

#[tokio::test]
async fn a_container_that_cannot_be_opened_is_an_error_before_the_provider_is_asked() {
    let knack = start(Start {
        script: RUNS.to_owned(),
        executor: Arc::new(super::runner::executor(1).await),
        sandbox_code_tools: vec![CodeTools::OpenAi],
        user_files: Some((
            Bounds {
                containers: 1,
                ..Bounds::default()
            },
            Hand::new().clock(),
        )),
        ..Start::default()
    })
    .await;
    let other = Caller {
        key: "key-b",
        ..Caller::new(&knack, Dialect::OpenAi)
    };
    let made = other.post("/v1/containers", &json!({"name": "n"})).await.json();
    let shell = json!({"type": "shell", "environment": {"type": "container_auto"}});
    for stream in [false, true] {
        let body = json!({"model": "gpt-x", "stream": stream, "input": "write it", "tools": [shell]});
        let talk = Talk::plain((Format::Responses, stream), "");
        let refused = knack.send(talk.request(&knack.url, &body)).await;
        assert_eq!(refused.status, 507, "{}", refused.text);
        assert!(refused.text.contains("at most 1 containers"), "{}", refused.text);
    }
    assert_eq!(knack.mock.handle.requests().len(), 0);
    let container = format!("/v1/containers/{}", made["id"].as_str().unwrap());
    assert_eq!(other.delete(&container).await.status, 200);
    let answered = ask(&knack, false, &shell).await;
    let call = answered.iter().find(|item| item["type"] == "shell_call").unwrap();
    assert_eq!(call["environment"]["type"], "container_reference", "{call}");
}

/// Two runs, each of which takes as long as the test says.
const LONG: &str = r#"
provider: {code_tools: false}
turns:
  - rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "print(1)"}}]}
      - reply: {calls: [{tool: run_code, arguments: {code: "open('made.txt', 'w').write('made')"}}]}
      - reply: {text: "done"}
"#;

#[tokio::test]
async fn a_container_does_not_expire_while_runs_use_it_and_one_that_is_deleted_meanwhile_stays_deleted() {
    let observed = Observed::holding().await;
    let hand = Hand::new();
    let knack = start(Start {
        script: LONG.to_owned(),
        executor: Arc::clone(&observed) as Arc<dyn Executor>,
        user_files: Some((Bounds::default(), hand.clock())),
        ..Start::default()
    })
    .await;
    let caller = Caller::new(&knack, Dialect::OpenAi);
    let mut begun = BEGIN;
    for (round, deletes) in [false, true].into_iter().enumerate() {
        let new = json!({"name": "n", "expires_after": {"anchor": "last_active_at", "minutes": 5}});
        let made = caller.post("/v1/containers", &new).await.json();
        let id = made["id"].as_str().unwrap();
        let path = format!("/v1/containers/{id}");
        let shell = json!({"type": "shell", "environment": {"type": "container_reference", "container_id": id}});
        let running = async {
            for run in 0..2 {
                observed.asked_after(2 * round + run).await;
                let asked = Instant::now();
                while caller.get(&path).await.json()["last_active_at"] != begun {
                    assert!(
                        asked.elapsed() < PATIENCE,
                        "the run does not say that it uses its container"
                    );
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                hand.pass(200);
                begun += 200;
                if run == 1 && deletes {
                    assert_eq!(caller.delete(&path).await.status, 200);
                }
                observed.let_go(1);
            }
        };
        let (answered, ()) = futures::future::join(ask(&knack, false, &shell), running).await;
        assert_eq!(text_of(&answered), "done");
        let files = caller.get(&format!("{path}/files")).await;
        if deletes {
            assert_eq!(files.status, 404, "{}", files.text);
            let lines = knack.told("could not be kept in the container").await;
            assert!(lines.contains(id), "{lines}");
        } else {
            assert_eq!(ids(&files.json()).len(), 1, "{}", files.text);
            assert_eq!(caller.get(&path).await.json()["last_active_at"], begun);
        }
    }
}
