//! The lines of a run's answer.

use knack_hub_api::client::LineReader;
use knack_hub_api::{ExecutionFrame, StreamName};

/// Reads an execution's answer until its program has printed something. Panics if it ends before.
pub(crate) async fn until_it_prints(lines: &mut LineReader) {
    loop {
        match lines.next_value::<ExecutionFrame>().await.unwrap() {
            Some(ExecutionFrame::Output(output)) if output.stream == StreamName::Stdout => return,
            Some(ExecutionFrame::Error(refusal)) => panic!("{refusal}"),
            Some(_) => {}
            None => panic!("the answer ended before the run began"),
        }
    }
}

/// Reads an execution's answer up to its end; what it printed. Panics if it ends otherwise.
pub(crate) async fn printed(lines: &mut LineReader) -> String {
    while let Some(frame) = lines.next_value::<ExecutionFrame>().await.unwrap() {
        match frame {
            ExecutionFrame::Result(result) => return String::from_utf8_lossy(&result.stdout.0).into_owned(),
            ExecutionFrame::Error(refusal) => panic!("{refusal}"),
            _ => {}
        }
    }
    panic!("the answer ended before the result");
}
