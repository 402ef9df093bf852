//! `knack history --server` of a real `knack registry` (docs/registry.md#read-it-from-your-machine).

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use knack_registry::REPORT_PATH;
use serde_json::{Value, json};

use super::kept_files::{Kept, token};

/// More than two pages, and the last one not full.
const RUNS: usize = 230;

/// Runs of two skills, each a second after the one before it; every tenth has failed.
async fn report(kept: &Kept, account: &str, runs: usize) {
    let client = kept.client(account);
    let begun = jiff::Timestamp::now().as_microsecond() - i64::try_from(runs).unwrap() * 1_000_000;
    let execution = |number: usize| {
        let skill = if number.is_multiple_of(2) { "even" } else { "odd" };
        let status = if number.is_multiple_of(10) { "error" } else { "success" };
        json!({
            "id": format!("{account}-{number:03}"), "caller": "11", "tool": "run", "request": "r", "input": {"number": number},
            "skill": {"id": format!("system.team.{skill}"), "name": skill, "version": "1.0.0", "digest": "d"},
            "output": "é", "status": status, "error": if status == "error" { json!("it failed") } else { Value::Null },
            "durationMs": 5, "created": begun + i64::try_from(number).unwrap() * 1_000_000,
        })
    };
    let all: Vec<Value> = (0..runs).map(execution).collect();
    for part in all.chunks(50) {
        let body = Bytes::from(json!({"executions": part}).to_string());
        let answer = client
            .relay(Method::POST, REPORT_PATH, HeaderMap::new(), body)
            .await
            .unwrap();
        assert_eq!(answer.status(), 204);
    }
    // The registry answers gateways before it has its first list.
    let asking = async {
        loop {
            let asked = client.relay(Method::GET, "/api/skills/executions", HeaderMap::new(), Bytes::new());
            if asked.await.unwrap().status() == 200 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), asking).await.unwrap();
}

async fn history(kept: &Kept, more: &[&str]) -> Output {
    let work: &Path = kept.folder.path();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_knack"));
    let url = format!("https://127.0.0.1:{}", kept.port);
    command
        .current_dir(work)
        .env_clear()
        .args(["history", "--server", &url]);
    let files = ["--token-file", "token", "--ca-file", "tls.crt"];
    command.args(files).args(more).output().await.unwrap()
}

#[tokio::test]
async fn what_the_disk_refuses_is_not_answered_as_kept() {
    let kept = Kept::keeping(&["history"]).await;
    std::fs::write(kept.folder.path().join("token"), token("team:app") + "\n").unwrap();
    report(&kept, "team:app", 1).await;
    let client = kept.client("team:app");
    let status = async |id: &str| {
        let run = json!({"id": id, "caller": "11", "tool": "run", "request": "r", "input": {}, "output": "é", "status": "success",
            "durationMs": 5, "created": jiff::Timestamp::now().as_microsecond()});
        let body = Bytes::from(json!({"executions": [run]}).to_string());
        let answer = client.relay(Method::POST, REPORT_PATH, HeaderMap::new(), body);
        answer.await.unwrap().status().as_u16()
    };
    let (there, away) = (
        kept.folder.path().join("history/executions"),
        kept.folder.path().join("away"),
    );
    std::fs::rename(&there, &away).unwrap();
    assert_eq!(status("refused").await, 503, "the disk refuses it");
    std::fs::rename(&away, &there).unwrap();
    assert_eq!(status("refused").await, 204, "it is sent again");
    let answer = history(&kept, &["--export", "all.jsonl"]).await;
    assert!(answer.status.success(), "{}", text(&answer.stderr));
    let lines = std::fs::read_to_string(kept.folder.path().join("all.jsonl")).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap());
    let found: Vec<(Value, Value)> = lines
        .map(|line: Value| (line["id"].clone(), line["output"].clone()))
        .collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|(_, output)| output == "é"), "whole: {found:?}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn the_runs_of_an_account_are_listed_and_exported_page_by_page() {
    let kept = Kept::keeping(&["history"]).await;
    std::fs::write(kept.folder.path().join("token"), token("team:app") + "\n").unwrap();
    report(&kept, "team:app", RUNS).await;
    report(&kept, "team:other", 3).await;
    for (filter, expected) in [
        (&[][..], RUNS),
        (&["--status", "error"], RUNS / 10),
        (&["--skill", "odd"], RUNS / 2),
        (&["--skill", "even@1.0.0"], RUNS / 2),
        (&["--skill", "system.team.odd", "--status", "error"], 0),
        (&["--skill", "even@2.0.0"], 0),
        (&["--since", "1d"], RUNS),
        (&["--since", "2100-01-01"], 0),
    ] {
        let answer = history(&kept, filter).await;
        assert!(answer.status.success(), "{filter:?}: {}", text(&answer.stderr));
        let lines = text(&answer.stdout).lines().count();
        assert_eq!(
            lines.saturating_sub(1),
            expected,
            "{filter:?}: {}",
            text(&answer.stderr)
        );
    }
    let answer = history(&kept, &["--since", "1h", "--export", "all.jsonl"]).await;
    assert!(answer.status.success(), "{}", text(&answer.stderr));
    assert!(text(&answer.stderr).contains("230 executions are in all.jsonl"));
    let lines = std::fs::read_to_string(kept.folder.path().join("all.jsonl")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<u64> = lines
        .iter()
        .map(|line| line["input"]["number"].as_u64().unwrap())
        .collect();
    assert_eq!(
        numbers,
        (0..RUNS as u64).collect::<Vec<_>>(),
        "the oldest first, each once"
    );
    assert_eq!(
        (&lines[1]["output"], &lines[1]["apiKeyId"]),
        (&json!("é"), &json!("11"))
    );
}

#[tokio::test]
async fn what_is_wrong_is_reported_by_the_flag_that_names_it() {
    let mut kept = Kept::keeping(&["files"]).await;
    let write = |name: &str, text: &str| std::fs::write(kept.folder.path().join(name), text).unwrap();
    write("token", &token("team:app"));
    write("all.jsonl", "as it was");
    let export = ["--export", "all.jsonl"];
    let mut told = Vec::new();
    let waiting = async {
        loop {
            let answer = history(&kept, &export).await;
            let said = text(&answer.stderr);
            // It is not ready at its start.
            if !said.contains("not ready") {
                return said;
            }
        }
    };
    told.push((
        tokio::time::timeout(Duration::from_mins(1), waiting).await.unwrap(),
        "No history of executions",
    ));
    write("token", "");
    told.push((text(&history(&kept, &export).await.stderr), "kubectl create token"));
    std::fs::remove_file(kept.folder.path().join("token")).unwrap();
    told.push((text(&history(&kept, &export).await.stderr), "--token-file token"));
    std::fs::write(kept.folder.path().join("token"), token("team:app")).unwrap();
    kept.kill();
    told.push((text(&history(&kept, &export).await.stderr), "--server: no answer"));
    for (said, expected) in told {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let kept_file = std::fs::read_to_string(kept.folder.path().join("all.jsonl")).unwrap();
    assert_eq!(kept_file, "as it was", "a failed export");
    assert!(!kept.folder.path().join("all.jsonl.part").exists());
}
