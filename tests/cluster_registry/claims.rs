//! Runs that replicas of a gateway claim at the registry before they begin them.

use http::StatusCode;
use serde_json::{Value, json};

use super::installation::Installation;
use super::requests::{Dialect, Program};

const PATH: &str = "/knack/v1/executions/claims";
const REPORTS: &str = "/knack/v1/executions";

/// A run as a replica asks for it, by its own request.
fn run(id: &str, request: &str, status: &str) -> Value {
    json!({
        "id": id, "caller": "11", "skill": null, "tool": "t", "request": request, "input": {}, "output": null, "status": status,
        "error": null, "durationMs": null, "created": jiff::Timestamp::now().as_microsecond(),
    })
}

/// `run`, or the status of what is known.
async fn claim(replica: &Program, id: &str, request: &str) -> String {
    let asked = Some(run(id, request, "pending").into());
    let answer = replica.send(Dialect::OpenAi, "POST", PATH, asked).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let claimed = answer.json();
    match claimed["known"]["status"].as_str() {
        Some(status) => status.to_owned(),
        None => format!("run as {}", claimed["run"]["request"].as_str().unwrap()),
    }
}

#[test]
fn of_replicas_that_claim_one_run_one_has_it_also_after_the_registry_was_killed() {
    let test = "of_replicas_that_claim_one_run_one_has_it_also_after_the_registry_was_killed";
    cluster_support::run(test, async |cluster| {
        let mut installation = Installation::start(cluster).await;
        let replica = installation.client_of("team", "default").await;
        let stranger = installation.client_of("team", "stranger").await;
        let names: Vec<String> = (0..6).map(|number| format!("request-{number}")).collect();
        let claims = names.iter().map(|name| claim(&replica, "a", name));
        let told = futures::future::join_all(claims).await;
        let own: Vec<&String> = told.iter().filter(|word| word.starts_with("run")).collect();
        assert_eq!(own.len(), 1, "{told:?}");
        let holder = own[0].strip_prefix("run as ").unwrap();
        assert_eq!(
            claim(&replica, "a", holder).await,
            *own[0],
            "an answer that was lost is given again"
        );
        let asked = Some(run("a", "r", "pending").into());
        let refused = stranger.send(Dialect::OpenAi, "POST", PATH, asked).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.text());
        let nobody = replica.with_token("");
        let asked = Some(run("a", "r", "pending").into());
        let refused = nobody.send(Dialect::OpenAi, "POST", PATH, asked).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{}", refused.text());

        assert_eq!(claim(&replica, "b", "r").await, "run as r");
        let ended = json!({"executions": [run("a", holder, "success")]});
        let taken = replica.send(Dialect::OpenAi, "POST", REPORTS, Some(ended.into())).await;
        assert_eq!(taken.status, StatusCode::NO_CONTENT, "{}", taken.text());
        assert_eq!(claim(&replica, "a", "later").await, "success");
        installation.kill_registry();
        installation.start_registry().await;
        assert_eq!(claim(&replica, "a", "later").await, "success");
        assert_eq!(
            claim(&replica, "b", "later").await,
            "error",
            "nobody knows whether it ran"
        );
    });
}
