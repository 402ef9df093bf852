//! What hub and gateway send to each other: lines of a catalog, requests and frames of executions, refusals. What is read
//! is written as it would be read again; frames never make files that leave the working directory.
#![no_main]

use knack_execution::ExecutionId;
use knack_execution::lines::{CollectStep, Collector, error_of_refusal};
use knack_hub_api::{CatalogLine, ClientCheck, ContentIndex, ExecutionFrame, ExecutionPost, ExecutionState, HubRefusal};
use knack::hub::admission;
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn survives<T: DeserializeOwned + Serialize>(line: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(line).ok()?;
    let text = serde_json::to_vec(&value).expect("what was read can be written");
    let again: T = serde_json::from_slice(&text).expect("what was written can be read");
    assert_eq!(serde_json::to_vec(&again).expect("as before"), text);
    Some(value)
}

fuzz_target!(|data: &[u8]| {
    let id = ExecutionId::new(std::time::Duration::from_secs(1), "fuzz", 0, "c");
    let mut collector = Collector::default();
    for line in data.split(|byte| *byte == b'\n') {
        survives::<CatalogLine>(line);
        survives::<ContentIndex>(line);
        survives::<ClientCheck>(line);
        survives::<ExecutionState>(line);
        if let Some(refusal) = survives::<HubRefusal>(line) {
            error_of_refusal(refusal);
        }
        if let Some(post) = survives::<ExecutionPost>(line) {
            let _ = admission::read(&post);
        }
        if let Some(frame) = survives::<ExecutionFrame>(line)
            && let Ok(CollectStep::Result(result)) = collector.take(id, frame)
        {
            for file in &result.files {
                let inside = |part: &str| !part.is_empty() && part != "." && part != "..";
                assert!(file.path.split('/').all(inside), "{:?}", file.path);
            }
        }
    }
});
