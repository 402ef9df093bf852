//! What is shown before it is kept, and who is shown what: dry runs of an install, an index as a catalog, the index for installers.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, Uri};
use knack_api::Skill;
use knack_skill::digest::sha256;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::installation::Installation;
use super::requests::{Answer, Dialect, Program};

const INDEX: &str = "/.well-known/agent-skills/index.json";

fn document(text: &str) -> String {
    format!("---\nname: word\ndescription: Says a word.\n---\n{text}\n")
}

/// Who asks, in the namespace of the team.
struct Callers {
    /// May do everything.
    team: Program,
    /// May `get` and `list`.
    reader: Program,
    /// May `list` and nothing else.
    lister: Program,
    /// May nothing.
    stranger: Program,
}

impl Callers {
    async fn of(installation: &Installation) -> Self {
        let named = async |account: &str| {
            let mut program = installation.client_of("other", account).await;
            program.url = format!("{}/namespaces/{}", program.url, &*installation.team);
            program
        };
        Self {
            team: installation.client_of("team", "default").await,
            reader: named("reader").await,
            lister: named("lister").await,
            stranger: installation.client_of("team", "stranger").await,
        }
    }
}

async fn install(program: &Program, version: &str, is_dry_run: bool) -> Answer {
    let schema = json!({"input": {}, "output": {}});
    let mut body = json!({
        "name": "word", "version": version, "description": "d", "schema": schema,
        "handlerCode": document(&format!("It is {version}.")),
    });
    if is_dry_run {
        body["dryRun"] = true.into();
    }
    let path = "/api/skills/install";
    program.send(Dialect::OpenAi, "POST", path, Some(body.into())).await
}

/// The text of an error of this API.
fn refusal(answer: &Answer) -> (StatusCode, String) {
    let text = answer.json()["error"].as_str().unwrap_or_default().to_owned();
    (answer.status, text)
}

/// The spec, annotations and number of the Skills.
async fn kept(skills: &Api<Skill>) -> Vec<(Value, Value)> {
    let list = skills.list(&ListParams::default()).await.unwrap();
    let of = |skill: &Skill| (serde_json::to_value(&skill.spec).unwrap(), json!(skill.annotations()));
    list.items.iter().map(of).collect()
}

async fn dry_runs(callers: &Callers, skills: &Api<Skill>) {
    let preview = install(&callers.team, "1.0.0", true).await;
    assert_eq!(preview.status, StatusCode::OK, "{}", preview.text());
    let preview = preview.json();
    assert_eq!(
        (&preview["dryRun"], &preview["change"]),
        (&json!(true), &json!("create")),
        "{preview}"
    );
    assert_eq!(kept(skills).await, [], "nothing is stored");
    for who in [&callers.reader, &callers.stranger] {
        let (status, text) = refusal(&install(who, "1.0.0", true).await);
        assert!(
            status == StatusCode::FORBIDDEN && text.contains("may not create"),
            "{status} {text}"
        );
    }

    let done = install(&callers.team, "1.0.0", false).await;
    assert_eq!(done.status, StatusCode::OK, "{}", done.text());
    let before = kept(skills).await;
    assert_eq!(before.len(), 1);
    let preview = install(&callers.team, "1.1.0", true).await.json();
    assert_eq!(
        (&preview["change"], &preview["id"]),
        (&json!("update"), &done.json()["id"]),
        "{preview}"
    );
    let diff = preview["diff"].as_str().unwrap();
    assert!(
        diff.contains("-It is 1.0.0.") && diff.contains("+It is 1.1.0."),
        "{diff}"
    );
    let (status, text) = refusal(&install(&callers.reader, "1.1.0", true).await);
    assert!(
        status == StatusCode::FORBIDDEN && text.contains("may not update"),
        "{status} {text}"
    );
    assert_eq!(kept(skills).await, before, "nothing is stored");
}

/// The skill is there; whose rights show its name and digest, and whose its content.
async fn installers(callers: &Callers) {
    let get = async |program: &Program, path: &str| program.send(Dialect::OpenAi, "GET", path, None).await;
    for who in [&callers.team, &callers.reader, &callers.lister] {
        let index = get(who, INDEX).await;
        assert_eq!(index.status, StatusCode::OK, "{}", index.text());
        let index = index.json();
        let skill = &index["skills"][0];
        assert_eq!(
            (&skill["name"], index["skills"].as_array().unwrap().len()),
            (&json!("word"), 1),
            "{index}"
        );
        // A path of this host, below the namespace that the caller has named.
        let path = skill["url"].as_str().unwrap();
        let root = Program {
            url: who.url.split("/namespaces/").next().unwrap().to_owned(),
            ..who.clone()
        };
        let file = get(&root, path).await;
        if std::ptr::eq(who, &raw const callers.lister) {
            assert_eq!(file.status, StatusCode::NOT_FOUND, "{path}: {}", file.text());
            continue;
        }
        assert_eq!(file.status, StatusCode::OK, "{path}: {}", file.text());
        assert_eq!(skill["digest"], json!(format!("sha256:{}", sha256(&file.body))));
    }
    let refused = get(&callers.stranger, INDEX).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.text());
    let nobody = get(&callers.team.with_token("nonsense"), INDEX).await;
    assert_eq!(nobody.status, StatusCode::UNAUTHORIZED, "{}", nobody.text());
}

/// The site of an index: `other` is as the index says, `changed` is not any more.
#[derive(Clone, Default)]
struct Site {
    asked: Arc<Mutex<Vec<String>>>,
}

async fn answer(State(site): State<Site>, uri: Uri) -> Response {
    site.asked.lock().unwrap().push(uri.path().to_owned());
    let file = |name: &str| format!("---\nname: {name}\ndescription: Of an index.\n---\nText.\n");
    let entry = |name: &str, reviewed: &str| {
        json!({"name": name, "type": "skill-md", "description": "Of an index.", "url": format!("/files/{name}"),
            "digest": format!("sha256:{}", sha256(reviewed.as_bytes()))})
    };
    match uri.path() {
        INDEX => {
            let skills = [entry("other", &file("other")), entry("changed", "as it was reviewed")];
            let schema = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";
            json!({"$schema": schema, "skills": skills}).to_string().into_response()
        }
        path => match path.strip_prefix("/files/") {
            Some(name) => file(name).into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        },
    }
}

async fn index_as_catalog(callers: &Callers, skills: &Api<Skill>, site: &Site) {
    let install = async |program: &Program, name: &str| {
        let body = json!({"name": name, "version": "1.0.0"});
        let path = "/api/skills/index/install";
        program.send(Dialect::OpenAi, "POST", path, Some(body.into())).await
    };
    let search = async |program: &Program| {
        program
            .send(Dialect::OpenAi, "GET", "/api/skills/index?q=other", None)
            .await
    };
    for who in [&callers.reader, &callers.lister, &callers.stranger] {
        for refused in [search(who).await, install(who, "other").await] {
            let (status, text) = refusal(&refused);
            assert!(
                status == StatusCode::FORBIDDEN && text.contains("neither create nor update"),
                "{status} {text}"
            );
        }
    }
    assert_eq!(*site.asked.lock().unwrap(), [""; 0], "nothing was fetched for them");

    let found = search(&callers.team).await;
    assert_eq!(found.status, StatusCode::OK, "{}", found.text());
    assert_eq!(found.json()["skills"][0]["name"], "other", "{}", found.text());
    let changed = install(&callers.team, "changed").await;
    assert_ne!(changed.status, StatusCode::OK, "{}", changed.text());
    assert!(refusal(&changed).1.contains("digest"), "{}", changed.text());
    assert!(skills.get_opt("changed").await.unwrap().is_none());
    let done = install(&callers.team, "other").await;
    assert_eq!(done.status, StatusCode::OK, "{}", done.text());
    let object = skills.get("other").await.unwrap();
    let by = &object.annotations()["knack.dev/uploaded-by"];
    assert!(by.ends_with(":default"), "{by}");
    let path = format!("/api/skills/{}", done.json()["id"].as_str().unwrap());
    let row = callers.team.json(Dialect::OpenAi, "GET", &path).await;
    assert_eq!(row["sourceProvider"], "index", "{row}");
}

#[test]
fn dry_runs_an_index_and_installers_are_for_whom_rbac_lets() {
    cluster_support::run(
        "dry_runs_an_index_and_installers_are_for_whom_rbac_lets",
        async |cluster| {
            let mut installation = Installation::start(cluster).await;
            let site = Site::default();
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}{INDEX}", listener.local_addr().unwrap());
            let router = Router::new().fallback(answer).with_state(site.clone());
            tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
            installation.kill_registry();
            installation.words = vec!["--catalog=index".to_owned(), format!("--catalog-url={url}")];
            installation.start_registry().await;

            let callers = Callers::of(&installation).await;
            let skills: Api<Skill> = Api::namespaced(installation.client.clone(), &installation.team);
            dry_runs(&callers, &skills).await;
            installers(&callers).await;
            index_as_catalog(&callers, &skills, &site).await;
        },
    );
}
