//! Models that ask for more than one request may have: calls of one turn, and files.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::support::{Running, client, with_sandbox, with_script};
use super::talk::{Format, ROWS, Talk};

/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_mins(1);

/// The results of a request's last round, as text.
fn results(format: Format, sent: &Value) -> Vec<String> {
    let list = match format {
        Format::Chat | Format::Messages => &sent["messages"],
        Format::Responses => &sent["input"],
        Format::Gemini => &sent["contents"],
    };
    let items = list.as_array().unwrap().iter();
    let inner = |item: &Value, member: &str| item[member].as_array().cloned().unwrap_or_default();
    let found: Vec<Value> = match format {
        Format::Chat => items.filter(|item| item["role"] == "tool").cloned().collect(),
        Format::Messages => items
            .flat_map(|item| inner(item, "content"))
            .filter(|block| block["type"] == "tool_result")
            .collect(),
        Format::Responses => items
            .filter(|item| item["type"] == "function_call_output")
            .cloned()
            .collect(),
        Format::Gemini => items
            .flat_map(|item| inner(item, "parts"))
            .filter(|part| part.get("functionResponse").is_some())
            .collect(),
    };
    found.iter().map(Value::to_string).collect()
}

#[tokio::test]
async fn of_sixty_calls_in_one_turn_thirty_two_run_and_the_results_say_so() {
    let calls: Vec<String> = (0..60)
        .map(|_| "{tool: load_skill, arguments: {skill: listed}}".to_owned())
        .collect();
    let script = format!(
        "turns:\n  - rounds:\n      - reply: {{calls: [{}]}}\n      - reply: {{text: done}}\n",
        calls.join(", ")
    );
    let knack = with_script(&script).await;
    for row in ROWS {
        assert_eq!(Talk::plain(row, "flood").ask(&knack).await.text, "done", "{row:?}");
        let results = results(row.0, &knack.upstream());
        assert_eq!(results.len(), 60, "{row:?}");
        let refused = |text: &&String| text.contains("Not run: of one turn only the first 32 skill calls");
        assert_eq!(results.iter().filter(refused).count(), 28, "{row:?}");
        assert!(
            results[..32].iter().all(|text| text.contains("Run python3")),
            "{row:?}: {results:?}"
        );
    }
}

/// Waits until all memory is given back, which is a moment after a client has its answer.
async fn nothing_is_held(knack: &Running) {
    let begun = Instant::now();
    while knack.gateway.requests.process().held_bytes() > 0 {
        assert!(begun.elapsed() < PATIENCE, "memory is held");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
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
    for row in ROWS {
        let mut talk = Talk::plain(row, "many");
        let said = talk.hear(&knack).await;
        assert_eq!(
            said.text
                .matches("not kept; the runs of one request make at most 200 files and 32 MiB in all")
                .count(),
            10,
            "{row:?}: {}",
            said.text
        );
        let list = client().get(format!("{}/knack/v1/responses/{}/files", knack.url, said.id));
        let list = knack.send(talk.sign(list)).await.json();
        assert_eq!(list["files"].as_array().unwrap().len(), 200, "{row:?}");
        nothing_is_held(&knack).await;
    }
}
