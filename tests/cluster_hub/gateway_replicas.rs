//! Two replicas of one gateway: a conversation and its files are one, whichever of them it meets.

use std::time::Instant;

use cluster_support::{progress, run};
use knack_hub_api::client::{HubClient, HubError};
use knack_hub_api::{KeptKey, KeptLine, KeptValue, RefusalCode, kept_path};
use knack_mock_provider::{MockServer, Script, spawn};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::chat::with_catalog;
use super::support::{Installation, Process, SOON, free_port, listening, patiently};

const SCRIPT: &str = r#"
turns:
  - user: make a file
    rounds:
      - when: {results: 0}
        reply: {calls: [{tool: run_code, arguments: {code: "open('out.txt', 'w').write('made at one replica')"}}]}
      - when: {}
        expect: {result: {contains: "out.txt"}}
        reply: {text: Written.}
  - user: read it again
    rounds:
      - when: {results: 0}
        expect: {history: {contains: make a file}, body: {contains: "Files for the user: out.txt"}}
        reply: {calls: [{tool: run_code, arguments: {code: "print(open('out.txt').read().upper())"}}]}
      - when: {}
        expect: {result: {contains: MADE AT ONE REPLICA}}
        reply: {text: Still there.}
  - user: mixed
    rounds:
      - when: {results: 0}
        expect: {body: {contains: MADE AT ONE REPLICA}}
        reply: {calls: [{tool: run_code, arguments: {code: "print(6 * 7)"}}, {tool: get_weather, arguments: {city: Oslo}}]}
      - when: {}
        expect: {results: 2, result: "42"}
        reply: {text: "All is known."}
  - user: sum up
    rounds:
      - expect: {body: {contains: MADE AT ONE REPLICA}}
        reply: {text: It was a long way.}
  - user: go on alone
    rounds:
      - expect: {no_body: {contains: made at one replica}}
        reply: {text: "alone"}
  - rounds:
      - reply: {text: the model speaks}
"#;

/// A value of the metrics, 0 where it does not exist yet.
async fn metric(port: u16, name: &str) -> u64 {
    let text = reqwest::get(format!("http://127.0.0.1:{port}/metrics"))
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().unwrap())
}

/// Waits until a metric of a gateway has grown to a value.
pub(crate) async fn until(port: u16, name: &str, at_least: u64) {
    let waiting = async {
        while metric(port, name).await < at_least {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    assert!(
        tokio::time::timeout(SOON, waiting).await.is_ok(),
        "{name} is {at_least} at {port}"
    );
}

pub(crate) const KNOWN: &str = "knack_gateway_kept_known";
const LINKED: &str = "knack_gateway_kept_linked";
const RECORDS_FOUND: &str = r#"knack_gateway_kept_reads_total{what="record",outcome="found"}"#;

/// A replica of a gateway that belongs to a tenant.
pub(crate) struct Replica {
    pub(crate) process: Process,
    pub(crate) port: u16,
    /// Of probes and metrics.
    pub(crate) probes: u16,
}

impl Replica {
    pub(crate) async fn start(installation: &Installation, mock: &MockServer, name: &str, tenant: usize) -> Self {
        Self::start_at(installation, &installation.url(), mock, (name, tenant), &[]).await
    }

    /// A replica that asks a certain replica of the hub, with more words.
    pub(crate) async fn start_at(
        installation: &Installation,
        hub: &str,
        mock: &MockServer,
        (name, tenant): (&str, usize),
        more: &[String],
    ) -> Self {
        let (folder, port, probes) = (installation.folder.path(), free_port(), free_port());
        let token = folder.join(format!("{name}.token"));
        std::fs::write(
            &token,
            installation
                .token(&installation.tenants[tenant], "default", "knack")
                .await,
        )
        .unwrap();
        let words = [
            "gateway".to_owned(),
            format!("--listen=127.0.0.1:{port}"),
            format!("--hub={hub}"),
            format!("--hub-ca={}", installation.authorities_file().display()),
            format!("--token-file={}", token.display()),
            format!("--runtime={}", installation.runtime()),
            format!("--upstream-openai={}", mock.url),
            format!("--metrics-listen=127.0.0.1:{probes}"),
            "--shutdown-pause-seconds=0".to_owned(),
            with_catalog(),
        ];
        let words = [&words, more].concat();
        let process = Process::start(installation.cluster, folder, name, &words);
        listening(port).await;
        listening(probes).await;
        until(probes, LINKED, 1).await;
        Self { process, port, probes }
    }

    pub(crate) async fn get(&self, path: &str, key: &str) -> (u16, String) {
        let request = reqwest::Client::new().get(format!("http://127.0.0.1:{}{path}", self.port));
        let response = request
            .header("authorization", format!("Bearer {key}"))
            .timeout(SOON)
            .send()
            .await
            .unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }
}

/// A conversation of one client, which sends back what it saw.
struct Conversation {
    messages: Vec<Value>,
}

impl Conversation {
    fn new() -> Self {
        Self { messages: Vec::new() }
    }

    /// Says something through a replica; returns the answer.
    async fn say(&mut self, replica: &Replica, message: Value) -> Value {
        self.messages.push(message);
        let weather =
            json!({"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}});
        let body = json!({"model": "gpt-x", "messages": self.messages, "tools": [weather]});
        let request = reqwest::Client::new()
            .post(format!("http://127.0.0.1:{}/v1/chat/completions", replica.port))
            .header("authorization", "Bearer sk-of-the-client")
            .header("content-type", "application/json")
            .timeout(SOON)
            .body(body.to_string());
        let response = request.send().await.unwrap();
        let (status, text) = (response.status().as_u16(), response.text().await.unwrap());
        assert_eq!(status, 200, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        self.messages.push(answer["choices"][0]["message"].clone());
        answer
    }

    async fn ask(&mut self, replica: &Replica, text: &str) -> Value {
        self.say(replica, json!({"role": "user", "content": text})).await
    }
}

fn said(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap_or_default()
}

/// The messages and tools of the bodies that the provider got, as bytes.
fn upstream(mock: &MockServer) -> Vec<(Vec<String>, String)> {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        messages: Vec<&'a RawValue>,
        #[serde(borrow)]
        tools: &'a RawValue,
    }
    let bodies = mock.handle.requests();
    let read = |body: &[u8]| {
        let body: Body<'_> = serde_json::from_slice(body).unwrap();
        let messages = body.messages.iter().map(|message| message.get().to_owned());
        (messages.collect(), body.tools.get().to_owned())
    };
    bodies.iter().map(|request| read(&request.body)).collect()
}

/// What the hub announces to a caller, and the secret that it sends.
async fn kept(installation: &Installation, hub: &HubClient) -> Result<(KeptKey, Vec<KeptValue>), HubError> {
    let mut lines = hub
        .hub()
        .watch(&format!("/v1/kept?runtime={}", installation.runtime()))
        .await?;
    let (mut secret, mut values) = (None, Vec::new());
    while let Some(line) = lines.next_value::<KeptLine>().await? {
        match line {
            KeptLine::Hello(hello) => secret = Some(hello.secret),
            KeptLine::Kept(value) => values.push(value),
            KeptLine::Synced => break,
            KeptLine::Ping | KeptLine::Unknown => {}
        }
    }
    Ok((secret.unwrap(), values))
}

/// Waits until the hub owns the runtime.
pub(crate) async fn owned(installation: &Installation, hub: &HubClient) {
    let owned = async {
        while kept(installation, hub).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(SOON, owned)
        .await
        .expect("the hub owns the runtime");
}

#[test]
fn a_conversation_that_meets_another_replica_each_time_keeps_its_hidden_turns_and_files() {
    run(
        "a_conversation_that_meets_another_replica_each_time_keeps_its_hidden_turns_and_files",
        async |cluster| {
            let installation = Installation::start(cluster, 2, json!({})).await;
            let (hub, strange) = (installation.tenant(0).await, installation.tenant(1).await);
            installation
                .skill(&installation.tenants[0], "steady", "print('x')")
                .await;
            installation.served(&hub, "steady").await;
            owned(&installation, &hub).await;
            let mock = spawn(Script::parse(SCRIPT).unwrap()).await.unwrap();
            let one = Replica::start(&installation, &mock, "one", 0).await;
            let two = Replica::start(&installation, &mock, "two", 0).await;
            let foreign = Replica::start(&installation, &mock, "foreign", 1).await;

            // A conversation without hidden turns asks the hub for nothing, and leaves nothing there.
            let mut plain = Conversation::new();
            for (replica, text) in [(&one, "hello"), (&two, "and"), (&one, "so on")] {
                assert_eq!(said(&plain.ask(replica, text).await), "the model speaks");
            }
            mock.handle.clear();

            let mut talk = Conversation::new();
            let first = talk.ask(&one, "make a file").await;
            let answered = Instant::now();
            assert_eq!(said(&first), "Written.");
            until(two.probes, KNOWN, 3).await;
            progress(format!("the other replica knows after {:?}", answered.elapsed()));
            assert_eq!(said(&talk.ask(&two, "read it again").await), "Still there.");
            until(one.probes, KNOWN, 4).await;
            let mixed = talk.ask(&one, "mixed").await;
            let call = &mixed["choices"][0]["message"]["tool_calls"];
            assert_eq!(call.as_array().map(Vec::len), Some(1), "{mixed}");
            until(two.probes, KNOWN, 5).await;
            let result = json!({"role": "tool", "tool_call_id": call[0]["id"], "content": "-3 C"});
            assert_eq!(said(&talk.say(&two, result).await), "All is known.");
            let bodies = upstream(&mock);
            assert_eq!(bodies.len(), 6, "two rounds for each of three questions");
            for (earlier, later) in bodies.iter().zip(&bodies[1..]) {
                assert!(later.0.starts_with(&earlier.0), "{:#?}\n{:#?}", earlier.0, later.0);
                assert_eq!(earlier.1, later.1, "tools");
            }
            assert_eq!((mock.handle.refusals(), mock.handle.failures()), (vec![], vec![]));
            assert!(metric(one.probes, RECORDS_FOUND).await >= 1 && metric(two.probes, RECORDS_FOUND).await >= 2);

            // Files made through one are listed and read through the other, with the client's credential only.
            let files = format!("/knack/v1/responses/{}/files", first["id"].as_str().unwrap());
            let file = format!("{files}/out.txt");
            for replica in [&one, &two] {
                let (status, listed) = replica.get(&files, "sk-of-the-client").await;
                assert!(status == 200 && listed.contains("out.txt"), "{listed}");
                let (status, content) = replica.get(&file, "sk-of-the-client").await;
                assert_eq!((status, content.as_str()), (200, "made at one replica"));
                assert_eq!(replica.get(&file, "sk-of-another").await.0, 404);
            }
            assert_eq!(foreign.get(&files, "sk-of-the-client").await.0, 404);
            assert_eq!(foreign.get(&file, "sk-of-the-client").await.0, 404);

            // Another tenant's gateway gets no announcement, even if its client is the same, and can read nothing by
            // key.
            let told = async |caller: &HubClient| patiently(async || kept(&installation, caller).await).await.unwrap();
            let (secret, values) = told(&hub).await;
            let (other_secret, others) = told(&strange).await;
            assert_eq!((values.len(), others), (5, vec![]));
            assert_ne!(secret, other_secret);
            for value in &values {
                let path = kept_path(value.client, value.keys[0], &installation.runtime());
                let read = async |by: &HubClient| patiently(async || by.hub().get_bytes(&path, 1 << 20).await).await;
                let sealed = read(&hub).await.unwrap();
                assert!(
                    memchr::memmem::find(&sealed, b"replica").is_none(),
                    "the hub reads nothing of it"
                );
                match read(&strange).await {
                    Err(HubError::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::NotFound),
                    other => panic!("{other:?}"),
                }
            }
            let mut copied = Conversation {
                messages: talk.messages[..2].to_vec(),
            };
            assert_eq!(said(&copied.ask(&foreign, "go on alone").await), "alone");
            assert_eq!(mock.handle.failures(), [""; 0]);

            // A replica that is replaced finds what the last one made.
            let Replica { mut process, .. } = one;
            process.stop();
            let three = Replica::start(&installation, &mock, "three", 0).await;
            until(three.probes, KNOWN, 5).await;
            assert_eq!(said(&talk.ask(&three, "sum up").await), "It was a long way.");
            assert_eq!(three.get(&file, "sk-of-the-client").await.1, "made at one replica");
            assert_eq!(mock.handle.failures(), [""; 0]);

            // A replica of the hub that does not own the runtime says who does. Last: it may come to own it.
            let port = free_port();
            let url = format!("https://127.0.0.1:{port}");
            let mut standby = installation.replica("standby", port);
            installation.wait_for_hub_at(&url).await;
            standby.assert_runs();
            Replica::start_at(&installation, &url, &mock, ("aside", 0), &[]).await;
        },
    );
}

/// Without a hub, replicas are what they were without each other: requests are answered, hidden turns are missing elsewhere.
#[test]
fn replicas_whose_hub_is_away_answer_each_for_itself() {
    run("replicas_whose_hub_is_away_answer_each_for_itself", async |cluster| {
        let mut installation = Installation::start(cluster, 1, json!({})).await;
        let hub = installation.tenant(0).await;
        installation
            .skill(&installation.tenants[0], "steady", "print('x')")
            .await;
        installation.served(&hub, "steady").await;
        owned(&installation, &hub).await;
        let mock = spawn(Script::parse(SCRIPT).unwrap()).await.unwrap();
        let one = Replica::start(&installation, &mock, "one", 0).await;
        let two = Replica::start(&installation, &mock, "two", 0).await;
        let mut talk = Conversation::new();
        let first = talk.ask(&one, "make a file").await;
        until(two.probes, KNOWN, 3).await;

        installation.kill_hub();
        let mut elsewhere = Conversation {
            messages: talk.messages.clone(),
        };
        assert_eq!(said(&elsewhere.ask(&two, "go on alone").await), "alone");
        let file = format!("/knack/v1/responses/{}/files/out.txt", first["id"].as_str().unwrap());
        assert_eq!(two.get(&file, "sk-of-the-client").await.0, 404);
        assert_eq!(one.get(&file, "sk-of-the-client").await.0, 200);
        assert_eq!(mock.handle.failures(), [""; 0]);

        // The next hub keeps nothing of the last one's; what is made from now on is found again.
        installation.restart_hub().await;
        for replica in [&one, &two] {
            until(replica.probes, LINKED, 1).await;
        }
        let mut later = Conversation::new();
        later.ask(&two, "make a file").await;
        until(one.probes, KNOWN, 3).await;
        assert_eq!(said(&later.ask(&one, "read it again").await), "Still there.");
        assert_eq!(mock.handle.failures(), [""; 0]);
    });
}
