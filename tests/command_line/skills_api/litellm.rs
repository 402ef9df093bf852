//! LiteLLM's records at `/v1/skills`.

use knack_registry::{Files, zipped};
use serde_json::{Value, json};

use super::{Served, form};

const SCRIPT: &str = r###"
turns:
  - user: the word
    rounds:
      - when: {system: "## Skill: My Word\n\nThe word is plover-1."}
        reply: {text: read}
      - when: {system: "## Skill: Bare\n\nSay plover-2 always."}
        reply: {text: headed}
      - when: {system: "Say plover-2 always."}
        reply: {text: told}
      - reply: {text: nothing}
"###;

const DOCUMENT: &str = "---\nname: word\ndescription: Says a word.\n---\nThe word is plover-1.\n";
const RECORDS: &str = "/v1/skills?custom_llm_provider=litellm_proxy";

fn archive() -> Vec<u8> {
    let file = knack_skill::model::SkillFile {
        bytes: DOCUMENT.as_bytes().into(),
        executable: false,
    };
    zipped("word", &Files::from([("SKILL.md".to_owned(), file)])).unwrap()
}

/// What a model answers where the request's container names a skill.
async fn named(served: &Served, id: &str, key: &str) -> String {
    asked(served, &json!({"type": "custom", "skill_id": id}), key).await
}

async fn asked(served: &Served, skill: &Value, key: &str) -> String {
    let authorization = format!("Bearer {key}");
    let body = json!({
        "model": "gpt-x", "messages": [{"role": "user", "content": "the word"}],
        "container": {"skills": [skill]},
    });
    let headers = [("authorization", authorization.as_str())];
    served.program.post("/v1/chat/completions", &body, &headers).await
}

#[tokio::test]
async fn a_record_is_created_listed_named_in_requests_and_deleted() {
    let served = Served::start(SCRIPT, &[]).await;
    let fields = [
        ("display_title", "My Word"),
        ("description", "A word."),
        ("metadata", r#"{"team": "a"}"#),
    ];
    let (status, record) = served
        .send_form(RECORDS, form(&fields, Some(("word.zip", &archive()))), "one")
        .await;
    assert_eq!(status, 200, "{record}");
    let id = record["id"].as_str().unwrap();
    assert!(id.starts_with("litellm_skill_") && id.len() == 50, "{id}");
    for (member, value) in [
        ("type", json!("skill")),
        ("source", json!("custom")),
        ("display_title", json!("My Word")),
        ("description", json!("A word.")),
        ("instructions", Value::Null),
        ("metadata", json!({"team": "a"})),
        ("file_name", json!("word.zip")),
        ("file_type", json!("application/zip")),
    ] {
        assert_eq!(record[member], value, "{member}");
    }
    let path = format!("/v1/skills/{id}");
    // The id alone says whose it is.
    assert_eq!(
        served.call("GET", &path, &Value::Null, "one").await,
        (200, record.clone())
    );

    // Without a file: bare instructions, and the field of the form in place of the parameter.
    let fields = [
        ("display_title", "Bare"),
        ("instructions", "Say plover-2 always."),
        ("custom_llm_provider", "litellm_proxy"),
    ];
    let (status, bare) = served.send_form("/v1/skills", form(&fields, None), "one").await;
    assert_eq!(
        (status, &bare["instructions"]),
        (200, &json!("Say plover-2 always.")),
        "{bare}"
    );

    let (_, list) = served.call("GET", RECORDS, &Value::Null, "one").await;
    assert_eq!(
        (&list["data"], &list["has_more"]),
        (&json!([bare, record]), &json!(false)),
        "the newest first"
    );
    let (_, list) = served
        .call("GET", &format!("{RECORDS}&limit=1&offset=1"), &Value::Null, "one")
        .await;
    assert_eq!((&list["data"], &list["has_more"]), (&json!([record]), &json!(false)));
    let (_, list) = served
        .call("GET", &format!("{RECORDS}&limit=1"), &Value::Null, "one")
        .await;
    assert_eq!(list["has_more"], true);

    let bare_id = bare["id"].as_str().unwrap();
    for (id, said) in [(id, "read"), (&format!("litellm:{id}"), "read"), (bare_id, "told")] {
        let answer = named(&served, id, "one").await;
        assert!(answer.contains(&format!("\"{said}\"")), "{id}: {answer}");
        let stranger = named(&served, id, "two").await;
        assert!(stranger.contains("skill_not_found"), "{stranger}");
    }
    // As beside the id of the other APIs: by the time of its making, a number, or a word.
    for (version, expected) in [
        (record["latest_version"].as_str().unwrap(), "\"read\""),
        ("1", "\"read\""),
        ("latest", "\"read\""),
        ("2", "has no version"),
        ("^1", "has no version"),
    ] {
        let skill = json!({"type": "custom", "skill_id": id, "version": version});
        let answer = asked(&served, &skill, "one").await;
        assert!(answer.contains(expected), "{version}: {answer}");
    }
    // The other APIs have it under the id of all of them.
    let (_, row) = served.call("GET", "/api/skills/word", &Value::Null, "one").await;
    assert_eq!(
        row["id"],
        format!(
            "skill_knack_{}",
            id.trim_start_matches("litellm_skill_").replace('-', "")
        )
    );

    let gone = served.call("DELETE", &path, &Value::Null, "one").await;
    assert_eq!(gone, (200, json!({"id": id, "type": "skill_deleted"})));
    assert!(named(&served, id, "one").await.contains("skill_not_found"));
}

/// By its name and in the other APIs it is a skill as any other, with the instructions as its text.
#[tokio::test]
async fn a_record_without_files_is_a_skill_of_every_api() {
    let served = Served::start(SCRIPT, &[]).await;
    let fields = [("display_title", "Bare"), ("instructions", "Say plover-2 always.")];
    let (status, bare) = served.send_form(RECORDS, form(&fields, None), "one").await;
    assert_eq!(status, 200, "{bare}");
    let by_header = served.chat("the word", "one", &[("x-knack-skills", "bare")]).await;
    assert!(by_header.contains("\"headed\""), "{by_header}");
    let (_, shown) = served.call("GET", "/api/v1/skills/bare", &Value::Null, "one").await;
    assert_eq!(shown["prompt"], "Say plover-2 always.", "{shown}");
}

#[tokio::test]
async fn records_are_paged_searched_and_downloaded() {
    let served = Served::start(SCRIPT, &[]).await;
    let fields = [("display_title", "My Word"), ("description", "A word.")];
    let file = archive();
    let (_, record) = served
        .send_form(RECORDS, form(&fields, Some(("word.zip", &file))), "one")
        .await;
    let id = record["id"].as_str().unwrap();
    let fields = [("display_title", "Bare"), ("instructions", "Say plover-2 always.")];
    let (status, bare) = served.send_form(RECORDS, form(&fields, None), "one").await;
    assert_eq!(status, 200, "{bare}");
    let (_, list) = served
        .call("GET", &format!("{RECORDS}&limit=1"), &Value::Null, "one")
        .await;
    assert_eq!(list["data"], json!([bare]));
    assert_eq!(
        (&list["has_more"], &list["next_page"]),
        (&json!(true), &json!("page_1"))
    );
    // As SDKs that follow it.
    let next = format!("{RECORDS}&limit=1&page={}", list["next_page"].as_str().unwrap());
    let (_, list) = served.call("GET", &next, &Value::Null, "one").await;
    assert_eq!(
        (&list["data"], &list["has_more"], &list["next_page"]),
        (&json!([record]), &json!(false), &Value::Null)
    );
    // The closest first.
    for query in [
        "/v1/skills?query=a+word&top_k=1",
        &format!("{RECORDS}&query=my+wrd&top_k=1"),
    ] {
        let (_, list) = served.call("GET", query, &Value::Null, "one").await;
        assert_eq!(list["data"], json!([record]), "{query}");
        let (_, list) = served.call("GET", query, &Value::Null, "two").await;
        assert_eq!(list["data"], json!([]), "{query}");
    }
    // The files as the other APIs have them.
    let archive_of = async |id: &str, key: &str| {
        let url = format!("{}/v1/skills/{id}/archive", served.program.url);
        let answer = served.client.get(url).bearer_auth(key).send().await.unwrap();
        (answer.status().as_u16(), answer.bytes().await.unwrap())
    };
    let other_id = format!(
        "skill_knack_{}",
        id.trim_start_matches("litellm_skill_").replace('-', "")
    );
    for id in [id, &other_id] {
        assert_eq!(archive_of(id, "one").await, (200, archive().into()), "{id}");
        assert_eq!(archive_of(id, "two").await.0, 404, "{id}");
    }
}

#[tokio::test]
async fn anothers_record_is_missing_and_bad_input_is_refused_by_its_field() {
    let served = Served::start(SCRIPT, &[]).await;
    let body = form(&[("display_title", "My Word")], Some(("word.zip", &archive())));
    let (status, refused) = served.send_form(RECORDS, body.clone(), "").await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (401, &json!("401")),
        "no owner: {refused}"
    );
    let (_, record) = served.send_form(RECORDS, body.clone(), "one").await;
    let id = record["id"].as_str().unwrap();
    let none = "litellm_skill_6e0b9a52-6a3e-4d83-b0a5-8b8c6b1f1c77";
    for (method, id, key) in [
        ("GET", id, "two"),
        ("DELETE", id, "two"),
        ("GET", none, "one"),
        ("DELETE", none, "one"),
        ("GET", "litellm_skill_x", "one"),
    ] {
        let (status, refused) = served
            .call(method, &format!("/v1/skills/{id}"), &Value::Null, key)
            .await;
        let said = json!({"message": format!("Skill not found: {id}"), "type": "invalid_request_error", "param": "skill_id", "code": "404"});
        assert_eq!((status, &refused["error"]), (404, &said), "{method}");
    }
    let title = "t".repeat(256);
    for (fields, file, status, field) in [
        (
            vec![("display_title", title.as_str()), ("instructions", "x")],
            None,
            400,
            "display_title",
        ),
        (vec![("instructions", "x")], None, 400, "display_title"),
        (vec![("display_title", "x")], None, 400, "files"),
        (vec![("metadata", "[]")], Some(archive()), 400, "metadata"),
        (vec![], Some(b"PK\x03\x04 broken".to_vec()), 400, "files"),
        (vec![], Some(archive()), 409, "name"),
    ] {
        let file = file.as_ref().map(|bytes| ("word.zip", bytes.as_slice()));
        let (found, refused) = served.send_form(RECORDS, form(&fields, file), "one").await;
        assert_eq!(
            (found, &refused["error"]["param"]),
            (status, &json!(field)),
            "{refused}"
        );
    }
    for (method, path, status) in [
        ("GET", format!("{RECORDS}&limit=0"), 400),
        ("GET", format!("{RECORDS}&query=word&top_k=0"), 400),
        ("GET", format!("{RECORDS}&page=x"), 400),
        ("GET", format!("/v1/skills/{id}/versions"), 404),
        ("POST", RECORDS.to_owned(), 400),
    ] {
        let (found, refused) = served.call(method, &path, &Value::Null, "one").await;
        assert_eq!(found, status, "{method} {path}: {refused}");
    }
}
