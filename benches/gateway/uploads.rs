//! Uploads to the registry of a gateway that serves a hundred skills from files, and lists of many.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use knack_registry::fixture::draft;
use knack_registry::{Files, FolderStore, Owner, Store as _};
use knack_skill::model::SkillFile;
use serde_json::{Value, json};

use super::measure::median;
use super::processes::{Knack, StoredTurns};
use super::report::{Budget, Measured, Report};

/// Uploads that are measured: the 99th of them is the budget's.
const UPLOADS: usize = 100;
/// Bytes of each.
const UPLOAD_BYTES: usize = 1_000_000;
/// From the first byte of an upload to the end of the answer to a model request that names it, milliseconds.
const SERVED_LIMIT_MS: f64 = 1_000.0;
const BOUNDARY: &str = "knack-bench";
/// Their caller has no part in the other rows.
const KEY: &str = "uploads";
/// As many skills as a registry in a folder keeps.
const LISTED: usize = 10_000;
/// Skills of a page: the most that OpenAI's API gives.
const PAGE: usize = 100;
/// Median time of a page, milliseconds.
const PAGE_LIMIT_MS: f64 = 20.0;
/// Skills that are written at once while the list is made.
const WRITERS: usize = 8;

/// A skill with a script and data that no compression makes small.
fn form(name: &str, data_bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u8::try_from(state >> 56).unwrap_or_default()
    });
    let document = format!("---\nname: {name}\ndescription: Handles uploads. Use when asked for them.\n---\nDo it.\n");
    let mut body = Vec::new();
    for (path, content) in [
        ("SKILL.md", document.into_bytes()),
        ("data.bin", noise.take(data_bytes).collect()),
    ] {
        let mut head = format!("--{BOUNDARY}\r\n");
        let _ = write!(
            head,
            "content-disposition: form-data; name=\"files[]\"; filename=\"{name}/{path}\"\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    body
}

/// Uploads one, and returns its id.
async fn upload(client: &reqwest::Client, knack: &Knack, body: Vec<u8>) -> String {
    let made = client
        .post(format!("{}/v1/skills", knack.url))
        .bearer_auth(KEY)
        .header("content-type", format!("multipart/form-data; boundary={BOUNDARY}"))
        .body(body);
    let made = json_of(made).await;
    let id = made["id"].as_str().unwrap_or_else(|| panic!("not taken: {made}"));
    id.to_owned()
}

async fn json_of(request: reqwest::RequestBuilder) -> Value {
    let answer = request.send().await.expect("the gateway answers");
    serde_json::from_str(&answer.text().await.expect("a whole answer")).expect("JSON")
}

/// An upload of 1 MB until it is served: a model request that names it, and is refused as long as it is not there, is answered.
pub(crate) async fn served(report: &mut Report, knack: &Knack) {
    let client = reqwest::Client::builder().tcp_nodelay(true).build().expect("a client");
    let asked = json!({"model": "bench", "messages": [{"role": "user", "content": "hello"}]}).to_string();
    let mut times = Vec::with_capacity(UPLOADS);
    for number in 0..UPLOADS {
        let body = form(&format!("upload-{number}"), UPLOAD_BYTES);
        let begun = Instant::now();
        let id = upload(&client, knack, body).await;
        let answer = client
            .post(format!("{}/v1/chat/completions", knack.url))
            .bearer_auth(KEY)
            .header("content-type", "application/json")
            .header("x-knack-skills", id)
            .body(asked.clone());
        let answer = answer.send().await.expect("the gateway answers");
        assert!(answer.status().is_success(), "not served: {}", answer.status());
        answer.bytes().await.expect("a whole answer");
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let (half, most) = (times[UPLOADS / 2], times[UPLOADS * 99 / 100 - 1]);
    Report::note(&format!("  an upload of 1 MB until it is served: p50 {half:.1} ms"));
    let budget = Budget {
        name: "upload_1m_served_p99_ms",
        limit: SERVED_LIMIT_MS,
    };
    let sample = async || {
        [Measured {
            value: most,
            spread: 0.0,
        }]
    };
    report.steady([budget], sample).await;
}

/// Makes 10,000 skills of the bench's caller in a folder: one by an upload, which says how the caller is known there, and the others
/// beside the process, since the uploads of a caller have a pace.
async fn fill(client: &reqwest::Client, upstream: &str, folder: &Path) {
    let knack = Knack::start_on(upstream, StoredTurns::Empty, Some(folder)).await;
    let id = upload(client, &knack, form("listed", 0)).await;
    drop(knack);
    let made = std::fs::read(folder.join("skills").join(id).join("skill.json")).expect("the skill is kept");
    let made: Value = serde_json::from_slice(&made).expect("JSON");
    let owner = hex(made["owner"].as_str().expect("it has an owner"));
    let store = FolderStore::open(folder).expect("the folder is read").store;
    let (store, owner) = (&store, &Owner::from(owner));
    let create = |number| async move {
        let name = format!("listed-{number}");
        let document = format!("---\nname: {name}\ndescription: d\n---\nDo it.\n");
        let files = Files::from([(
            "SKILL.md".to_owned(),
            SkillFile {
                bytes: document.into_bytes().into(),
                executable: false,
            },
        )]);
        store
            .create(owner, None, draft(&name, files))
            .await
            .expect("it is kept");
    };
    let others = futures::stream::iter(1..LISTED).map(create).buffer_unordered(WRITERS);
    others.for_each(std::future::ready).await;
}

fn hex(text: &str) -> [u8; 32] {
    let byte = |at: usize| u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).expect("hexadecimal digits");
    std::array::from_fn(byte)
}

/// A page of a list of 10,000 skills, each page from the first to the last.
pub(crate) async fn listed(report: &mut Report, upstream: &str) {
    let client = reqwest::Client::builder().tcp_nodelay(true).build().expect("a client");
    let folder = tempfile::tempdir().expect("a temporary folder");
    fill(&client, upstream, folder.path()).await;
    let knack = Knack::start_on(upstream, StoredTurns::Empty, Some(folder.path())).await;
    let sample = async || {
        let (mut times, mut seen, mut after) = (Vec::new(), 0, String::new());
        loop {
            let begun = Instant::now();
            let page = client
                .get(format!("{}/v1/skills?limit={PAGE}{after}", knack.url))
                .bearer_auth(KEY);
            let page = json_of(page).await;
            times.push(begun.elapsed());
            seen += page["data"].as_array().map_or(0, Vec::len);
            if page["has_more"] != true {
                break;
            }
            after = format!("&after={}", page["last_id"].as_str().unwrap_or_default());
        }
        assert_eq!(seen, LISTED, "every skill is on a page");
        let page: Duration = median(times);
        [Measured {
            value: page.as_secs_f64() * 1e3,
            spread: 0.0,
        }]
    };
    let budget = Budget {
        name: "list_10000_page_p50_ms",
        limit: PAGE_LIMIT_MS,
    };
    report.steady([budget], sample).await;
}
