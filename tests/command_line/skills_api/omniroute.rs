//! OmniRoute's `/api/skills`.

use serde_json::{Value, json};

use super::Served;

const SCRIPT: &str = r#"
turns:
  - user: reverse
    rounds:
      - expect: {tool: {contains: reverse-text}}
        reply: {calls: [{tool: {contains: reverse-text}, arguments: {text: abc}}]}
      - expect: {result: {contains: '{"reversed": "cba"}'}}
        reply: {text: reversed}
  - user: plover
    rounds:
      - when: {system: plover-120}
        reply: {text: served}
      - reply: {text: nothing}
"#;

/// A skill that models are told of.
const DOCUMENT: &str =
    "---\nname: word\ndescription: Says a plover word.\ntags: [plover]\n---\nThe word is plover-120.\n";

/// A skill from files.
const FILE: (&str, &str) = (
    "skills/ours/SKILL.md",
    "---\nname: ours\ndescription: From a file.\nversion: 2.0.0\nactivation: Never\n---\nOurs.\n",
);

fn word(version: &str) -> Value {
    json!({
        "name": "word", "version": version, "description": "Not read.", "schema": {"input": {}, "output": {}},
        "handlerCode": DOCUMENT,
    })
}

/// The body of the example in docs/registry.md, under a name that is no legal one.
fn reverse() -> Value {
    let docs = include_str!("../../../docs/registry.md");
    let (_, body) = docs.split_once("/api/skills/install").unwrap();
    let (_, body) = body.split_once("-d '").unwrap();
    let (body, _) = body.split_once("}'\n").unwrap();
    let mut body: Value = serde_json::from_str(&format!("{body}}}")).unwrap();
    assert_eq!(body["name"], "reverse-text");
    body["name"] = "Reverse Text".into();
    body
}

#[tokio::test]
async fn what_is_installed_is_served_as_its_mode_says() {
    let served = Served::start(SCRIPT, &[]).await;
    let (status, installed) = served.call("POST", "/api/skills/install", &word("1.2.0"), "one").await;
    assert_eq!((status, &installed["success"]), (200, &json!(true)), "{installed}");
    let id = installed["id"].as_str().unwrap();
    let row = format!("/api/skills/{id}");
    let named = [("x-knack-skills", "word@^1")];

    // on: in every request; off: in none, also by name; auto: where it scores.
    let talk = "plover, please";
    for (patch, enabled, mode, asked, by_name) in [
        (Value::Null, true, "on", true, true),
        (json!({"enabled": false}), false, "off", false, false),
        (json!({"mode": "auto"}), true, "auto", true, true),
        (json!({"enabled": false, "mode": "on"}), true, "on", true, true),
        (json!({"mode": "off"}), false, "off", false, false),
        (json!({"enabled": true}), true, "on", true, true),
    ] {
        if !patch.is_null() {
            let answer = served.call("PUT", &row, &patch, "one").await;
            assert_eq!(
                answer,
                (200, json!({"success": true, "enabled": enabled, "mode": mode})),
                "{patch}"
            );
        }
        let (_, shown) = served.call("GET", &row, &Value::Null, "one").await;
        assert_eq!(
            (&shown["enabled"], &shown["mode"]),
            (&json!(enabled), &json!(mode)),
            "{patch}"
        );
        let answer = served.chat(talk, "one", &[]).await;
        assert_eq!(answer.contains("\"served\""), asked, "{patch}: {answer}");
        let answer = served.chat(talk, "one", &named).await;
        assert_eq!(answer.contains("\"served\""), by_name, "{patch}: {answer}");
        assert_eq!(answer.contains("skill_not_served"), !by_name, "{patch}: {answer}");
        let stranger = served.chat(talk, "two", &[]).await;
        assert!(stranger.contains("\"nothing\""), "{stranger}");
    }

    // A mode is kept over a restart.
    let (status, _) = served.call("PUT", &row, &json!({"mode": "auto"}), "one").await;
    assert_eq!(status, 200);
    let Served {
        mut program,
        client,
        registry,
    } = served;
    program.stop().await;
    let program = Served::program(SCRIPT, &[], &registry, (&[], &[])).await;
    let served = Served {
        program,
        client,
        registry,
    };
    let (_, shown) = served.call("GET", &row, &Value::Null, "one").await;
    assert_eq!((&shown["version"], &shown["mode"]), (&json!("1.2.0"), &json!("auto")));
    assert_eq!(shown["description"], "Says a plover word.", "SKILL.md has its own");
    assert_eq!(
        (&shown["handler"], &shown["tags"]),
        (&json!(DOCUMENT), &json!(["plover"]))
    );
    let unrelated = served.chat("reverse nothing", "one", &[]).await;
    assert!(!unrelated.contains("plover"), "{unrelated}");

    assert_eq!(
        served.call("DELETE", &row, &Value::Null, "one").await,
        (200, json!({"success": true}))
    );
    assert!(served.chat(talk, "one", &named).await.contains("skill_not_found"));
    assert_eq!(served.call("DELETE", &row, &Value::Null, "one").await.0, 404);
}

#[tokio::test]
async fn a_python_program_is_a_tool_that_the_sandbox_runs() {
    let served = Served::start(SCRIPT, &[]).await;
    let (status, installed) = served.call("POST", "/api/skills/install", &reverse(), "one").await;
    assert_eq!(status, 200, "{installed}");
    let answer = served.chat("reverse abc", "one", &[]).await;
    assert!(answer.contains("\"reversed\""), "{answer}");
    let (_, shown) = served
        .call("GET", "/api/skills/reverse-text@1.0.0", &Value::Null, "one")
        .await;
    assert_eq!(
        (&shown["id"], &shown["schema"]),
        (&installed["id"], &reverse()["schema"])
    );
    assert_eq!(
        (&shown["name"], &shown["handler"]),
        (&json!("reverse-text"), &reverse()["handlerCode"])
    );
}

/// It is Knack's by every name, and a request that names it is refused with the reason.
#[tokio::test]
async fn a_skill_that_is_off_is_no_skill_of_the_provider() {
    let served = Served::start(SCRIPT, &[FILE]).await;
    let (_, installed) = served.call("POST", "/api/skills/install", &word("1.2.0"), "one").await;
    let id = installed["id"].as_str().unwrap();
    let (status, set) = served
        .call("PUT", "/api/skills/word", &json!({"mode": "off"}), "one")
        .await;
    assert_eq!(status, 200, "{set}");
    for (reference, why) in [
        ("word", "its mode is off"),
        (id, "its mode is off"),
        ("ours", "its activation is Never"),
    ] {
        let expected = format!("{reference}\\\" is here but not served: {why}");
        let by_header = served.chat("plover", "one", &[("x-knack-skills", reference)]).await;
        assert!(by_header.contains(&expected), "{by_header}");
        let body = json!({
            "model": "gpt-x", "messages": [{"role": "user", "content": "plover"}],
            "container": {"skills": [{"type": "custom", "skill_id": reference}]},
        });
        let headers = [("authorization", "Bearer one")];
        let by_container = served.program.post("/v1/chat/completions", &body, &headers).await;
        assert!(by_container.contains(&expected), "{by_container}");
    }
    let stranger = served.chat("plover", "two", &[("x-knack-skills", "word")]).await;
    assert!(stranger.contains("skill_not_found"), "{stranger}");
}

/// A row is a version: without one there is none to show, and none to change.
#[tokio::test]
async fn a_skill_without_a_version_is_no_row() {
    let served = Served::start(SCRIPT, &[]).await;
    let (_, installed) = served.call("POST", "/api/skills/install", &word("1.2.0"), "one").await;
    let id = installed["id"].as_str().unwrap();
    let beta = [
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "skills-2025-10-02"),
    ];
    let path = format!("{}/v1/skills/{id}/versions", served.program.url);
    let with = |request: reqwest::RequestBuilder| {
        beta.iter()
            .fold(request, |request, (name, value)| request.header(*name, *value))
    };
    let (_, versions) = served.send(with(served.client.get(&path)), "one").await;
    let version = versions["data"][0]["version"].as_str().unwrap();
    let request = served.client.delete(format!("{path}/{version}"));
    let (status, deleted) = served.send(with(request), "one").await;
    assert_eq!(status, 200, "{deleted}");
    for row in [id, "word"] {
        for (method, body) in [
            ("GET", Value::Null),
            ("PUT", json!({"enabled": true})),
            ("DELETE", Value::Null),
        ] {
            let (status, answer) = served.call(method, &format!("/api/skills/{row}"), &body, "one").await;
            assert_eq!(status, 404, "{method} {row}: {answer}");
        }
    }
}

/// Two callers with skills of their own, beside one from files.
async fn two_callers() -> Served {
    let served = Served::start(SCRIPT, &[FILE]).await;
    for (body, key) in [(word("1.0.0"), "one"), (reverse(), "one"), (word("3.0.0"), "two")] {
        let (status, answer) = served.call("POST", "/api/skills/install", &body, key).await;
        assert_eq!(status, 200, "{answer}");
    }
    served
}

/// The rows of a list as `name@version`.
fn names(list: &Value) -> Vec<String> {
    let text = |row: &Value, member: &str| row[member].as_str().unwrap().to_owned();
    let rows = list["data"].as_array().unwrap().iter();
    rows.map(|row| format!("{}@{}", text(row, "name"), text(row, "version")))
        .collect()
}

#[tokio::test]
async fn a_caller_sees_its_own_rows_then_those_from_files_and_nothing_of_others() {
    let served = two_callers().await;
    for (query, expected, total, pages) in [
        ("", vec!["word@1.0.0", "reverse-text@1.0.0", "ours@2.0.0"], 3, 1),
        ("?page=2&limit=2", vec!["ours@2.0.0"], 3, 2),
        ("?page=9&limit=2", vec![], 3, 2),
        ("?q=REVERSES+a", vec!["reverse-text@1.0.0"], 1, 1),
        ("?mode=off", vec!["ours@2.0.0"], 1, 1),
        (
            "?mode=on&source=local&q=",
            vec!["word@1.0.0", "reverse-text@1.0.0"],
            2,
            1,
        ),
        ("?source=skillsmp", vec![], 0, 0),
    ] {
        let (status, list) = served
            .call("GET", &format!("/api/skills{query}"), &Value::Null, "one")
            .await;
        assert_eq!(
            (status, names(&list)),
            (200, expected.into_iter().map(str::to_owned).collect()),
            "{query}"
        );
        assert_eq!(
            (&list["total"], &list["totalPages"]),
            (&json!(total), &json!(pages)),
            "{query}"
        );
    }
    let (_, others) = served.call("GET", "/api/skills", &Value::Null, "two").await;
    assert_eq!(names(&others), ["word@3.0.0", "ours@2.0.0"]);
    let system = &others["data"][1];
    assert_eq!(
        (&system["apiKeyId"], &system["enabled"]),
        (&json!("system"), &json!(false))
    );
}

#[tokio::test]
async fn a_skill_is_changed_and_deleted_by_its_name_too() {
    let served = Served::start(SCRIPT, &[FILE]).await;
    let (_, word) = served.call("POST", "/api/skills/install", &word("1.2.0"), "one").await;
    let (_, reverse) = served.call("POST", "/api/skills/install", &reverse(), "one").await;
    // Of a name that files have in a higher version, the caller's own is meant.
    let ours = json!({"name": "ours", "version": "1.0.0", "description": "d", "schema": {"input": {}, "output": {}},
        "handlerCode": "---\nname: ours\ndescription: Mine.\n---\nMine.\n"});
    let (status, mine) = served.call("POST", "/api/skills/install", &ours, "one").await;
    assert_eq!(status, 200, "{mine}");
    let off = json!({"mode": "off"});
    for (name, installed) in [
        ("word", &word),
        ("reverse-text", &reverse),
        ("Reverse%20Text", &reverse),
        ("ours", &mine),
    ] {
        let (status, set) = served.call("PUT", &format!("/api/skills/{name}"), &off, "one").await;
        assert_eq!((status, &set["mode"]), (200, &json!("off")), "{name}: {set}");
        let row = format!("/api/skills/{}", installed["id"].as_str().unwrap());
        let (_, row) = served.call("GET", &row, &Value::Null, "one").await;
        assert_eq!(row["mode"], "off", "{name}");
    }
    for (name, key, status) in [
        ("word", "two", 404),
        ("word@1.2.0", "one", 404),
        ("absent", "one", 404),
        ("ours", "two", 403),
    ] {
        for (method, body) in [("PUT", &off), ("DELETE", &Value::Null)] {
            let (found, refused) = served.call(method, &format!("/api/skills/{name}"), body, key).await;
            assert_eq!(found, status, "{method} {name}: {refused}");
        }
    }
    for name in ["word", "Reverse%20Text", "ours"] {
        let path = format!("/api/skills/{name}");
        assert_eq!(served.call("DELETE", &path, &Value::Null, "one").await.0, 200, "{name}");
    }
    let (status, refused) = served.call("DELETE", "/api/skills/ours", &Value::Null, "one").await;
    assert_eq!(status, 403, "what is left is from files: {refused}");
}

#[tokio::test]
async fn what_is_anothers_is_missing_and_what_is_of_all_is_changed_in_its_files() {
    let served = two_callers().await;
    let (_, others) = served.call("GET", "/api/skills", &Value::Null, "two").await;
    let id = |at: usize| others["data"][at]["id"].as_str().unwrap();
    let (others_id, ours) = (id(0), id(1));
    // Another's id and version answer like those that nobody has.
    for (method, body) in [
        ("GET", Value::Null),
        ("PUT", json!({"mode": "off"})),
        ("DELETE", Value::Null),
    ] {
        for id in [others_id, "skill_knack_none"] {
            let missing = json!({"error": format!("Skill not found: {id}")});
            assert_eq!(
                served.call(method, &format!("/api/skills/{id}"), &body, "one").await,
                (404, missing),
                "{method}"
            );
        }
    }
    for (identifier, version) in [
        ("word@3.0.0", None),
        ("word@%5E1", Some("1.0.0")),
        ("ours", Some("2.0.0")),
        (ours, Some("2.0.0")),
    ] {
        let (status, row) = served
            .call("GET", &format!("/api/skills/{identifier}"), &Value::Null, "one")
            .await;
        assert_eq!(
            (status == 200, row["version"].as_str()),
            (version.is_some(), version),
            "{identifier}: {row}"
        );
    }
    // What is served from files is changed there.
    for (method, body) in [("PUT", json!({"mode": "on"})), ("DELETE", Value::Null)] {
        let (status, refused) = served.call(method, &format!("/api/skills/{ours}"), &body, "one").await;
        assert_eq!(status, 403, "{refused}");
        assert!(
            refused["error"].as_str().unwrap().contains("served from files"),
            "{refused}"
        );
    }
    // Without an identity there is nothing, not even a list.
    for (method, path) in [
        ("GET", "/api/skills"),
        ("POST", "/api/skills/install"),
        ("GET", "/api/skills/ours"),
    ] {
        // Without a key, and with an empty one.
        for key in ["", " "] {
            let (status, refused) = served.call(method, path, &Value::Null, key).await;
            assert_eq!(status, 401, "{refused}");
        }
    }
}

/// One tool that a provider refuses would end every request of its caller.
#[tokio::test]
async fn invalid_tool_schema_is_repaired() {
    let served = Served::start(SCRIPT, &[]).await;
    for (at, schema) in [
        json!({"a": 5}),
        json!({"type": "string"}),
        json!({"type": "object", "properties": []}),
    ]
    .into_iter()
    .enumerate()
    {
        let mut body = reverse();
        body["name"] = format!("broken-{at}").into();
        body["schema"]["input"] = schema;
        let (status, answer) = served.call("POST", "/api/skills/install", &body, "one").await;
        assert_eq!(status, 200, "{answer}");
    }
    let answer = served.chat("plover, please", "one", &[]).await;
    assert!(answer.contains("\"nothing\""), "{answer}");
}

/// Any characters are a name; requests to models know its slug.
#[tokio::test]
async fn a_skill_is_found_by_the_name_that_it_was_installed_by() {
    let served = Served::start(SCRIPT, &[]).await;
    let install = async |name: &str, version: &str| {
        let mut body = reverse();
        body["name"] = name.into();
        body["version"] = version.into();
        let (status, answer) = served.call("POST", "/api/skills/install", &body, "one").await;
        (status, answer["id"].as_str().unwrap_or_default().to_owned())
    };
    let (_, id) = install("Reverse Text", "1.0.0").await;
    assert_eq!(install("Reverse Text", "1.1.0").await, (200, id.clone()));
    // Another name of one slug is another skill, and takes nothing from the first one.
    assert_eq!(install("Reverse text!", "2.0.0").await.0, 409);
    let (_, at) = install("me@home", "1.0.0").await;
    for (named, version, expected) in [
        ("Reverse%20Text", "1.1.0", &id),
        ("Reverse%20Text@1.0.0", "1.0.0", &id),
        ("Reverse%20Text@%5E1", "1.1.0", &id),
        ("reverse-text", "1.1.0", &id),
        ("me%40home", "1.0.0", &at),
        ("me@home@1.0.0", "1.0.0", &at),
    ] {
        let (status, row) = served
            .call("GET", &format!("/api/skills/{named}"), &Value::Null, "one")
            .await;
        assert_eq!(
            (status, &row["id"], &row["version"]),
            (200, &json!(expected), &json!(version)),
            "{named}: {row}"
        );
    }
    for named in ["REVERSE%20TEXT", "Reverse%20Text@2.0.0"] {
        let (status, _) = served
            .call("GET", &format!("/api/skills/{named}"), &Value::Null, "one")
            .await;
        assert_eq!(status, 404, "{named}");
    }
    for (text, total) in [
        ("Reverse%20Text", 1),
        ("reverse-text", 1),
        ("reverse%20t", 1),
        ("@home", 1),
        ("other", 0),
    ] {
        let (_, list) = served
            .call("GET", &format!("/api/skills?q={text}"), &Value::Null, "one")
            .await;
        assert_eq!(list["total"], total, "{text}: {list}");
    }
    let run = json!({"skillName": "Reverse Text", "input": {"text": "abc"}});
    let (status, ran) = served.call("POST", "/api/skills/executions", &run, "one").await;
    assert_eq!(status, 200, "{ran}");
    for (skill, total) in [("Reverse%20Text", 1), ("reverse-text", 1), ("me@home", 0)] {
        let (_, list) = served
            .call(
                "GET",
                &format!("/api/skills/executions?skillId={skill}"),
                &Value::Null,
                "one",
            )
            .await;
        assert_eq!(list["total"], total, "{skill}: {list}");
    }
}

/// Two names that requests to models write alike are two skills, whichever of them is a legal name, and whichever API it came by.
#[tokio::test]
async fn another_name_of_the_same_slug_replaces_no_skill() {
    let served = Served::start(SCRIPT, &[]).await;
    let install = async |name: &str, version: &str| {
        let mut body = reverse();
        body["name"] = name.into();
        body["version"] = version.into();
        served.call("POST", "/api/skills/install", &body, "one").await
    };
    for (first, second) in [("my-tool", "My Tool"), ("Other Tool", "other-tool")] {
        let (status, one) = install(first, "1.0.0").await;
        assert_eq!(status, 200, "{one}");
        let (status, other) = install(second, "2.0.0").await;
        let told = other["error"].as_str().unwrap_or_default();
        assert_eq!(status, 409, "{other}");
        assert!(told.contains(&format!("{first:?}")), "{told}");
        assert_eq!(install(first, "2.0.0").await, (200, one));
    }
}

#[tokio::test]
async fn bad_input_is_refused_by_the_member_that_is_wrong() {
    let served = Served::start(SCRIPT, &[]).await;
    let with = |member: &str, value: Value| {
        let mut body = reverse();
        body[member] = value;
        body
    };
    let mut broken = word("1.0.0");
    broken["handlerCode"] = "---\nname: [\n---\n".into();
    for (body, field) in [
        (Value::Null, "body"),
        (json!([]), "body"),
        (with("name", json!("")), "name"),
        (with("name", json!("n".repeat(101))), "name"),
        (with("name", json!("日本")), "name"),
        (with("version", json!("1.0")), "version"),
        (with("description", json!("d".repeat(501))), "description"),
        (with("schema", json!(null)), "schema"),
        (with("schema", json!({"input": []})), "schema.input"),
        (with("handlerCode", json!("")), "handlerCode"),
        (with("handlerCode", json!("h".repeat(50_001))), "handlerCode"),
        (with("handlerCode", json!("echo-handler")), "handlerCode"),
        (broken, "handlerCode"),
        (with("handlerCode", json!(DOCUMENT)), "schema.input"),
        (with("apiKeyId", json!("somebody")), "apiKeyId"),
        (with("handler", reverse()["handlerCode"].clone()), "handler"),
        (with("enabled", json!(true)), "enabled"),
    ] {
        let (status, refused) = served.call("POST", "/api/skills/install", &body, "one").await;
        assert_eq!(
            (status, &refused["details"][0]["field"]),
            (400, &json!(field)),
            "{refused}"
        );
    }
    let (_, list) = served.call("GET", "/api/skills", &Value::Null, "one").await;
    assert_eq!(list["total"], 0, "nothing is left of what was refused: {list}");

    let (_, installed) = served.call("POST", "/api/skills/install", &reverse(), "one").await;
    let again = served.call("POST", "/api/skills/install", &reverse(), "one").await;
    assert_eq!(again.0, 409, "{}", again.1);
    let newer = served
        .call("POST", "/api/skills/install", &with("version", json!("1.1.0")), "one")
        .await;
    assert_eq!(newer, (200, installed.clone()), "one skill, another version");
    let row = format!("/api/skills/{}", installed["id"].as_str().unwrap());
    assert_eq!(
        served.call("PUT", &row, &json!({}), "one").await,
        (400, json!({"error": "No update payload provided"}))
    );
    for (method, path, status) in [
        ("GET", "/api/skills?limit=101", 400),
        ("GET", "/api/skills?mode=manual", 400),
        ("GET", "/api/skills?apiKeyId=another", 400),
        ("GET", "/api/skills/executions/none", 404),
        ("POST", "/api/skills/marketplace/install", 400),
        ("PATCH", row.as_str(), 404),
    ] {
        let (found, refused) = served.call(method, path, &Value::Null, "one").await;
        assert_eq!(found, status, "{method} {path}: {refused}");
        assert!(refused["error"].is_string(), "{refused}");
    }
}
