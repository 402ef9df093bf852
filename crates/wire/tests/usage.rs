//! Usage where single providers have it: summed over rounds, and shown where their clients read it.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "support/chat.rs"]
#[expect(dead_code, reason = "shared with other test binaries, which use other parts of it")]
mod bodies;
mod support;

use bodies::{chunk, usage_chunk};
use knack_wire::Format;
use serde_json::{Value, json as value};
use support::*;

/// Where a chunk may have usage.
const PLACES: [&str; 3] = ["/x_groq/usage", "/choices/0/usage", "/usage"];

/// A chunk with usage in one place.
fn with_usage(chunk: &str, place: &str, tokens: u32) -> String {
    let mut chunk: Value = serde_json::from_str(chunk).unwrap();
    let usage = value!({"prompt_tokens": tokens, "total_tokens": tokens, "queue_time": 0.5});
    match place {
        "/x_groq/usage" => chunk["x_groq"] = value!({"id": "req_1", "usage": usage}),
        "/choices/0/usage" => chunk["choices"][0]["usage"] = usage,
        _ => chunk["usage"] = usage,
    }
    chunk.to_string()
}

/// A round that says something and ends so, with its usage in this place; `own`: in a chunk of its own too.
fn round(id: &str, (place, own): (&str, bool), tokens: u32, reason: &str) -> Vec<String> {
    let mut chunks = vec![chunk(id, r#"{"role":"assistant","content":"Well."}"#, "null")];
    if reason == "tool_calls" {
        let call = r#"{"tool_calls":[{"index":0,"id":"call_s","type":"function","function":{"name":"skill_run","arguments":"{}"}}]}"#;
        chunks.push(chunk(id, call, "null"));
    }
    if place == "/usage" {
        // Some say it all the time.
        chunks[0] = with_usage(&chunks[0], place, 1);
    }
    chunks.push(with_usage(&chunk(id, "{}", &format!("\"{reason}\"")), place, tokens));
    if own {
        chunks.push(usage_chunk(id, tokens));
    }
    chunks
}

/// The places of a stream that have usage, and how much.
fn shown(played: &ExchangeResult) -> Vec<(&'static str, u64)> {
    let mut found = Vec::new();
    for data in played.data().iter().filter(|data| *data != "[DONE]") {
        let chunk: Value = serde_json::from_str(data).unwrap();
        let in_place = |place: &'static str| Some((place, chunk.pointer(place)?.get("prompt_tokens")?.as_u64()?));
        found.extend(PLACES.into_iter().filter_map(in_place));
    }
    found
}

fn ask(for_usage: bool) -> String {
    let options = value!({"include_usage": true});
    let mut body = value!({"messages": [{"role": "user", "content": "x"}], "stream": true});
    if for_usage {
        body["stream_options"] = options;
    }
    body.to_string()
}

#[test]
fn usage_of_a_chat_stream_is_summed_wherever_it_is() {
    let cases: [(&str, bool, bool, &[&str]); 8] = [
        // Groq, whose clients read it unasked; asked, it comes twice.
        ("/x_groq/usage", false, false, &["/x_groq/usage"]),
        ("/x_groq/usage", true, true, &["/x_groq/usage", "/usage"]),
        // A server that answers the gateway's question, and not the client's.
        ("/x_groq/usage", true, false, &["/x_groq/usage"]),
        // Moonshot.
        ("/choices/0/usage", false, false, &["/choices/0/usage"]),
        ("/choices/0/usage", false, true, &["/choices/0/usage", "/usage"]),
        ("/choices/0/usage", true, true, &["/choices/0/usage", "/usage"]),
        // Mistral, DeepSeek: unasked, beside the reason why the answer ends.
        ("/usage", false, false, &["/usage"]),
        ("/usage", false, true, &["/usage"]),
    ];
    for (place, own, asked, expected) in cases {
        let rounds = [
            bodies::stream(&round("S1", (place, own), 10, "tool_calls")),
            bodies::stream(&round("S2", (place, own), 20, "stop")),
        ];
        let played = play(Format::Chat, &ask(asked), &rounds);
        let expected: Vec<(&str, u64)> = expected.iter().map(|place| (*place, 30)).collect();
        assert_eq!(
            shown(&played),
            expected,
            "{place}, own {own}, asked {asked}: {}",
            played.text()
        );
        let total: Value = serde_json::from_slice(&played.summary.as_ref().unwrap().usage.clone().unwrap()).unwrap();
        assert_eq!(
            (&total["total_tokens"], total["queue_time"].as_f64()),
            (&value!(30), Some(1.0))
        );
    }
}

#[test]
fn usage_of_one_round_passes_as_it_came() {
    for place in ["/x_groq/usage", "/choices/0/usage"] {
        let mut sent = round("S1", (place, true), 10, "stop");
        let usage = sent.pop().unwrap();
        sent.push(usage.replace("\"total_tokens\":10", "\"total_tokens\":10,\"queue_time\":0.5"));
        let played = play(Format::Chat, &ask(true), &[bodies::stream(&sent)]);
        sent.push("[DONE]".to_owned());
        assert_eq!(played.data(), sent);
    }
}
