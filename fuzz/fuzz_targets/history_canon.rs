//! Histories: the chain over any conversation, and expansions of it that are JSON again.
#![no_main]

use knack_fuzz::request;
use knack_wire::history::{self, Caller, HistorySecret, TurnMatch, InjectionMode, SavedTurn, ShownRun, Segment, RunText, ResultTexts};
use knack_wire::{Format, json};
use libfuzzer_sys::fuzz_target;

struct Said;

impl ResultTexts for Said {
    fn load(&mut self, _: &str) -> String {
        "\"\n".to_owned()
    }

    fn run(&mut self, run: &ShownRun) -> RunText {
        RunText { text: format!("{run:?}"), files: Vec::new() }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, body)) = data.split_first() else { return };
    let format = match choice & 0b101 {
        0 => Format::Chat,
        1 => Format::Messages,
        4 => Format::Responses,
        _ => Format::Gemini,
    };
    let Some(request) = request(format, false, body) else { return };
    let scan = history::scan(&request);
    let caller = Caller::new(&HistorySecret::new([1; 32]), b"k");
    let raw = |text: &str| vec![Segment::Raw(text.to_owned())];
    let hits: Vec<TurnMatch> = scan
        .lookups(&caller)
        .into_iter()
        .filter(|lookup| choice >> (lookup.turn % 5 + 3) & 1 == 1)
        .map(|lookup| {
            let message = vec![Segment::Raw("\"".to_owned()), Segment::Load("l".to_owned()), Segment::Raw("\"".to_owned())];
            let record = SavedTurn { messages: vec![message], open_results: vec![raw("{}")], ..SavedTurn::default() };
            TurnMatch { turn: lookup.turn, saved: record.into() }
        })
        .collect();
    let mode = if choice & 2 == 0 { InjectionMode::Injecting { run_tool: Some("run_code") } } else { InjectionMode::Off };
    let edits = history::expand(&request, &scan, &hits, (mode, true), &mut Said).edits;
    let out = edits.apply(request.raw());
    assert!(json::document(&out).is_ok(), "{}", String::from_utf8_lossy(&out));
});
