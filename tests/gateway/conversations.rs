//! Conversations that the provider keeps (Responses): what they have is what the model saw.

use serde_json::{Value, json};

use super::stored::{Keeping, SCRIPT};
use super::support::{client, with_sandbox};
use super::talk::{Format, Talk};

/// Calls of skills are in the conversation, and the next request offers no such tool: with other skills, or without any. Each goes
/// on, and its client sees its own.
#[tokio::test]
async fn a_conversation_goes_on_without_the_skills_of_its_earlier_requests() {
    let knack = with_sandbox(SCRIPT).await;
    for stream in [false, true] {
        let keeping = Keeping { knack: &knack, stream };
        let conversation = format!("conv_{stream}");
        let added = json!({"input": "please add", "conversation": conversation});
        keeping.is_as_shown(&keeping.ask(added).await, &["please add"]).await;
        for tools in [json!("none"), json!("auto")] {
            let mut body = keeping.base();
            let next = json!({"input": "and then?", "conversation": {"id": conversation}, "tool_choice": tools});
            body.as_object_mut().unwrap().extend(next.as_object().unwrap().clone());
            let talk = Talk::new((Format::Responses, stream));
            let request = talk.request(&knack.url, &body).header("x-knack-skills", "none");
            let answer = knack.send(request).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert!(answer.text.contains("I remember."), "{}", answer.text);
            assert_eq!(knack.upstream(), body, "the request passes as it came");
        }
        // With skills again.
        let again = json!({"input": "please look up", "conversation": conversation});
        keeping
            .is_as_shown(&keeping.ask(again).await, &["please look up"])
            .await;
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// The items of a conversation are the provider's (docs/clients.md#responses-in-the-background-and-conversations).
#[tokio::test]
async fn the_items_of_a_conversation_pass_as_they_come() {
    let knack = with_sandbox(SCRIPT).await;
    let keeping = Keeping {
        knack: &knack,
        stream: false,
    };
    keeping
        .ask(json!({"input": "please add", "conversation": "conv_1"}))
        .await;
    let read = async |base: &str| {
        let url = format!("{base}/v1/conversations/conv_1/items?order=asc&limit=100");
        let answer = knack.send(client().get(url).bearer_auth("key-a")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.text
    };
    let shown = read(&knack.url).await;
    assert_eq!(shown, read(&knack.mock.url).await);
    let items: Value = serde_json::from_str(&shown).unwrap();
    let calls = items["data"].as_array().unwrap().iter();
    let calls: Vec<&str> = calls.filter_map(|item| item["name"].as_str()).collect();
    assert_eq!(calls, ["load_skill", "run_code"]);
}
