//! Responses that the provider keeps: what is read of them by id is what a client without skills would read.

use serde_json::{Value, json};

use super::support::{ALWAYS, Running, Start, client, start, with_sandbox, with_script};
use super::talk::{Format, HIDDEN, Talk, events};

pub(crate) const SCRIPT: &str = r#"
turns:
  - user: add
    rounds:
      - expect: {tool: load_skill, system: plover}
        reply: {thinking: I look it up., text: I look it up., calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - reply: {thinking: Now I run it., calls: [{tool: run_code, arguments: {skill: listed, command: "python3 skills/listed/add.py 2 3"}}]}
      - expect: {result: {contains: "exit 0"}}
        reply: {text: "The sum is 5."}
  - user: mixed
    rounds:
      - reply: {thinking: Both., calls: [{tool: load_skill, arguments: {skill: listed}}, {tool: get_weather, arguments: {city: Oslo}}]}
      - expect: {results: 2}
        reply: {text: "Done."}
  - user: and then
    rounds:
      - reply: {text: "I remember."}
  - user: look up
    rounds:
      - reply: {calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - reply: {text: "It adds."}
  - user: break off
    rounds:
      - reply: {text: One moment., calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - fail: {status: 400, message: "no more"}
  - rounds:
      - reply: {text: "You said: {{user}}"}
"#;

/// A client that keeps its responses at the provider.
pub(crate) struct Keeping<'a> {
    pub(crate) knack: &'a Running,
    pub(crate) stream: bool,
}

impl Keeping<'_> {
    /// The members of every request: what comes back is compared with them.
    pub(crate) fn base(&self) -> Value {
        json!({
            "model": "gpt-x", "stream": self.stream, "instructions": "Be brief.", "tool_choice": "auto",
            "tools": [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}],
        })
    }

    /// The whole response as the client was shown it.
    pub(crate) async fn ask(&self, more: Value) -> Value {
        let mut body = self.base();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let talk = Talk::new((Format::Responses, self.stream));
        let answer = self.knack.send(talk.request(&self.knack.url, &body)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        if self.stream {
            events(&answer.text).pop().unwrap()["response"].clone()
        } else {
            answer.json()
        }
    }

    pub(crate) async fn get(&self, id: &Value, behind: &str) -> (u16, String) {
        let url = format!("{}/v1/responses/{}{behind}", self.knack.url, id.as_str().unwrap());
        let answer = self.knack.send(client().get(url).bearer_auth("key-a")).await;
        (answer.status, answer.text)
    }

    /// All input items, the oldest first, read in pages of this size.
    async fn items(&self, id: &Value, limit: usize) -> Vec<Value> {
        self.listed(id, "asc", limit).await
    }

    /// All input items in this order.
    pub(crate) async fn listed(&self, id: &Value, order: &str, limit: usize) -> Vec<Value> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let query = format!("/input_items?order={order}&limit={limit}{after}");
            let (status, text) = self.get(id, &query).await;
            assert_eq!(status, 200, "{text}");
            no_internals(&text);
            let page: Value = serde_json::from_str(&text).unwrap();
            let data = page["data"].as_array().unwrap().clone();
            assert_eq!(
                data.first().map(|item| &item["id"]),
                Some(&page["first_id"]).filter(|id| !id.is_null())
            );
            assert_eq!(
                data.last().map(|item| &item["id"]),
                Some(&page["last_id"]).filter(|id| !id.is_null())
            );
            assert!(data.len() <= limit, "{text}");
            all.extend(data);
            if page["has_more"] != true {
                return all;
            }
            // As the SDKs do: a page without items is the last.
            after = format!(
                "&after={}",
                page["last_id"].as_str().expect("a page before the last has items")
            );
        }
    }

    /// What is read by id is what was shown, and the input is what was sent.
    pub(crate) async fn is_as_shown(&self, shown: &Value, input: &[&str]) {
        let (status, text) = self.get(&shown["id"], "").await;
        assert_eq!(status, 200, "{text}");
        no_internals(&text);
        assert_eq!(&serde_json::from_str::<Value>(&text).unwrap(), shown);
        assert_eq!(shown["instructions"], "Be brief.");
        assert_eq!(shown["tools"], self.base()["tools"]);
        for limit in [1, 2, 100] {
            let items = self.items(&shown["id"], limit).await;
            let said: Vec<String> = items.iter().map(said).collect();
            assert_eq!(said, input, "in pages of {limit}: {items:?}");
        }
    }

    /// What the provider has of an answer that did not end says the client's part of it.
    async fn is_begun(&self, id: &Value) {
        let (status, text) = self.get(id, "").await;
        assert_eq!(status, 200, "{text}");
        no_internals(&text);
        assert!(text.contains("One moment."), "{text}");
    }
}

/// What an input item says.
pub(crate) fn said(item: &Value) -> String {
    match &item["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => item["output"]
            .as_str()
            .or(item["name"].as_str())
            .unwrap_or("?")
            .to_owned(),
    }
}

pub(crate) fn no_internals(text: &str) {
    for ours in HIDDEN {
        assert!(!text.contains(ours), "{ours} in {text}");
    }
}

#[tokio::test]
async fn what_is_read_by_id_is_what_was_shown() {
    let knack = with_sandbox(SCRIPT).await;
    for stream in [false, true] {
        let client = Keeping { knack: &knack, stream };
        // One round, without a call.
        let plain = client.ask(json!({"input": "hello"})).await;
        client.is_as_shown(&plain, &["hello"]).await;
        // A loop of three rounds.
        let added = client.ask(json!({"input": "please add"})).await;
        assert_eq!(added["output"].as_array().unwrap().len(), 3, "{added}");
        client.is_as_shown(&added, &["please add"]).await;
        // The next turns, by id.
        let next = json!({"input": "and then?", "previous_response_id": added["id"]});
        let then = client.ask(next).await;
        assert_eq!(then["previous_response_id"], added["id"]);
        client.is_as_shown(&then, &["and then?"]).await;
        let next = json!({"input": "hello again", "previous_response_id": then["id"]});
        let again = client.ask(next).await;
        client.is_as_shown(&again, &["hello again"]).await;
        // One to which nothing is added, so that only its id is changed.
        let bare = json!({"input": "and then?", "previous_response_id": added["id"], "tool_choice": "none"});
        let bare = client.ask(bare).await;
        assert_eq!(bare["previous_response_id"], added["id"]);
        assert!(
            knack
                .upstream()
                .get("tools")
                .is_some_and(|tools| tools.as_array().unwrap().len() == 1)
        );
        client.is_as_shown(&bare, &["and then?"]).await;
        // The next turn, by the items.
        let mut items = vec![json!({"role": "user", "content": "please add"})];
        items.extend(added["output"].as_array().unwrap().iter().cloned());
        items.push(json!({"role": "user", "content": "and then?"}));
        let whole = client.ask(json!({ "input": items })).await;
        assert!(knack.upstream()["input"].to_string().contains("load_skill"));
        let sent = ["please add", "?", "I look it up.", "The sum is 5.", "and then?"];
        client.is_as_shown(&whole, &sent).await;
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// The provider lists what an answer is asked with, also where it did not keep the answers before.
#[tokio::test]
async fn calls_of_an_answer_that_was_not_kept_are_not_listed() {
    let knack = with_sandbox(SCRIPT).await;
    for stream in [false, true] {
        let client = Keeping { knack: &knack, stream };
        let added = client.ask(json!({"input": "please add", "store": false})).await;
        let mut items = vec![json!({"role": "user", "content": "please add"})];
        items.extend(added["output"].as_array().unwrap().iter().cloned());
        items.push(json!({"role": "user", "content": "and then?"}));
        let whole = client.ask(json!({ "input": items })).await;
        assert!(knack.upstream()["input"].to_string().contains("load_skill"));
        let sent = ["please add", "?", "I look it up.", "The sum is 5.", "and then?"];
        client.is_as_shown(&whole, &sent).await;
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// A compaction reads the conversation as the provider has it, and gets nothing that is injected.
#[tokio::test]
async fn a_compaction_continues_from_the_whole_answer() {
    let knack = with_sandbox(SCRIPT).await;
    let compact = async |body: Value| {
        let url = format!("{}/v1/responses/compact", knack.url);
        let request = client().post(url).bearer_auth("key-a");
        let request = request.header("content-type", "application/json");
        let answer = knack.send(request.body(body.to_string())).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    };
    for stream in [false, true] {
        let client = Keeping { knack: &knack, stream };
        let added = client.ask(json!({"input": "please add"})).await;
        // By the id that was shown, and by the items.
        let by_id = json!({"model": "gpt-x", "previous_response_id": added["id"]});
        let mut items = vec![json!({"role": "user", "content": "please add"})];
        items.extend(added["output"].as_array().unwrap().iter().cloned());
        for asked in [by_id, json!({"model": "gpt-x", "input": items})] {
            let compacted = compact(asked.clone()).await;
            let read = compacted["output"].as_array().unwrap().last().unwrap()["encrypted_content"].to_string();
            for part in ["please add", "load_skill", "run_code", "exit 0", "The sum is 5."] {
                assert!(read.contains(part), "{part} in {read}");
            }
            let sent = knack.upstream();
            assert!(
                sent.get("tools").is_none() && sent.get("instructions").is_none(),
                "{sent}"
            );
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
    // Nothing is changed where nothing was hidden.
    let plain = json!({"model": "gpt-x", "input": [{"role": "user", "content": "hello"}]});
    compact(plain.clone()).await;
    assert_eq!(knack.upstream(), plain);
}

/// Both answers have one place in the conversation, and each an id of its own.
#[tokio::test]
async fn an_answer_that_says_the_same_again_leaves_the_first_as_it_was() {
    let knack = with_script(SCRIPT).await;
    for stream in [false, true] {
        let client = Keeping { knack: &knack, stream };
        let first = client.ask(json!({"input": "please look up"})).await;
        let again = client.ask(json!({"input": "please look up"})).await;
        assert_ne!(first["id"], again["id"]);
        for one in [&first, &again] {
            client.is_as_shown(one, &["please look up"]).await;
            let next = json!({"input": "and then?", "previous_response_id": one["id"]});
            assert_eq!(client.ask(next).await["previous_response_id"], one["id"]);
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

#[tokio::test]
async fn a_turn_of_both_and_its_answer_are_read_as_the_clients_own() {
    let knack = with_script(SCRIPT).await;
    for stream in [false, true] {
        let client = Keeping { knack: &knack, stream };
        for kept in [json!({}), json!({"conversation": format!("conv_{stream}")})] {
            let ask = async |mut more: Value, previous: Option<&Value>| {
                let members = more.as_object_mut().unwrap();
                members.extend(kept.as_object().unwrap().clone());
                if let Some(id) = previous.filter(|_| kept == json!({})) {
                    members.insert("previous_response_id".to_owned(), id.clone());
                }
                client.ask(more).await
            };
            let mixed = ask(json!({"input": "mixed"}), None).await;
            client.is_as_shown(&mixed, &["mixed"]).await;
            let call = &mixed["output"].as_array().unwrap().last().unwrap()["call_id"];
            let output = json!([{"type": "function_call_output", "call_id": call, "output": "-3 C"}]);
            let done = ask(json!({ "input": output }), Some(&mixed["id"])).await;
            assert!(
                knack.upstream()["input"].as_array().unwrap().len() > 1,
                "our result went, too"
            );
            client.is_as_shown(&done, &["-3 C"]).await;
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// The client has the id of an answer that broke off: what the provider has of it is one round.
#[tokio::test]
async fn an_answer_that_breaks_off_shows_nothing_of_ours() {
    let knack = with_script(SCRIPT).await;
    let talk = Talk::new((Format::Responses, true));
    let body = json!({"model": "gpt-x", "stream": true, "input": "break off"});
    let answer = knack.send(talk.request(&knack.url, &body)).await;
    let all = events(&answer.text);
    assert_eq!(all.last().unwrap()["type"], "error", "{}", answer.text);
    let id = &all[0]["response"]["id"];
    let client = Keeping {
        knack: &knack,
        stream: true,
    };
    client.is_begun(id).await;
    assert_eq!(client.items(id, 100).await.len(), 1);
}

/// The client leaves while a skill runs: it has the id of what the provider keeps of round 1.
#[tokio::test]
async fn an_answer_that_its_client_left_shows_nothing_of_ours() {
    let script = "turns:\n  - rounds:\n      - reply: {text: One moment., calls: [{tool: run_code, arguments: {code: 'import time; time.sleep(50)'}}]}\n";
    let knack = with_sandbox(script).await;
    let talk = Talk::new((Format::Responses, true));
    let body = json!({"model": "gpt-x", "stream": true, "input": "go"});
    let mut answer = talk.request(&knack.url, &body).send().await.unwrap();
    let mut text = String::new();
    while !text.contains("One moment.") {
        text += std::str::from_utf8(&answer.chunk().await.unwrap().unwrap()).unwrap();
    }
    drop(answer);
    knack.told("client left").await;
    let begun = text.split("\n\n").next().unwrap();
    let id = &events(&format!("{begun}\n\n"))[0]["response"]["id"];
    let client = Keeping {
        knack: &knack,
        stream: true,
    };
    client.is_begun(id).await;
}

/// Skills that bring no tool have text in `instructions` all the same.
#[tokio::test]
async fn the_text_of_skills_without_tools_is_not_shown() {
    let knack = start(Start {
        skills: vec![("always/SKILL.md", ALWAYS)],
        ..Start::default()
    })
    .await;
    for stream in [false, true] {
        let client = Keeping { knack: &knack, stream };
        let plain = client.ask(json!({"input": "hello"})).await;
        let sent = knack.upstream();
        assert!(sent["instructions"].to_string().contains("plover"), "{sent}");
        assert_eq!(sent["tools"].as_array().unwrap().len(), 1, "{sent}");
        client.is_as_shown(&plain, &["hello"]).await;
    }
}

/// An answer that the provider keeps may come back as the ids of its items, as the Vercel AI SDK sends it: the model has the
/// hidden turns all the same, and another caller has what the provider kept.
#[tokio::test]
async fn an_answer_that_is_named_by_its_items_has_its_hidden_turns() {
    let knack = with_sandbox(SCRIPT).await;
    for stream in [false, true] {
        let client = Keeping { knack: &knack, stream };
        let mut items = vec![json!({"role": "user", "content": "please add"})];
        for say in ["and then?", "hello again"] {
            let answer = client.ask(json!({ "input": items })).await;
            let output = answer["output"].as_array().unwrap().iter();
            items.extend(output.map(|item| json!({"type": "item_reference", "id": item["id"]})));
            items.push(json!({"role": "user", "content": say}));
        }
        let last = client.ask(json!({ "input": items })).await;
        let sent = knack.upstream()["input"].clone();
        assert!(sent.to_string().contains("load_skill"), "{sent}");
        let (named, whole): (Vec<&Value>, Vec<&Value>) = sent
            .as_array()
            .unwrap()
            .iter()
            .partition(|item| item["type"] == "item_reference");
        assert_eq!(
            (named.len(), whole.len() > 6),
            (1, true),
            "the answer without a hidden turn is named: {sent}"
        );
        assert!(said(&last["output"][0]).contains("hello again"), "{last}");
        let talk = Talk {
            key: "key-b",
            ..Talk::new((Format::Responses, stream))
        };
        let body = json!({"model": "gpt-x", "stream": stream, "input": items});
        let answer = knack.send(talk.request(&knack.url, &body)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(!knack.upstream()["input"].to_string().contains("load_skill"));
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

#[tokio::test]
async fn a_stored_response_is_not_streamed_again() {
    let knack = with_script(SCRIPT).await;
    let client = Keeping {
        knack: &knack,
        stream: false,
    };
    let plain = client.ask(json!({"input": "hello"})).await;
    let (status, text) = client.get(&plain["id"], "?stream=true&starting_after=1").await;
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("\"stream\""), "{text}");
    assert_eq!(client.get(&plain["id"], "?stream=false").await.0, 200);
}

#[tokio::test]
async fn all_rounds_of_a_response_are_deleted_with_it() {
    let knack = with_sandbox(SCRIPT).await;
    let kept = Keeping {
        knack: &knack,
        stream: false,
    };
    let added = kept.ask(json!({"input": "please add"})).await;
    let url = format!("{}/v1/responses/{}", knack.url, added["id"].as_str().unwrap());
    let gone = knack.send(client().delete(&url).bearer_auth("key-a")).await.json();
    assert_eq!((&gone["id"], &gone["deleted"]), (&added["id"], &json!(true)));
    let requests = knack.mock.handle.requests();
    let deleted: Vec<&str> = requests
        .iter()
        .filter(|request| request.method == "DELETE")
        .map(|request| request.path.as_str())
        .collect();
    assert_eq!(deleted.len(), 3, "{deleted:?}");
    for path in deleted {
        let left = client().get(format!("{}{path}", knack.mock.url)).bearer_auth("key-a");
        assert_eq!(knack.send(left).await.status, 404, "{path}");
    }
    let (status, text) = kept.get(&added["id"], "").await;
    assert_eq!(status, 404);
    assert!(
        text.contains(added["id"].as_str().unwrap()),
        "the error names the id that was asked for: {text}"
    );
}
