//! Responses in the background: nothing is injected into them, and those that go on from a loop are shown in the client's terms.

use serde_json::{Value, json};

use super::stored::{Keeping, SCRIPT, no_internals, said};
use super::support::{client, with_sandbox};
use super::talk::{Format, Talk, events};

impl Keeping<'_> {
    /// The bytes of the answer, and the response in its last event or as its body.
    async fn ask_in_background(&self, more: &Value) -> (String, Value) {
        let mut body = self.base();
        let more = [json!({"background": true}), more.clone()];
        for more in &more {
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        }
        let talk = Talk::new((Format::Responses, self.stream));
        let answer = self.knack.send(talk.request(&self.knack.url, &body)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        no_internals(&answer.text);
        let response = if self.stream {
            events(&answer.text).pop().unwrap()["response"].clone()
        } else {
            answer.json()
        };
        (answer.text, response)
    }

    /// Polls, lists what was sent, reads the events again from the middle, and cancels: all of it is the client's own.
    async fn is_read_later(&self, (text, begun): (&str, &Value), previous: &Value, input: &[&str]) {
        let (id, state) = (&begun["id"], self.knack.upstream()["previous_response_id"].clone());
        assert_eq!(&begun["previous_response_id"], previous, "{begun}");
        let (status, read) = self.get(id, "").await;
        assert_eq!(status, 200, "{read}");
        let read: Value = serde_json::from_str(&read).unwrap();
        assert_eq!(
            (&read["status"], &read["previous_response_id"]),
            (&json!("completed"), previous)
        );
        let items = self.listed(id, "asc", 100).await;
        let items: Vec<String> = items.iter().map(said).collect();
        assert_eq!(items, input);
        let (status, again) = self.get(id, "?stream=true&starting_after=1").await;
        if self.stream {
            assert_eq!(status, 200, "{again}");
            assert_eq!(
                events(&again),
                events(text)[2..],
                "the same events, behind the one that was named"
            );
        } else {
            assert_eq!(status, 400, "{again}");
        }
        let url = format!("{}/v1/responses/{}/cancel", self.knack.url, id.as_str().unwrap());
        let cancelled = self.knack.send(client().post(url).bearer_auth("key-a")).await;
        assert_eq!(cancelled.json()["status"], "cancelled", "{}", cancelled.text);
        assert_eq!(&cancelled.json()["previous_response_id"], previous);
        if let Some(state) = state.as_str().filter(|state| previous != state) {
            for shown in [text, &again, &cancelled.text, &read.to_string()] {
                assert!(!shown.contains(state), "the client does not know {state}: {shown}");
            }
        }
    }
}

#[tokio::test]
async fn a_response_in_the_background_goes_on_from_a_loop() {
    let knack = with_sandbox(SCRIPT).await;
    for stream in [false, true] {
        let client = Keeping { knack: &knack, stream };
        let added = client.ask(json!({"input": "please add"})).await;
        let next = json!({"input": "and then?", "previous_response_id": added["id"]});
        let (text, then) = client.ask_in_background(&next).await;
        let sent = knack.upstream();
        assert_eq!(sent["instructions"], "Be brief.", "{sent}");
        assert_eq!(sent["tools"].as_array().unwrap().len(), 1, "{sent}");
        assert_ne!(
            sent["previous_response_id"], added["id"],
            "the provider keeps the loop under its last round's id"
        );
        assert_eq!(then["status"], if stream { "completed" } else { "queued" });
        client.is_read_later((&text, &then), &added["id"], &["and then?"]).await;
        // The next turn goes on from it.
        let next = json!({"input": "hello again", "previous_response_id": then["id"]});
        let again = client.ask(next).await;
        assert_eq!(again["previous_response_id"], then["id"]);
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// The hidden turns go to the provider as items, which the client did not send.
#[tokio::test]
async fn a_response_in_the_background_goes_on_from_the_items_of_a_loop() {
    let knack = with_sandbox(SCRIPT).await;
    for stream in [false, true] {
        let client = Keeping { knack: &knack, stream };
        let added = client.ask(json!({"input": "please add"})).await;
        let mut items = vec![json!({"role": "user", "content": "please add"})];
        items.extend(added["output"].as_array().unwrap().iter().cloned());
        items.push(json!({"role": "user", "content": "and then?"}));
        let (text, then) = client.ask_in_background(&json!({ "input": items })).await;
        assert!(knack.upstream()["input"].to_string().contains("load_skill"));
        let sent = ["please add", "?", "I look it up.", "The sum is 5.", "and then?"];
        client.is_read_later((&text, &then), &Value::Null, &sent).await;
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// One that goes on from nothing passes as it came, in both directions.
#[tokio::test]
async fn a_response_in_the_background_of_its_own_is_the_providers() {
    let knack = with_sandbox(SCRIPT).await;
    for stream in [false, true] {
        let client = Keeping { knack: &knack, stream };
        let (text, own) = client.ask_in_background(&json!({"input": "hello"})).await;
        let sent = knack.upstream();
        assert_eq!(
            (&sent["instructions"], &sent["background"]),
            (&json!("Be brief."), &json!(true))
        );
        client.is_read_later((&text, &own), &Value::Null, &["hello"]).await;
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}
