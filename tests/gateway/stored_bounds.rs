//! What is read of stored answers is bounded: in memory, in time, and in what is deleted with one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use knack_gateway::callers::caller;
use knack_memory::MemoryBudget;
use knack_wire::StoredForm;
use knack_wire::history::SavedTurn;
use knack_wire::stored::SentMessages;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::support::{Answer, Running, Start, client, read, start};

const MIB: usize = 1 << 20;
/// More than the buffers of a connection hold.
const LARGE_BYTES: usize = 7 * MIB;
/// The budget of the gateway: an account may hold a quarter of it in large bodies.
const BUDGET_BYTES: usize = 256 * MIB;
/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long a gateway waits for a page of a list that it asks for itself.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// A page that comes this late is in time, also where the machine stands still for some seconds.
const LATE_PAGE: Duration = Duration::from_secs(20);

/// How often something is tried that a busy machine can spoil.
const ATTEMPTS: usize = 5;

/// What stands for a member of this length.
const PAD: &str = "PAD";

/// A provider that keeps answers, and ends large ones when it is told to.
#[derive(Debug)]
struct Provider {
    ends: watch::Sender<bool>,
    /// How long a page behind the first one takes.
    page_takes: Duration,
    /// That page is asked for.
    is_page_asked: AtomicBool,
    deleted: Mutex<Vec<String>>,
    pad: Bytes,
}

impl Provider {
    fn new(page_takes: Duration) -> Arc<Self> {
        Arc::new(Self {
            ends: watch::Sender::new(true),
            page_takes,
            is_page_asked: AtomicBool::new(false),
            deleted: Mutex::default(),
            pad: vec![b'x'; LARGE_BYTES].into(),
        })
    }

    async fn serve(self: &Arc<Self>) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let provider = Arc::clone(self);
        let answer = move |request: Request| {
            let provider = Arc::clone(&provider);
            async move { provider.answer(request.method(), request.uri()).await }
        };
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
        url
    }

    async fn answer(&self, method: &Method, uri: &Uri) -> Response {
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let id = path.rsplit('/').next().unwrap();
        if *method == Method::DELETE {
            self.deleted.lock().unwrap().push(id.to_owned());
            return json_of(&json!({"id": id, "object": "chat.completion.deleted", "deleted": true}));
        }
        if *method == Method::POST {
            let message = json!({"role": "assistant", "content": "hi"});
            let choice = json!({"index": 0, "finish_reason": "stop", "message": message});
            return json_of(&json!({
                "id": "c_small", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice],
            }));
        }
        let pad = PAD;
        let list = |item: Value| {
            json!({
                "object": "list", "data": [item], "has_more": false, "first_id": item["id"], "last_id": item["id"],
            })
        };
        let object = match path {
            "/v1/chat/completions" if query.contains("after=") => {
                let page = tokio::time::sleep(self.page_takes);
                self.is_page_asked.store(true, Ordering::SeqCst);
                page.await;
                list(json!({"id": "c_other", "object": "chat.completion", "choices": [], "pad": pad}))
            }
            "/v1/chat/completions" if query.contains("behind_rounds") => {
                let mut page = list(json!({"id": "c_round", "object": "chat.completion", "choices": []}));
                page["has_more"] = json!(true);
                return json_of(&page);
            }
            "/v1/chat/completions" => list(json!({"id": "c_other", "object": "chat.completion", "pad": pad})),
            "/v1/chat/completions/c_own/messages" => list(json!({"id": "m", "role": "user", "content": pad})),
            "/v1/responses/c_own/input_items" => list(json!({"id": "i", "type": "message", "pad": pad})),
            "/v1/responses/c_own" => json!({"id": id, "object": "response", "output": [], "pad": pad}),
            _ => json!({"id": id, "object": "chat.completion", "choices": [], "pad": pad}),
        };
        self.large(&object)
    }

    /// An answer whose last byte comes when it may.
    fn large(&self, object: &Value) -> Response {
        let text = object.to_string();
        let (before, behind) = text.split_once(PAD).expect("a large member");
        let (behind, last) = behind.split_at(behind.len() - 1);
        let [before, behind, last] = [before, behind, last].map(|part| Bytes::copy_from_slice(part.as_bytes()));
        let length = before.len() + LARGE_BYTES + behind.len() + 1;
        let mut ends = self.ends.subscribe();
        let end = async move {
            let _ = ends.wait_for(|ends| *ends).await;
            Ok::<_, std::io::Error>(last)
        };
        let begin = [before, self.pad.clone(), behind].map(Ok);
        let pieces = futures::StreamExt::chain(futures::stream::iter(begin), futures::stream::once(end));
        let mut answer = Body::from_stream(pieces).into_response();
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        answer
    }
}

fn json_of(value: &Value) -> Response {
    ([("content-type", "application/json")], value.to_string()).into_response()
}

/// A gateway that remembers an answer of these callers, a round of it, and these other rounds.
async fn remembering(provider: &Arc<Provider>, keys: &[&str], rounds: &[String]) -> Running {
    let knack = start(Start {
        upstream: Some(provider.serve().await),
        memory: MemoryBudget::new(BUDGET_BYTES),
        ..Start::default()
    })
    .await;
    for key in keys {
        let bearer = HeaderValue::try_from(format!("Bearer {key}")).unwrap();
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, bearer)]);
        let caller = caller::identify(&knack.gateway.secret.current(), &headers, &Uri::from_static("/"));
        let own = StoredForm {
            rounds: rounds.to_vec(),
            messages: Some(SentMessages {
                count: 1,
                changes: Vec::new(),
            }),
            ..StoredForm::default()
        };
        let round = StoredForm {
            part_of: "c_own".to_owned(),
            ..StoredForm::default()
        };
        for (id, state, view) in [("c_own", "c_own", own), ("c_round", "", round)] {
            let record = Arc::new(SavedTurn {
                state: state.to_owned(),
                stored: Some(view),
                ..SavedTurn::default()
            });
            let key = caller.response_key(id);
            assert!(knack.gateway.turn_store.put(caller.bucket(), key, vec![key], record));
        }
    }
    knack
}

async fn get(url: String, key: &str) -> Answer {
    read(client().get(url).bearer_auth(key).send().await.unwrap()).await
}

impl Running {
    fn held(&self) -> usize {
        self.gateway.requests.process().held_bytes()
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

/// More clients of one account read large answers than it has room for; the provider ends none of them meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_many_clients_read_at_once_stays_within_the_memory_budget() {
    let provider = Provider::new(Duration::ZERO);
    let knack = remembering(&provider, &["key-a", "key-b"], &[]).await;
    for path in [
        "/v1/chat/completions",
        "/v1/chat/completions?behind_rounds=1",
        "/v1/chat/completions/c_own",
        "/v1/chat/completions/c_own/messages",
        "/v1/responses/c_own",
        "/v1/responses/c_own/input_items",
    ] {
        let mut attempts = 0;
        while !many_read(&provider, &knack, path).await {
            attempts += 1;
            assert!(attempts < ATTEMPTS, "{path}: this machine is too slow");
        }
    }
}

/// False: the attempt took longer than a gateway waits for a page that it asks for itself, so that it says nothing of memory.
async fn many_read(provider: &Provider, knack: &Running, path: &str) -> bool {
    let begun = Instant::now();
    let is_late = || path.contains("behind_rounds") && begun.elapsed() >= PAGE_TIMEOUT;
    provider.ends.send_replace(false);
    let reading = |key: &'static str| tokio::spawn(get(format!("{}{path}", knack.url), key));
    let room = BUDGET_BYTES / 4 / LARGE_BYTES;
    let many: Vec<_> = (0..2 * room).map(|_| reading("key-a")).collect();
    until(&format!("{path}: what has no room is refused"), || {
        is_late() || many.iter().filter(|one| one.is_finished()).count() == room
    })
    .await;
    if is_late() {
        return abandoned(provider, knack, many).await;
    }
    assert!(knack.held() > (room - 1) * LARGE_BYTES && knack.held() < BUDGET_BYTES / 3);
    // Small requests of the same account, and large ones of another, are served.
    let small = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    assert_eq!(knack.send(knack.chat(&small)).await.said(), "hi", "{path}");
    let other = reading("key-b");
    until("the other account reads, too", || {
        is_late() || knack.held() > (room + 1) * LARGE_BYTES
    })
    .await;
    if is_late() {
        return abandoned(provider, knack, many.into_iter().chain([other])).await;
    }
    // Most of the clients leave, and two wait for what they read.
    let (refused, mut reading): (Vec<_>, Vec<_>) = many.into_iter().partition(JoinHandle::is_finished);
    for left in reading.split_off(2) {
        left.abort();
    }
    provider.ends.send_replace(true);
    let mut read = Vec::new();
    for one in reading.into_iter().chain([other]) {
        read.push(one.await.unwrap());
    }
    if is_late() && read.iter().any(|answer| answer.status == 502) {
        return abandoned(provider, knack, refused).await;
    }
    for answer in read {
        assert_eq!((answer.status, answer.text.len() > LARGE_BYTES), (200, true), "{path}");
    }
    for one in refused {
        let answer = one.await.unwrap();
        assert_eq!(answer.status, 503, "{path}");
        assert_eq!(answer.headers[header::RETRY_AFTER], "1");
        let error = &answer.json()["error"];
        assert!(
            error["message"].as_str().unwrap().contains("too many large requests"),
            "{error}"
        );
        assert!(
            ["type", "param", "code"].iter().all(|key| error.get(key).is_some()),
            "{error}"
        );
    }
    until("all is given back", || knack.held() == 0).await;
    true
}

/// Ends an attempt that came to nothing.
async fn abandoned(
    provider: &Provider,
    knack: &Running,
    clients: impl IntoIterator<Item = JoinHandle<Answer>>,
) -> bool {
    for client in clients {
        client.abort();
    }
    provider.ends.send_replace(true);
    until("all is given back", || knack.held() == 0).await;
    false
}

/// Its client has not read it yet: it is still there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_counts_until_its_client_has_it_or_leaves() {
    let provider = Provider::new(Duration::ZERO);
    let knack = remembering(&provider, &["key-a"], &[]).await;
    for path in [
        "/v1/chat/completions",
        "/v1/responses/c_own",
        "/v1/chat/completions/c_own/messages",
    ] {
        let mut slow = TcpStream::connect(knack.url.trim_start_matches("http://"))
            .await
            .unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer key-a\r\n\r\n");
        slow.write_all(head.as_bytes()).await.unwrap();
        let mut first = [0; 12];
        slow.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200", "{path}");
        let held = knack.held();
        assert!(held > LARGE_BYTES && held < 2 * LARGE_BYTES, "{path}: {held}");
        drop(slow);
        until("all is given back", || knack.held() == 0).await;
    }
}

/// The page behind the first is asked for by the gateway itself, and its client waits for both.
#[tokio::test]
async fn a_page_of_a_list_that_does_not_come_in_time_is_waited_for_no_longer() {
    for (takes, passes, status) in [(LATE_PAGE, LATE_PAGE, 200), (2 * PAGE_TIMEOUT, PAGE_TIMEOUT, 502)] {
        let provider = Provider::new(takes);
        let knack = remembering(&provider, &["key-a"], &[]).await;
        let list = format!("{}/v1/chat/completions?behind_rounds=1", knack.url);
        let asking = tokio::spawn(get(list, "key-a"));
        until("the page is asked for", || {
            provider.is_page_asked.load(Ordering::SeqCst)
        })
        .await;
        // Time passes here alone. On the way between two sockets it would pass too early: what a busy kernel has not delivered yet is
        // nothing to be done.
        tokio::time::pause();
        tokio::time::advance(passes).await;
        tokio::time::resume();
        let answer = tokio::time::timeout(PATIENCE, asking).await.unwrap().unwrap();
        assert_eq!(answer.status, status, "{takes:?}: {:.200}", answer.text);
        let is_told = answer.text.contains("did not return the next page of completions");
        assert_eq!(is_told, status == 502, "{takes:?}: {:.200}", answer.text);
    }
}

#[tokio::test]
async fn at_most_128_rounds_are_deleted_with_an_answer() {
    for (rounds, deleted) in [(100, 100), (128, 128), (130, 128)] {
        let provider = Provider::new(Duration::ZERO);
        let ids: Vec<String> = (0..rounds).map(|n| format!("c_{n}")).collect();
        let knack = remembering(&provider, &["key-a"], &ids).await;
        let url = format!("{}/v1/chat/completions/c_own", knack.url);
        let gone = knack.send(client().delete(url).bearer_auth("key-a")).await;
        assert_eq!((gone.status, &gone.json()["id"]), (200, &json!("c_own")));
        let asked = provider.deleted.lock().unwrap().clone();
        assert_eq!(asked[0], "c_own", "the whole answer goes first");
        let mut others = asked[1..].to_vec();
        others.sort_by_key(|id| ids.iter().position(|own| own == id));
        assert_eq!(others, ids[..deleted]);
    }
}
