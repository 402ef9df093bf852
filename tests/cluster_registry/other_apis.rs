//! Changes by the APIs that are not the vendors': what the object of a skill says after each of them.

use http::StatusCode;
use knack_api::Skill;
use kube::Api;
use serde_json::{Value, json};

use super::installation::Installation;
use super::litellm::{DOCUMENT, FIELDS, form};
use super::requests::{Dialect, Program, folder};
use super::{digest, until_ready};

/// A change, which must be answered with this status.
async fn change(team: &Program, (method, path): (&str, &str), body: Option<Value>, expected: StatusCode) -> String {
    let answer = team
        .send(Dialect::OpenAi, method, path, body.map(std::convert::Into::into))
        .await;
    assert_eq!(answer.status, expected, "{method} {path}: {}", answer.text());
    answer.text()
}

fn flow(text: &str) -> String {
    format!("---\nname: flow\ndescription: A flow.\n---\n  {text}: Zürich — as written.  \n\n")
}

/// Agent Flow's: one text, kept as it was written; each update is a version.
async fn by_agent_flow(installation: &Installation, team: &Program, skills: &Api<Skill>) {
    let (list, path) = ("/api/v1/skills", "/api/v1/skills/flow");
    let created = json!({"name": "flow", "content": flow("One")});
    change(team, ("POST", list), Some(created.clone()), StatusCode::CREATED).await;
    let refused = change(team, ("POST", list), Some(created), StatusCode::CONFLICT).await;
    assert!(refused.contains("\"field\":\"name\""), "{refused}");
    assert_eq!(
        team.json(Dialect::OpenAi, "GET", path).await["raw_content"],
        flow("One"),
        "verbatim"
    );
    let first = digest(&skills.get("flow").await.unwrap());
    change(
        team,
        ("PUT", path),
        Some(json!({"content": flow("Two")})),
        StatusCode::OK,
    )
    .await;
    assert_eq!(
        team.json(Dialect::OpenAi, "GET", path).await["raw_content"],
        flow("Two"),
        "verbatim"
    );
    let now = skills.get("flow").await.unwrap();
    assert_ne!(digest(&now), first, "the update is what is served");
    assert_eq!(digest(&skills.get("flow-v1").await.unwrap()), first);
    until_ready(skills, "flow", &digest(&now)).await;
    let name = json!({"content": flow("Two").replace("name: flow", "name: other")});
    change(team, ("PUT", path), Some(name), StatusCode::BAD_REQUEST).await;
    change(team, ("DELETE", path), None, StatusCode::NO_CONTENT).await;
    change(team, ("GET", path), None, StatusCode::NOT_FOUND).await;
    change(team, ("DELETE", path), None, StatusCode::NOT_FOUND).await;
    installation.until_gone("flow").await;
    assert!(skills.get_opt("flow").await.unwrap().is_none());
}

/// OmniRoute's: a mode is the activation of the object.
async fn by_omniroute(installation: &Installation, team: &Program, skills: &Api<Skill>) {
    let install = json!({
        "name": "row", "version": "1.0.0", "description": "A row.", "schema": {"input": {}},
        "handlerCode": "def handler():\n    return 'plover'\n",
    });
    let made = change(team, ("POST", "/api/skills/install"), Some(install), StatusCode::OK).await;
    let made: Value = serde_json::from_str(&made).unwrap();
    let path = format!("/api/skills/{}", made["id"].as_str().unwrap());
    for (patch, mode, activation) in [
        (json!({"mode": "off"}), "off", "Never"),
        (json!({"mode": "auto"}), "auto", "Auto"),
        (json!({"enabled": false}), "off", "Never"),
        (json!({"enabled": true}), "on", "Always"),
    ] {
        change(team, ("PUT", &path), Some(patch.clone()), StatusCode::OK).await;
        let object = serde_json::to_value(skills.get("row").await.unwrap()).unwrap();
        assert_eq!(object["spec"]["activation"]["mode"], activation, "{patch}");
        let row = team.json(Dialect::OpenAi, "GET", &path).await;
        assert_eq!((&row["mode"], &row["enabled"]), (&json!(mode), &json!(mode != "off")));
    }
    change(team, ("DELETE", &path), None, StatusCode::OK).await;
    installation.until_gone("row").await;
}

/// LiteLLM's: a record is deleted whole.
async fn by_litellm(installation: &Installation, team: &Program, skills: &Api<Skill>) {
    let sent = Some(form(&FIELDS, Some(DOCUMENT)));
    let made = team.send(Dialect::OpenAi, "POST", "/v1/skills", sent).await.json();
    let id = made["id"].as_str().unwrap();
    assert!(skills.get_opt("word").await.unwrap().is_some(), "{made}");
    let path = format!("/v1/skills/{id}");
    let gone = change(team, ("DELETE", &path), None, StatusCode::OK).await;
    let gone: Value = serde_json::from_str(&gone).unwrap();
    assert_eq!(gone, json!({"id": id, "type": "skill_deleted"}));
    change(team, ("GET", &path), None, StatusCode::NOT_FOUND).await;
    change(team, ("DELETE", &path), None, StatusCode::NOT_FOUND).await;
    installation.until_gone("word").await;
}

/// Of two creates of one name the API server takes one.
async fn at_once(team: &Program, skills: &Api<Skill>) {
    let create = async |text: &str| {
        let sent = Some(folder("twice", text));
        team.send(Dialect::OpenAi, "POST", "/v1/skills", sent).await
    };
    let (one, two) = tokio::join!(create("one"), create("two"));
    let [kept, refused] = if one.status == StatusCode::OK {
        [one, two]
    } else {
        [two, one]
    };
    assert_eq!(
        (kept.status, refused.status),
        (StatusCode::OK, StatusCode::CONFLICT),
        "{} {}",
        kept.text(),
        refused.text()
    );
    let list = team.json(Dialect::OpenAi, "GET", "/v1/skills").await;
    let ids: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|skill| skill["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, [kept.json()["id"].as_str().unwrap()], "{list}");
    let objects = skills.list(&kube::api::ListParams::default()).await.unwrap();
    assert_eq!(objects.items.len(), 1, "one object");
}

#[test]
fn agent_flow_omniroute_and_litellm_write_the_objects_of_a_cluster() {
    let test = "agent_flow_omniroute_and_litellm_write_the_objects_of_a_cluster";
    cluster_support::run(test, async |cluster| {
        let installation = Installation::start(cluster).await;
        let team = installation.client_of("team", "default").await;
        let skills: Api<Skill> = Api::namespaced(installation.client.clone(), &installation.team);
        by_agent_flow(&installation, &team, &skills).await;
        by_omniroute(&installation, &team, &skills).await;
        by_litellm(&installation, &team, &skills).await;
        at_once(&team, &skills).await;
    });
}
