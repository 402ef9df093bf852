//! What LiteLLM's clients send beside the files of a skill is kept with its object, and told by whichever process is asked.

use http::StatusCode;
use knack_api::Skill;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::installation::Installation;
use super::requests::{Dialect, Sent};
use super::{digest, until_ready};

const LIST: &str = "/v1/skills?custom_llm_provider=litellm_proxy";
/// What is sent beside the files.
pub(super) const FIELDS: [(&str, &str); 5] = [
    ("custom_llm_provider", "litellm_proxy"),
    ("display_title", "My Wörd"),
    ("description", "Says what the client wrote."),
    ("instructions", "Say it twice."),
    ("metadata", r#"{"team": "blue", "parameters": {"type": "object"}}"#),
];
pub(super) const DOCUMENT: &str = "---\nname: word\ndescription: Says what its file wrote.\n---\nThe word is plover.\n";

pub(super) fn form(fields: &[(&str, &str)], document: Option<&str>) -> Sent {
    let boundary = "a-boundary";
    let mut body = String::new();
    let mut part = |head: &str, content: &str| {
        body += &format!("--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n{content}\r\n");
    };
    for (name, value) in fields {
        part(&format!("name=\"{name}\""), value);
    }
    if let Some(document) = document {
        let head = "name=\"files\"; filename=\"word/SKILL.md\"\r\nContent-Type: text/markdown";
        part(head, document);
    }
    body += &format!("--{boundary}--\r\n");
    Sent::Form(boundary.to_owned(), body.into_bytes())
}

#[test]
fn title_and_description_of_a_record_are_kept_with_its_object() {
    let test = "title_and_description_of_a_record_are_kept_with_its_object";
    cluster_support::run(test, async |cluster| {
        let mut installation = Installation::start(cluster).await;
        let team = installation.client_of("team", "default").await;
        let sent = form(&FIELDS, Some(DOCUMENT));
        let made = team.send(Dialect::OpenAi, "POST", "/v1/skills", Some(sent)).await;
        assert_eq!(made.status, StatusCode::OK, "{}", made.text());
        let made = made.json();
        let expected = json!({
            "display_title": FIELDS[1].1, "description": FIELDS[2].1, "instructions": FIELDS[3].1,
            "metadata": serde_json::from_str::<Value>(FIELDS[4].1).unwrap(), "file_name": "word/SKILL.md",
            "file_type": "text/markdown",
        });
        let said = |record: &Value| {
            let members = expected.as_object().unwrap().keys();
            Value::Object(members.map(|member| (member.clone(), record[member].clone())).collect())
        };
        assert_eq!(said(&made), expected);

        // In the object: nothing else is kept of it.
        let skills: Api<Skill> = Api::namespaced(installation.client.clone(), &installation.team);
        let object = skills.get("word").await.unwrap();
        let kept: Value = serde_json::from_str(&object.annotations()["knack.dev/upload"]).unwrap();
        assert_eq!(
            (&kept["record"]["title"], &kept["record"]["versions"][0]["description"]),
            (&json!(FIELDS[1].1), &json!(FIELDS[2].1)),
            "{kept}"
        );
        // Whoever reads the Skill, and models, are told what the files say.
        until_ready(&skills, "word", &digest(&object)).await;
        let status = skills.get("word").await.unwrap().status.unwrap();
        assert_eq!(status.description.as_deref(), Some("Says what its file wrote."));

        // Another process tells the same, in LiteLLM's words and in the vendors'.
        installation.kill_registry();
        installation.start_registry().await;
        let id = made["id"].as_str().unwrap();
        let got = team.json(Dialect::OpenAi, "GET", &format!("/v1/skills/{id}")).await;
        assert_eq!(got, made);
        let list = team.json(Dialect::OpenAi, "GET", LIST).await;
        assert_eq!(list["data"], json!([made]));
        let by_vendor = team.json(Dialect::Anthropic, "GET", "/v1/skills").await;
        assert_eq!(by_vendor["data"][0]["display_name"], FIELDS[1].1, "{by_vendor}");

        // Without files there is nothing that models could be shown.
        let bare = form(&FIELDS, None);
        let refused = team.send(Dialect::OpenAi, "POST", "/v1/skills", Some(bare)).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.text());
    });
}
