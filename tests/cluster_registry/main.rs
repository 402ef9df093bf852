//! The registry on a real cluster, with the rights and rules that the chart gives it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on ends by panicking"
)]

mod catalogs;
mod claims;
mod files;
mod installation;
mod large;
mod litellm;
mod offered;
mod other_apis;
mod pins;
#[path = "../support/port.rs"]
mod port;
mod requests;

use std::time::Duration;

use http::StatusCode;
use knack_api::Skill;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use installation::Installation;
use requests::{Dialect, Program, Sent, folder};

/// What a Skill says once the controller has delivered it.
async fn until_ready(api: &Api<Skill>, name: &str, digest: &str) {
    let ready = async {
        loop {
            let skill = api.get_opt(name).await.unwrap();
            let status = skill.and_then(|skill| skill.status).unwrap_or_default();
            if status.artifact.is_some_and(|artifact| artifact.digest == digest) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let found = tokio::time::timeout(installation::SOON, ready).await;
    assert!(found.is_ok(), "{name} is not delivered: {:?}", api.get_opt(name).await);
}

/// How often many uploads are sent at once.
const ROUNDS: usize = 5;

/// The digest that a Skill's source has.
fn digest(skill: &Skill) -> String {
    skill.spec.source.upload.clone().unwrap().digest
}

/// Creates a skill, in one dialect, and reads it in the other: its id.
async fn create_and_read(team: &Program, skills: &Api<Skill>) -> String {
    let made = team
        .send(Dialect::OpenAi, "POST", "/v1/skills", Some(folder("draw", "one")))
        .await;
    assert_eq!(made.status, StatusCode::OK, "{}", made.text());
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let read = team.json(Dialect::Anthropic, "GET", &format!("/v1/skills/{id}")).await;
    assert_eq!(
        (read["type"].as_str(), read["id"].as_str()),
        (Some("skill"), Some(id.as_str()))
    );
    let object = skills.get("draw").await.unwrap();
    assert!(object.spec.ids.clone().unwrap().contains(&id));
    until_ready(skills, "draw", &digest(&object)).await;
    id
}

/// Another version, served by request only; then it is the default.
async fn add_a_version(team: &Program, skills: &Api<Skill>, id: &str) {
    let path = format!("/v1/skills/{id}/versions");
    let second = team
        .send(Dialect::OpenAi, "POST", &path, Some(folder("draw", "two")))
        .await;
    assert_eq!(second.json()["version"], "2", "{}", second.text());
    let of_second = skills.get("draw-v2").await.unwrap();
    until_ready(skills, "draw-v2", &digest(&of_second)).await;
    let set = team
        .send(
            Dialect::OpenAi,
            "POST",
            &format!("/v1/skills/{id}"),
            Some(json!({"default_version": "2"}).into()),
        )
        .await;
    assert_eq!(set.json()["default_version"], "2", "{}", set.text());
    until_ready(skills, "draw", &digest(&of_second)).await;
    assert!(skills.get_opt("draw-v2").await.unwrap().is_none() && skills.get_opt("draw-v1").await.unwrap().is_some());
    let content = team
        .send(
            Dialect::OpenAi,
            "GET",
            &format!("/v1/skills/{id}/versions/1/content"),
            None,
        )
        .await;
    assert_eq!(content.status, StatusCode::OK);
    assert!(content.body.starts_with(b"PK"));
}

/// The other dialects have the same skills.
async fn read_in_other_dialects(team: &Program) {
    let rows = team.json(Dialect::OpenAi, "GET", "/api/skills").await;
    assert_eq!(rows["data"][0]["name"], "draw", "{rows}");
    let flow = team.json(Dialect::OpenAi, "GET", "/api/v1/skills/draw").await;
    assert_eq!(flow["name"], "draw", "{flow}");
    let records = team
        .json(Dialect::OpenAi, "GET", "/v1/skills?custom_llm_provider=litellm_proxy")
        .await;
    assert!(
        records["data"][0]["id"].as_str().unwrap().starts_with("litellm_skill_"),
        "{records}"
    );
}

/// One that somebody applies is listed, read and downloaded, and never changed.
async fn read_what_is_applied(installation: &Installation, team: &Program, skills: &Api<Skill>) {
    installation.apply("applied");
    let applied = skills.get("applied").await.unwrap();
    let of_applied = format!("skill_knack_{}", applied.metadata.uid.unwrap().replace('-', ""));
    let listed = async {
        loop {
            let content = team
                .send(
                    Dialect::OpenAi,
                    "GET",
                    &format!("/v1/skills/{of_applied}/content"),
                    None,
                )
                .await;
            if content.status == StatusCode::OK {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(installation::SOON, listed)
        .await
        .expect("it is downloaded");
    let list = team.json(Dialect::OpenAi, "GET", "/v1/skills").await;
    assert_eq!(list["data"].as_array().unwrap().len(), 2, "{list}");
    let refused = team
        .send(Dialect::OpenAi, "DELETE", &format!("/v1/skills/{of_applied}"), None)
        .await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.text().contains("kubectl"), "{}", refused.text());
}

/// Somebody edits an uploaded one: from then on it is theirs.
async fn refuse_what_others_edit(team: &Program, skills: &Api<Skill>, id: &str) {
    let edit = Patch::Merge(json!({"spec": {"suspend": true}}));
    let by = PatchParams {
        field_manager: Some("kubectl-edit".to_owned()),
        ..PatchParams::default()
    };
    skills.patch("draw", &by, &edit).await.unwrap();
    let refused = team
        .send(Dialect::Anthropic, "DELETE", &format!("/v1/skills/{id}"), None)
        .await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.text());
    assert!(refused.text().contains("kubectl-edit"), "{}", refused.text());
}

/// Deletes go to everything that is the skill's.
async fn delete_whole(installation: &Installation, team: &Program) {
    let other = team
        .send(Dialect::Anthropic, "POST", "/v1/skills", Some(folder("gone", "x")))
        .await;
    let id = other.json()["id"].as_str().unwrap().to_owned();
    let more = team
        .send(
            Dialect::Anthropic,
            "POST",
            &format!("/v1/skills/{id}/versions"),
            Some(folder("gone", "y")),
        )
        .await;
    assert_eq!(more.status, StatusCode::OK, "{}", more.text());
    let deleted = team
        .send(Dialect::Anthropic, "DELETE", &format!("/v1/skills/{id}"), None)
        .await;
    assert_eq!(deleted.status, StatusCode::OK, "{}", deleted.text());
    let missing = team
        .send(Dialect::Anthropic, "GET", &format!("/v1/skills/{id}"), None)
        .await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    installation.until_gone("gone").await;
}

#[test]
fn what_a_program_uploads_is_a_skill_and_what_is_applied_is_read() {
    cluster_support::run(
        "what_a_program_uploads_is_a_skill_and_what_is_applied_is_read",
        async |cluster| {
            let installation = Installation::start(cluster).await;
            let team = installation.client_of("team", "default").await;
            let skills: Api<Skill> = Api::namespaced(installation.client.clone(), &installation.team);
            let id = create_and_read(&team, &skills).await;
            add_a_version(&team, &skills, &id).await;
            read_in_other_dialects(&team).await;
            read_what_is_applied(&installation, &team, &skills).await;
            refuse_what_others_edit(&team, &skills, &id).await;
            delete_whole(&installation, &team).await;
        },
    );
}

#[test]
fn callers_do_what_rbac_lets_them() {
    cluster_support::run("callers_do_what_rbac_lets_them", async |cluster| {
        let installation = Installation::start(cluster).await;
        let team = installation.client_of("team", "default").await;
        let made = team
            .send(Dialect::OpenAi, "POST", "/v1/skills", Some(folder("draw", "one")))
            .await;
        let path = format!("/v1/skills/{}", made.json()["id"].as_str().unwrap());
        // From another namespace: nothing, unless it may.
        let stranger = installation.client_of("team", "stranger").await;
        for (method, path, expected) in [
            ("GET", "/v1/skills", StatusCode::FORBIDDEN),
            ("GET", path.as_str(), StatusCode::NOT_FOUND),
            ("DELETE", path.as_str(), StatusCode::NOT_FOUND),
        ] {
            let answer = stranger.send(Dialect::Anthropic, method, path, None).await;
            assert_eq!(answer.status, expected, "{method} {path}: {}", answer.text());
            assert_eq!(answer.json()["type"], "error", "{}", answer.text());
        }
        let refused = stranger
            .send(Dialect::OpenAi, "POST", "/v1/skills", Some(folder("more", "one")))
            .await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.text());
        let reader = installation.client_of("other", "reader").await;
        let named = |path: &str| format!("/namespaces/{}{path}", &*installation.team);
        let read = reader.send(Dialect::OpenAi, "GET", &named(&path), None).await;
        assert_eq!(read.status, StatusCode::OK, "{}", read.text());
        let listed = reader.json(Dialect::OpenAi, "GET", &named("/v1/skills")).await;
        assert_eq!(listed["data"].as_array().unwrap().len(), 1);
        let refused = reader.send(Dialect::OpenAi, "DELETE", &named(&path), None).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.text());
        let own = reader.send(Dialect::OpenAi, "GET", &path, None).await;
        assert_eq!(own.status, StatusCode::NOT_FOUND, "{}", own.text());
        // Nobody, and a token for another audience.
        for token in [
            "",
            "nonsense",
            &installation.token("team", "default", "knack-gateway").await,
        ] {
            let answer = team
                .with_token(token)
                .send(Dialect::OpenAi, "GET", "/v1/skills", None)
                .await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{}", answer.text());
            assert_eq!(answer.json()["error"]["code"], "invalid_api_key", "{}", answer.text());
        }
    });
}

/// Whether an archive is what [`folder`] makes of this text, to the byte.
fn is_folder(archive: &[u8], text: &str) -> bool {
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(archive)).unwrap();
    let mut file = |path: &str| {
        let mut content = Vec::new();
        let mut file = archive.by_name(&format!("draw/{path}")).unwrap();
        std::io::Read::read_to_end(&mut file, &mut content).unwrap();
        content
    };
    requests::files("draw", text)
        .iter()
        .all(|(path, content)| file(path) == content.as_bytes())
}

#[test]
fn an_upload_that_is_killed_leaves_an_old_or_a_new_skill_and_many_changes_are_429() {
    let name = "an_upload_that_is_killed_leaves_an_old_or_a_new_skill_and_many_changes_are_429";
    cluster_support::run(name, async |cluster| {
        let mut installation = Installation::start(cluster).await;
        let team = installation.client_of("team", "default").await;
        let made = team
            .send(Dialect::OpenAi, "POST", "/v1/skills", Some(folder("draw", "one")))
            .await;
        let id = made.json()["id"].as_str().unwrap().to_owned();
        let path = format!("/v1/skills/{id}/versions?");
        let mut sent = vec!["one".to_owned()];
        for pause in [5, 20, 40] {
            sent.push(format!("text {pause}"));
            let upload = team.try_send(
                Dialect::Anthropic,
                "POST",
                &path,
                Some(folder("draw", sent.last().unwrap())),
            );
            let cut = tokio::time::timeout(Duration::from_millis(pause), upload).await;
            installation.kill_registry();
            installation.start_registry().await;
            let now = team.json(Dialect::OpenAi, "GET", &format!("/v1/skills/{id}")).await;
            let latest = now["latest_version"].as_str().unwrap().to_owned();
            // Every version that there is is whole, and one of those that were sent, in their order.
            let mut known = sent.iter();
            for number in 1..=latest.parse::<u32>().unwrap() {
                let path = format!("/v1/skills/{id}/versions/{number}/content");
                let content = team.send(Dialect::OpenAi, "GET", &path, None).await;
                assert_eq!(content.status, StatusCode::OK, "{number}: {}", content.text());
                let is_sent = known.any(|text| is_folder(&content.body, text));
                assert!(is_sent, "version {number} is none that was sent");
            }
            if let Ok(Some(answer)) = cut {
                assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
                assert!(known.next().is_none(), "what was answered is there");
            }
        }
        // More at once than one namespace may have under way. They do not come at once where the registry gets more of the machine
        // than they do; then more follow.
        let (mut refused, mut kept) = (Vec::new(), vec!["draw".to_owned()]);
        for round in 0..ROUNDS {
            let names: Vec<String> = (0..12).map(|number| format!("many-{round}-{number}")).collect();
            let sent = names
                .iter()
                .map(|name| team.send(Dialect::OpenAi, "POST", "/v1/skills", Some(folder(name, "x"))));
            let answers = futures::future::join_all(sent).await;
            for (name, answer) in names.into_iter().zip(answers) {
                if answer.status == StatusCode::TOO_MANY_REQUESTS {
                    refused.push(answer);
                } else {
                    // A second try of one that was made, whose first answer was that there was no time, is a conflict.
                    let is_kept = matches!(answer.status, StatusCode::OK | StatusCode::CONFLICT);
                    assert!(is_kept, "{name}: {}", answer.text());
                    kept.push(name);
                }
            }
            if !refused.is_empty() {
                break;
            }
        }
        assert!(!refused.is_empty() && refused.len() <= 8, "{} of 12", refused.len());
        for answer in &refused {
            assert!(answer.headers.contains_key("retry-after"));
            assert_eq!(answer.json()["error"]["code"], "rate_limit_exceeded");
        }
        // What was answered is there, and nothing else.
        let list = team.json(Dialect::OpenAi, "GET", "/v1/skills?limit=100").await;
        let listed = list["data"].as_array().unwrap().iter();
        let mut listed: Vec<&str> = listed.map(|skill| skill["name"].as_str().unwrap()).collect();
        listed.sort_unstable();
        kept.sort_unstable();
        assert_eq!(listed, kept);
        let metrics = installation.metrics().await;
        let line = format!(
            "knack_registry_requests_total{{api=\"openai\",status=\"429\"}} {}",
            refused.len()
        );
        assert!(metrics.contains(&line), "{metrics}");
    });
}

/// What a gateway reports of a run.
fn report(id: &str, caller: &str) -> Sent {
    let execution = json!({
        "id": id, "caller": caller, "skill": null, "tool": "run_code", "request": "r", "input": {"code": "1"}, "output": "1",
        "status": "success", "error": null, "durationMs": 5, "created": jiff::Timestamp::now().as_microsecond(),
    });
    json!({"executions": [execution]}).into()
}

#[test]
fn gateways_report_runs_of_their_own_account_and_the_history_outlives_the_registry() {
    let test = "gateways_report_runs_of_their_own_account_and_the_history_outlives_the_registry";
    cluster_support::run(test, async |cluster| {
        let mut installation = Installation::start(cluster).await;
        let team = installation.client_of("team", "default").await;
        let stranger = installation.client_of("team", "stranger").await;
        let path = "/knack/v1/executions";
        let ids = async |of: &requests::Program| {
            let page = of.json(Dialect::OpenAi, "GET", "/api/skills/executions").await;
            let rows = page["data"].as_array().unwrap().clone();
            rows.iter()
                .map(|row| row["id"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        for (of, id, caller) in [
            (&team, "a", "11"),
            (&team, "b", "22"),
            (&stranger, "c", "11"),
            (&stranger, "a", "11"),
        ] {
            let taken = of.send(Dialect::OpenAi, "POST", path, Some(report(id, caller))).await;
            assert_eq!(taken.status, StatusCode::NO_CONTENT, "{}", taken.text());
        }
        for (token, expected) in [
            (String::new(), StatusCode::UNAUTHORIZED),
            (
                installation.token("team", "default", "knack-gateway").await,
                StatusCode::UNAUTHORIZED,
            ),
        ] {
            let refused = team
                .with_token(&token)
                .send(Dialect::OpenAi, "POST", path, Some(report("d", "11")))
                .await;
            assert_eq!(refused.status, expected, "{}", refused.text());
        }
        installation.kill_registry();
        installation.start_registry().await;
        assert_eq!(ids(&team).await, ["b", "a"]);
        assert_eq!(
            ids(&stranger).await,
            ["c"],
            "no right on skills is needed for what is one's own, and no id takes another's place"
        );
        // What a gateway sends on for one of its clients is that client's alone, and nothing that a gateway says of itself.
        for (client, expected) in [("11", vec!["a"]), ("22", vec!["b"]), ("33", vec![])] {
            let client = team.for_client(client);
            assert_eq!(ids(&client).await, expected, "{:?}", client.client);
            for path in [path, "/knack/v1/executions/claims", "/knack/v1/files"] {
                let refused = client
                    .send(Dialect::OpenAi, "POST", path, Some(report("e", "11")))
                    .await;
                assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}: {}", refused.text());
            }
        }
        assert_eq!(ids(&team).await, ["b", "a"], "nothing was added");
        let other = stranger
            .send(Dialect::OpenAi, "GET", "/api/skills/executions/a", None)
            .await;
        assert_eq!(other.status, StatusCode::NOT_FOUND, "{}", other.text());
        let named = format!("/namespaces/{}/api/skills/executions", &*installation.other);
        let refused = team.send(Dialect::OpenAi, "GET", &named, None).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.text());
        let metrics = installation.metrics().await;
        assert!(
            metrics.contains("\nknack_registry_executions_dropped_total 0\n"),
            "{metrics}"
        );
    });
}

/// The python that has an SDK, made before the test moves into the cluster's network.
fn python(requirements: &str) -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = std::process::Command::new(root.join("tools/environment.sh"))
        .args(["sdk", &format!("tests/sdk/{requirements}")])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

#[test]
fn the_official_sdks_upload_to_a_cluster_unchanged() {
    let test = "the_official_sdks_upload_to_a_cluster_unchanged";
    if std::env::var_os("KNACK_NO_CLUSTER").is_some_and(|word| word == "1") {
        cluster_support::skip(test, "KNACK_NO_CLUSTER=1");
        return;
    }
    let pythons = ["requirements-openai.txt", "requirements-anthropic-2.txt"].map(python);
    cluster_support::run(test, async |cluster| {
        let installation = Installation::start(cluster).await;
        let token = installation.token("team", "default", "knack").await;
        for python in pythons {
            let program = tokio::process::Command::new(&python)
                .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster_registry/sdk.py"))
                .env("URL", installation.url())
                .env("TOKEN", &token)
                .env("CA", installation.authorities_file())
                .env("PYTHONDONTWRITEBYTECODE", "1")
                .output();
            let ended = tokio::time::timeout(installation::SOON, program)
                .await
                .unwrap()
                .unwrap();
            assert!(
                ended.status.success(),
                "{python}: {}",
                String::from_utf8_lossy(&ended.stderr)
            );
        }
    });
}

#[test]
fn the_registrys_rights_reach_what_was_uploaded_and_nothing_else() {
    let test = "the_registrys_rights_reach_what_was_uploaded_and_nothing_else";
    cluster_support::run(test, async |cluster| {
        let installation = Installation::start(cluster).await;
        let team = installation.client_of("team", "default").await;
        let made = team
            .send(Dialect::OpenAi, "POST", "/v1/skills", Some(folder("draw", "one")))
            .await;
        assert_eq!(made.status, StatusCode::OK, "{}", made.text());
        installation.apply("applied");
        cluster.kubectl(&[
            "create",
            "configmap",
            "settings",
            "-n",
            &installation.team,
            "--from-literal=a=b",
        ]);
        for words in [
            &["delete", "skill", "applied"][..],
            &["delete", "configmap", "settings"],
            &["create", "configmap", "more", "--from-literal=a=b"],
            &["label", "configmap", "settings", "knack.dev/upload=draw"],
            &["delete", "secret", "none"],
        ] {
            let refused = installation.as_registry(words);
            assert!(
                refused.contains("the registry writes") || refused.contains("cannot delete resource \"secrets\""),
                "{words:?}: {refused}"
            );
        }
        // What is its own it may remove.
        let deleted = installation.as_registry(&["delete", "skill", "draw"]);
        assert!(deleted.contains("deleted"), "{deleted}");
    });
}
