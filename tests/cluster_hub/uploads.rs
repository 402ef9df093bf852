//! What a program uploads at one gateway, at every gateway: with a real registry, hub and cluster, and runs as Jobs.

use std::time::{Duration, Instant};

use cluster_support::{progress, run};
use knack_api::Skill;
use knack_mock_provider::{Script, spawn};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::chat::{chat, content};
use super::gateway_replicas::{Replica, owned};
use super::repeats::start_registry;
use super::support::{Installation, SOON};

/// A model that calls the tool which says a word, and repeats what it said.
const SCRIPT: &str = "
turns:
  - rounds:
      - when: {results: 0}
        reply: {calls: [{tool: {contains: say_word}, arguments: {}}]}
      - when: {}
        reply: {text: '{{results}}'}
";
/// How long the answer to a change waits at most until the gateway's catalog has it.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
/// How often a condition without a signal is asked for.
const POLL: Duration = Duration::from_millis(50);
/// The credential of the client.
const KEY: &str = "sk-mock";

/// The files of a skill whose tool says a word.
fn files(name: &str, version: &str, word: &str) -> [(&'static str, String); 2] {
    let document = format!(
        "---\nname: {name}\ndescription: Says a word.\nmetadata:\n  version: \"{version}\"\ntimeout_ms: 60000\ntools:\n  - name: say_word\n    \
         description: Says it.\n    command: [python3, say.py]\n---\nCall it.\n"
    );
    [("SKILL.md", document), ("say.py", format!("print('{word}')\n"))]
}

/// Uploads a version of `word` at a gateway: the answer, and how long it took.
async fn upload(port: u16, path: &str, (version, word): (&str, &str)) -> (u16, Value, Duration) {
    let boundary = "a-boundary";
    let mut body = String::new();
    let mut part = |head: &str, content: &str| {
        body += &format!("--{boundary}\r\ncontent-disposition: form-data; {head}\r\n\r\n{content}\r\n");
    };
    if path.ends_with("/versions") {
        part("name=\"default\"", "true");
    }
    for (path, content) in files("word", version, word) {
        part(&format!("name=\"files[]\"; filename=\"word/{path}\""), &content);
    }
    body += &format!("--{boundary}--\r\n");
    let begun = Instant::now();
    let request = reqwest::Client::new()
        .post(format!("http://127.0.0.1:{port}{path}"))
        .bearer_auth(KEY)
        .header("content-type", format!("multipart/form-data; boundary={boundary}"))
        .timeout(SOON)
        .body(body);
    let response = request.send().await.unwrap();
    let (status, text) = (response.status().as_u16(), response.text().await.unwrap());
    let answer = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, answer, begun.elapsed())
}

/// The same, once the rights of the gateway are known, and while the API server has time.
async fn uploaded(port: u16, path: &str, version: (&str, &str)) -> (Value, Duration) {
    let begun = Instant::now();
    loop {
        match upload(port, path, version).await {
            (200, answer, took) => return (answer, took),
            (403 | 503, answer, _) => assert!(begun.elapsed() < SOON, "{answer}"),
            (status, answer, _) => panic!("{status}: {answer}"),
        }
        tokio::time::sleep(POLL).await;
    }
}

/// What the tool of a skill says to a chat that names it; `None`: the gateway does not know it.
async fn says(port: u16, named: &str) -> Option<String> {
    let (status, text) = chat(port, "say it", Some(named)).await;
    assert!(status == 200 || status == 404, "{named}: {status} {text}");
    (status == 200).then(|| content(&text).trim().to_owned())
}

/// Chats until one says the expected word; until then it may say what was there before.
async fn until_says(port: u16, named: &str, expected: &str, before: &[&str]) {
    let begun = Instant::now();
    loop {
        match says(port, named).await {
            Some(word) if word == expected => return,
            Some(word) => assert!(before.contains(&&*word), "{named} says {word}, not {expected}"),
            None => {}
        }
        assert!(begun.elapsed() < SOON, "{named} does not say {expected}");
        tokio::time::sleep(POLL).await;
    }
}

/// Rights of the gateways' account: to Skills, and nothing else.
fn grant(installation: &Installation) {
    let tenant = installation.tenants[0].name();
    let verbs = "--verb=get,list,create,update,delete";
    let role = [
        "create",
        "role",
        "uploads",
        "--namespace",
        tenant,
        verbs,
        "--resource=skills.knack.dev",
    ];
    installation.cluster.kubectl(&role);
    let account = format!("--serviceaccount={tenant}:default");
    let binding = [
        "create",
        "rolebinding",
        "uploads",
        "--namespace",
        tenant,
        "--role=uploads",
        &account,
    ];
    installation.cluster.kubectl(&binding);
}

/// A Skill that somebody applies: the id by which requests may name it.
async fn applied(installation: &Installation) -> String {
    let files: serde_json::Map<String, Value> = { files("applied", "1.0.0", "godwit").into_iter() }
        .map(|(path, content)| (path.to_owned(), content.into()))
        .collect();
    let body = json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": "applied"},
        "spec": {"source": {"inline": {"files": files}}},
    });
    let api: Api<Skill> = Api::namespaced(installation.client.clone(), &installation.tenants[0]);
    let params = PatchParams::apply("hub-test").force();
    let object = api.patch("applied", &params, &Patch::Apply(&body)).await.unwrap();
    format!("skill_knack_{}", object.metadata.uid.unwrap().replace('-', ""))
}

/// The ids that LiteLLM's clients know skills by, as these name them: of the upload, and of the one that was applied under this id.
async fn records(replica: &Replica, applied: &str) -> (String, String) {
    let path = "/v1/skills?custom_llm_provider=litellm_proxy&limit=100";
    let (status, text) = replica.get(path, KEY).await;
    assert_eq!(status, 200, "{text}");
    let list: Value = serde_json::from_str(&text).unwrap();
    let rows = list["data"].as_array().unwrap().iter();
    let ids = rows.map(|row| row["id"].as_str().unwrap().to_owned());
    let is_applied = |id: &String| applied.ends_with(&id.trim_start_matches("litellm_skill_").replace('-', ""));
    let (of_applied, of_upload): (Vec<String>, Vec<String>) = ids.partition(is_applied);
    assert_eq!((of_upload.len(), of_applied.len()), (1, 1), "{list}");
    (of_upload[0].clone(), of_applied[0].clone())
}

/// What the tool of a version says to a program.
async fn ran(port: u16, reference: &str) -> String {
    let request = reqwest::Client::new()
        .post(format!("http://127.0.0.1:{port}/api/skills/executions"))
        .bearer_auth(KEY)
        .header("content-type", "application/json")
        .timeout(SOON)
        .body(json!({"skillName": reference, "input": {}}).to_string());
    let text = request.send().await.unwrap().text().await.unwrap();
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["execution"]["status"], "success", "{reference}: {answer}");
    answer["execution"]["output"].as_str().unwrap().trim().to_owned()
}

#[test]
fn an_upload_at_one_gateway_is_used_at_every_gateway_in_the_version_that_is_named() {
    let test = "an_upload_at_one_gateway_is_used_at_every_gateway_in_the_version_that_is_named";
    run(test, async |cluster| {
        let installation = Installation::start(cluster, 1, json!({})).await;
        grant(&installation);
        let hub = installation.tenant(0).await;
        owned(&installation, &hub).await;
        let (_registry, address) = start_registry(&installation).await;
        let mock = spawn(Script::parse(SCRIPT).unwrap()).await.unwrap();
        let more = [format!("--registry={address}")];
        let gateway = async |name| Replica::start_at(&installation, &installation.url(), &mock, (name, 0), &more).await;
        let (one, two) = (gateway("one").await, gateway("two").await);

        let (made, took) = uploaded(one.port, "/v1/skills", ("1.0.0", "plover")).await;
        let id = made["id"].as_str().unwrap().to_owned();
        // The next request of the same client: the answer waited for that, within its bound.
        let next = says(one.port, "word").await;
        assert!(
            next.as_deref() == Some("plover") || (next.is_none() && took >= SHOWN_WITHIN),
            "{next:?} after {took:?}"
        );
        tokio::join!(
            until_says(one.port, "word", "plover", &[]),
            until_says(two.port, "word", "plover", &[])
        );
        progress("the first version is used at both gateways");

        let path = format!("/v1/skills/{id}/versions");
        let (second, took) = uploaded(one.port, &path, ("2.0.0", "avocet")).await;
        assert_eq!(second["version"], "2", "{second}");
        let next = says(one.port, "word").await;
        assert!(
            next.as_deref() == Some("avocet") || took >= SHOWN_WITHIN,
            "{next:?} after {took:?}"
        );
        for replica in [&one, &two] {
            // By its name the new one; by the constraint never another than the old one.
            tokio::join!(
                until_says(replica.port, "word", "avocet", &["plover"]),
                until_says(replica.port, "word@^1", "plover", &[])
            );
            assert_eq!(ran(replica.port, "word@^1").await, "plover");
        }
        progress("both versions are used at both gateways");

        // By the other ids that a gateway of a cluster knows.
        let of_applied = applied(&installation).await;
        until_says(two.port, &of_applied, "godwit", &[]).await;
        let (record, record_of_applied) = records(&two, &of_applied).await;
        tokio::join!(
            until_says(two.port, &record, "avocet", &[]),
            until_says(two.port, &record_of_applied, "godwit", &[])
        );
        assert_eq!(ran(two.port, "word").await, "avocet");
    });
}
