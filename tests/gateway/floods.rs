//! Models that ask for more than one request may have: calls of one turn, and files.

use serde_json::{Value, json};

use super::support::{with_sandbox, with_script};

fn chat(text: &str) -> Value {
    json!({"model": "gpt-x", "messages": [{"role": "user", "content": text}]})
}

#[tokio::test]
async fn of_sixty_calls_in_one_turn_thirty_two_run_and_the_model_is_told() {
    let calls: Vec<String> = (0..60)
        .map(|_| "{tool: load_skill, arguments: {skill: listed}}".to_owned())
        .collect();
    let script = format!(
        "turns:\n  - rounds:\n      - reply: {{calls: [{}]}}\n      - reply: {{text: done}}\n",
        calls.join(", ")
    );
    let knack = with_script(&script).await;
    let answer = knack.send(knack.chat(&chat("flood"))).await;
    assert_eq!(
        (answer.status, answer.said().as_str()),
        (200, "done"),
        "{}",
        answer.text
    );
    let sent = knack.upstream();
    let results: Vec<&str> = sent["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert_eq!(results.len(), 60);
    let refused = |text: &&&str| text.starts_with("Not run: of one turn only the first 32 skill calls");
    assert_eq!(results.iter().filter(refused).count(), 28);
    assert!(results[..32].iter().all(|text| text.contains("Run python3")));
}

#[tokio::test]
async fn files_of_one_request_are_bounded_and_each_that_is_not_kept_is_named() {
    let call = |run: usize| {
        format!(
            "{{tool: run_code, arguments: {{code: \"for n in range(70): open(f'{run}-{{n}}.txt', 'w').write('x')\"}}}}"
        )
    };
    let script = format!(
        "turns:\n  - rounds:\n      - reply: {{calls: [{}, {}, {}]}}\n      - reply: {{text: \"{{{{results}}}}\"}}\n",
        call(0),
        call(1),
        call(2)
    );
    let knack = with_sandbox(&script).await;
    let answer = knack.send(knack.chat(&chat("many"))).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let said = answer.said();
    assert_eq!(
        said.matches("not kept; the runs of one request make at most 200 files and 32 MiB in all")
            .count(),
        10,
        "{said}"
    );
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let list = super::support::client()
        .get(format!("{}/knack/v1/responses/{id}/files", knack.url))
        .bearer_auth("key-a");
    assert_eq!(knack.send(list).await.json()["files"].as_array().unwrap().len(), 200);
    assert_eq!(knack.gateway.requests.process().held_bytes(), 0);
}
