//! Chat completions that the provider keeps: what is read of them by id, and listed, is what a client without skills
//! would read.

use serde_json::{Value, json};

use super::support::{ALWAYS, Running, Start, client, start, with_sandbox, with_script};
use super::talk::{Format, HIDDEN, Talk, events};

const SCRIPT: &str = r#"
turns:
  - user: add
    rounds:
      - expect: {tool: load_skill, system: plover}
        reply: {text: I look it up., calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - reply: {calls: [{tool: run_code, arguments: {skill: listed, command: "python3 skills/listed/add.py 2 3"}}]}
      - expect: {result: {contains: "exit 0"}}
        reply: {text: "The sum is 5."}
  - user: mixed
    rounds:
      - reply: {text: Both., calls: [{tool: load_skill, arguments: {skill: listed}}, {tool: get_weather, arguments: {city: Oslo}}]}
      - expect: {results: 2}
        reply: {text: "Done."}
  - user: break off
    rounds:
      - reply: {text: One moment., calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - fail: {status: 400, message: "no more"}
  - rounds:
      - reply: {text: "You said: {{user}}"}
"#;

/// A client that has its completions stored by the provider.
struct Keeping<'a> {
    knack: &'a Running,
    stream: bool,
    key: &'static str,
}

/// What a client was shown of an answer.
#[derive(Debug, Clone, PartialEq)]
struct Shown {
    id: String,
    message: Value,
    finish: Value,
    usage: Value,
}

impl Shown {
    /// Of a completion, whole.
    fn of(body: &Value) -> Self {
        let choice = &body["choices"][0];
        let message = &choice["message"];
        Self {
            id: body["id"].as_str().unwrap().to_owned(),
            message: json!({"content": message["content"], "tool_calls": calls(&message["tool_calls"])}),
            finish: choice["finish_reason"].clone(),
            usage: body["usage"].clone(),
        }
    }

    /// Of the chunks of a stream. Calls come whole in it.
    fn streamed(text: &str) -> Self {
        let (mut content, mut all) = (String::new(), Vec::<Value>::new());
        let mut shown = Self {
            id: String::new(),
            message: Value::Null,
            finish: Value::Null,
            usage: Value::Null,
        };
        for chunk in events(text) {
            chunk["id"].as_str().unwrap().clone_into(&mut shown.id);
            let choice = &chunk["choices"][0];
            content += choice["delta"]["content"].as_str().unwrap_or_default();
            for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
                let at = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
                if at == all.len() {
                    all.push(call.clone());
                } else {
                    let more = call["function"]["arguments"].as_str().unwrap_or_default();
                    let so_far = all[at]["function"]["arguments"].as_str().unwrap_or_default();
                    all[at]["function"]["arguments"] = json!(format!("{so_far}{more}"));
                }
            }
            for (own, key) in [
                (&mut shown.finish, &choice["finish_reason"]),
                (&mut shown.usage, &chunk["usage"]),
            ] {
                if !key.is_null() {
                    *own = key.clone();
                }
            }
        }
        shown.message = json!({"content": content, "tool_calls": calls(&json!(all))});
        shown
    }
}

/// Calls without what their place in a stream adds.
fn calls(all: &Value) -> Vec<Value> {
    let one = |call: &Value| json!({"id": call["id"], "function": call["function"]});
    all.as_array().into_iter().flatten().map(one).collect()
}

fn no_internals(text: &str) {
    for ours in HIDDEN {
        assert!(!text.contains(ours), "{ours} in {text}");
    }
}

impl<'a> Keeping<'a> {
    fn new(knack: &'a Running, stream: bool) -> Self {
        let key = "key-a";
        Self { knack, stream, key }
    }

    fn base(&self) -> Value {
        let mut body = json!({
            "model": "gpt-x", "stream": self.stream, "store": true, "metadata": {"team": "a"},
            "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}],
        });
        if self.stream {
            body["stream_options"] = json!({"include_usage": true});
        }
        body
    }

    async fn ask(&self, messages: &Value) -> Shown {
        let mut body = self.base();
        body["messages"] = messages.clone();
        let mut talk = Talk::new((Format::Chat, self.stream));
        talk.key = self.key;
        let answer = self.knack.send(talk.request(&self.knack.url, &body)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        if self.stream {
            Shown::streamed(&answer.text)
        } else {
            Shown::of(&answer.json())
        }
    }

    /// What is read, whosever it is.
    async fn read(&self, behind: &str) -> (u16, String) {
        let url = format!("{}/v1/chat/completions{behind}", self.knack.url);
        let answer = self.knack.send(client().get(url).bearer_auth(self.key)).await;
        (answer.status, answer.text)
    }

    /// What is read, with nothing of Knack in it.
    async fn get(&self, behind: &str) -> (u16, Value) {
        let (status, text) = self.read(behind).await;
        no_internals(&text);
        (status, serde_json::from_str(&text).unwrap())
    }

    /// All of a list, read in pages of this size, as SDKs read it: a page without elements is the last.
    async fn all(&self, path: &str, limit: usize, order: &str) -> Vec<Value> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let (status, page) = self.get(&format!("{path}?order={order}&limit={limit}{after}")).await;
            assert_eq!(status, 200, "{page}");
            let data = page["data"].as_array().unwrap().clone();
            assert!(data.len() <= limit, "{page}");
            assert_eq!(data.first().map_or(&Value::Null, |one| &one["id"]), &page["first_id"]);
            assert_eq!(data.last().map_or(&Value::Null, |one| &one["id"]), &page["last_id"]);
            all.extend(data);
            if page["has_more"] != true {
                return all;
            }
            after = format!(
                "&after={}",
                page["last_id"].as_str().expect("a page before the last has elements")
            );
        }
    }

    /// What is read by id is what was shown, and its messages are those that were sent.
    async fn is_as_shown(&self, shown: &Shown, sent: &Value) {
        let (status, read) = self.get(&format!("/{}", shown.id)).await;
        assert_eq!(status, 200, "{read}");
        assert_eq!(&Shown::of(&read), shown);
        assert_eq!(
            (&read["tools"], &read["metadata"]),
            (&self.base()["tools"], &json!({"team": "a"}))
        );
        for limit in [1, 2, 100] {
            for order in ["asc", "desc"] {
                let mut listed = self.all(&format!("/{}/messages", shown.id), limit, order).await;
                if order == "desc" {
                    listed.reverse();
                }
                let said: Vec<Value> = listed
                    .iter()
                    .map(|one| json!({"role": one["role"], "content": one["content"], "parts": one["content_parts"]}))
                    .collect();
                let expected: Vec<Value> = sent
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|one| {
                        let (text, parts) = match &one["content"] {
                            Value::Array(parts) => (Value::Null, json!(parts)),
                            text => (text.clone(), Value::Null),
                        };
                        json!({"role": one["role"], "content": text, "parts": parts})
                    })
                    .collect();
                assert_eq!(said, expected, "{order}, in pages of {limit}");
                assert!(listed.iter().all(|one| one["id"].is_string()), "{listed:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_read_by_id_is_what_was_shown() {
    let knack = with_sandbox(SCRIPT).await;
    for stream in [false, true] {
        let client = Keeping::new(&knack, stream);
        let user = |text: &str| json!({"role": "user", "content": text});
        // One round; the text of skills goes into a message of its own, behind the client's, and into its parts.
        for own in [
            json!([user("hello")]),
            json!([{"role": "system", "content": "Be brief."}, user("hello")]),
            json!([{"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}, user("hello")]),
        ] {
            let plain = client.ask(&own).await;
            client.is_as_shown(&plain, &own).await;
        }
        // A loop of three rounds.
        let own = json!([{"role": "system", "content": "Be brief."}, user("please add")]);
        let added = client.ask(&own).await;
        assert_eq!(added.message["content"], "I look it up.\n\nThe sum is 5.");
        client.is_as_shown(&added, &own).await;
        // The next turn: its hidden turns were put back.
        let said = json!({"role": "assistant", "content": added.message["content"]});
        let own = json!([{"role": "system", "content": "Be brief."}, user("please add"), said, user("and then?")]);
        let then = client.ask(&own).await;
        assert!(knack.upstream()["messages"].to_string().contains("load_skill"));
        client.is_as_shown(&then, &own).await;
        // A turn of both, and its answer.
        let own = json!([user("mixed")]);
        let mixed = client.ask(&own).await;
        assert_eq!(mixed.finish, "tool_calls");
        client.is_as_shown(&mixed, &own).await;
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

#[tokio::test]
async fn a_list_has_each_answer_once_as_it_was_shown() {
    let knack = with_sandbox(SCRIPT).await;
    let mut expected = Vec::new();
    for stream in [false, true] {
        let client = Keeping::new(&knack, stream);
        for text in ["please add", "hello", "mixed", "please add"] {
            expected.push(client.ask(&json!([{"role": "user", "content": text}])).await);
        }
    }
    let client = Keeping::new(&knack, false);
    for order in ["asc", "desc"] {
        for limit in [1, 2, 3, 100] {
            let listed: Vec<Shown> = client.all("", limit, order).await.iter().map(Shown::of).collect();
            assert_eq!(listed, expected, "{order}, in pages of {limit}");
        }
        expected.reverse();
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

#[tokio::test]
async fn an_answer_is_updated_and_deleted_whole() {
    let knack = with_sandbox(SCRIPT).await;
    let kept = Keeping::new(&knack, true);
    let added = kept.ask(&json!([{"role": "user", "content": "please add"}])).await;
    let url = format!("{}/v1/chat/completions/{}", knack.url, added.id);
    let update = client().post(&url).bearer_auth("key-a");
    let update = update
        .header("content-type", "application/json")
        .body(r#"{"metadata":{"team":"b"}}"#);
    let updated = knack.send(update).await;
    assert_eq!(updated.status, 200, "{}", updated.text);
    no_internals(&updated.text);
    assert_eq!(Shown::of(&updated.json()), added);
    let (_, read) = kept.get(&format!("/{}", added.id)).await;
    assert_eq!(read["metadata"], json!({"team": "b"}));
    let listed = kept.all("", 100, "asc").await;
    assert_eq!((listed.len(), &listed[0]["metadata"]), (1, &json!({"team": "b"})));

    let gone = knack.send(client().delete(&url).bearer_auth("key-a")).await.json();
    assert_eq!((&gone["id"], &gone["deleted"]), (&json!(added.id), &json!(true)));
    let left = client()
        .get(format!("{}/v1/chat/completions", knack.mock.url))
        .bearer_auth("key-a");
    assert_eq!(knack.send(left).await.json()["data"], json!([]));
    let (status, refused) = kept.get(&format!("/{}", added.id)).await;
    assert_eq!(status, 404);
    assert!(
        refused.to_string().contains(&added.id),
        "the error names the id that was asked for: {refused}"
    );
}

/// A client that left before its answer was deleted whole asks once more.
#[tokio::test]
async fn rounds_are_deleted_with_an_answer_that_is_gone() {
    let knack = with_sandbox(SCRIPT).await;
    let added = Keeping::new(&knack, false)
        .ask(&json!([{"role": "user", "content": "please add"}]))
        .await;
    let of_provider = format!("{}/v1/chat/completions", knack.mock.url);
    let list = || client().get(&of_provider).bearer_auth("key-a");
    let rounds = knack.send(list()).await.json()["data"].clone();
    let last = rounds[2]["id"].as_str().unwrap();
    let delete = |url: String| client().delete(url).bearer_auth("key-a");
    assert_eq!(knack.send(delete(format!("{of_provider}/{last}"))).await.status, 200);
    let whole = format!("{}/v1/chat/completions/{}", knack.url, added.id);
    assert_eq!(knack.send(delete(whole)).await.status, 404);
    assert_eq!(knack.send(list()).await.json()["data"], json!([]));
}

/// The client has the id of an answer that broke off: what the provider has of it is one round.
#[tokio::test]
async fn an_answer_that_breaks_off_shows_nothing_of_ours() {
    let knack = with_script(SCRIPT).await;
    let talk = Talk::new((Format::Chat, true));
    let body = json!({
        "model": "gpt-x", "stream": true, "store": true, "messages": [{"role": "user", "content": "break off"}],
    });
    let answer = knack.send(talk.request(&knack.url, &body)).await;
    assert!(answer.text.contains("no more"), "{}", answer.text);
    let id = events(&answer.text)[0]["id"].as_str().unwrap().to_owned();
    let client = Keeping::new(&knack, true);
    let (status, read) = client.get(&format!("/{id}")).await;
    assert_eq!((status, &read["id"]), (200, &json!(id)));
    assert_eq!(
        Shown::of(&read).message,
        json!({"content": "One moment.", "tool_calls": []})
    );
    assert_eq!(client.all(&format!("/{id}/messages"), 100, "asc").await.len(), 1);
    assert_eq!(client.all("", 100, "asc").await.len(), 1);
}

/// Of an answer that its client was not shown, the provider has rounds that are no answer of the client's.
#[tokio::test]
async fn an_answer_that_fails_is_in_no_list() {
    let knack = with_script(SCRIPT).await;
    let client = Keeping::new(&knack, false);
    let talk = Talk::new((Format::Chat, false));
    let mut body = client.base();
    body["messages"] = json!([{"role": "user", "content": "break off"}]);
    let answer = knack.send(talk.request(&knack.url, &body)).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    let plain = client.ask(&json!([{"role": "user", "content": "hello"}])).await;
    let listed: Vec<Shown> = client.all("", 100, "asc").await.iter().map(Shown::of).collect();
    assert_eq!(listed, [plain]);
}

/// A caller with other credentials gets what the provider has, and of his own answers what he was shown.
#[tokio::test]
async fn what_a_caller_was_shown_says_nothing_to_another() {
    let knack = with_sandbox(SCRIPT).await;
    let owner = Keeping::new(&knack, false);
    let other = Keeping {
        key: "key-b",
        ..Keeping::new(&knack, false)
    };
    let own = json!([{"role": "user", "content": "please add"}]);
    let added = owner.ask(&own).await;
    let of_other = json!([{"role": "user", "content": "hello"}]);
    let plain = other.ask(&of_other).await;

    other.is_as_shown(&plain, &of_other).await;
    let (status, read) = other.read(&format!("/{}", added.id)).await;
    let read: Value = serde_json::from_str(&read).unwrap();
    assert_eq!((status, &read["id"]), (200, &json!(added.id)));
    assert_ne!(Shown::of(&read), added, "the provider's own first round");
    let (_, listed) = other.read("").await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(
        listed["data"].as_array().unwrap().len(),
        4,
        "three rounds, and his own answer"
    );

    let gone = client().delete(format!("{}/v1/chat/completions/{}", knack.url, added.id));
    assert_eq!(knack.send(gone.bearer_auth("key-b")).await.status, 200);
    let (_, listed) = other.read("").await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["data"].as_array().unwrap().len(), 3, "the one that he named");
    let (_, read) = owner.get(&format!("/{}", added.id)).await;
    assert_eq!(Shown::of(&read), added, "the whole answer is the last round's");
}

/// Skills that bring no tool have text in the messages all the same.
#[tokio::test]
async fn the_text_of_skills_without_tools_is_not_shown() {
    let knack = start(Start {
        skills: vec![("always/SKILL.md", ALWAYS)],
        ..Start::default()
    })
    .await;
    for stream in [false, true] {
        let client = Keeping::new(&knack, stream);
        let own = json!([{"role": "user", "content": "hello"}]);
        let plain = client.ask(&own).await;
        let sent = knack.upstream();
        assert!(sent["messages"].to_string().contains("plover"), "{sent}");
        assert_eq!(sent["tools"].as_array().unwrap().len(), 1, "{sent}");
        client.is_as_shown(&plain, &own).await;
    }
}
