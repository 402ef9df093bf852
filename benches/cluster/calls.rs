//! One call of the hub, from the POST to its `result` frame.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use knack_execution::ExecutionId;
use knack_hub_api::client::HubError;
use knack_hub_api::{
    ExecutionFrame, ExecutionPost, LimitsLine, MountLine, PROTOCOL, ProgramLine, RefusalCode, WorkingDirectoryLine,
};

use crate::installation::Installation;

/// Size of the code of every call.
const CODE_BYTES: usize = 1 << 10;
/// What the code prints.
pub(crate) const ANSWER: &str = "285\n";

/// A run that ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunTimes {
    /// From before the POST to the `result` frame, by the caller's clock.
    pub elapsed: Duration,
    /// Time at the hub, from the permit to the result.
    pub at_hub: Duration,
    /// The program alone, at the runner.
    pub program: Duration,
    /// Whether its sandbox was warm.
    pub is_warm: bool,
}

/// What came of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// It ran.
    RunTimes(RunTimes),
    /// 429, after this long.
    Refused(Duration),
}

/// The code of a call, padded with a comment.
pub(crate) fn code() -> String {
    let program = "print(sum(number * number for number in range(10)))\n";
    format!("{program}{}\n", "#".repeat(CODE_BYTES - program.len() - 1))
}

impl Installation {
    /// Calls; a call that fails ends the bench.
    pub(crate) async fn call(&self) -> RunTimes {
        match self.try_call().await {
            Answer::RunTimes(ran) => ran,
            Answer::Refused(after) => panic!("refused after {after:?}"),
        }
    }

    /// Calls a pod that must be warm.
    pub(crate) async fn warm_call(&self) -> RunTimes {
        let ran = self.call().await;
        assert!(ran.is_warm, "no sandbox stood ready");
        ran
    }

    /// Calls.
    pub(crate) async fn try_call(&self) -> Answer {
        let body = Bytes::from(serde_json::to_vec(&self.post()).expect("plain data"));
        let begun = Instant::now();
        let mut lines = match self.hub.hub().post_stream("/v1/executions", body).await {
            Ok(lines) => lines,
            Err(HubError::Refused(refusal)) if refusal.code == RefusalCode::TooManyRequests => {
                return Answer::Refused(begun.elapsed());
            }
            Err(error) => panic!("the hub: {error}"),
        };
        loop {
            match lines.next_value::<ExecutionFrame>().await.expect("a readable answer") {
                Some(ExecutionFrame::Result(result)) => {
                    let elapsed = begun.elapsed();
                    assert_eq!(result.stdout.0, ANSWER.as_bytes(), "the program's answer");
                    // Read to its end, so that the connection serves the next call.
                    assert!(
                        lines.next().await.expect("an end").is_none(),
                        "nothing follows a result"
                    );
                    return Answer::RunTimes(RunTimes {
                        elapsed,
                        at_hub: Duration::from_micros(result.timings.total_us),
                        program: Duration::from_micros(result.timings.run_us),
                        is_warm: result.timings.warm,
                    });
                }
                Some(ExecutionFrame::Error(refusal)) => panic!("the execution failed: {refusal}"),
                Some(_) => {}
                None => panic!("the answer ended without a result"),
            }
        }
    }

    fn post(&self) -> ExecutionPost {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let call = uuid::Uuid::new_v4().to_string();
        ExecutionPost {
            protocol: PROTOCOL,
            runtime: Self::runtime(),
            id: ExecutionId::new(now, &call, 0, "bench").to_string(),
            skill: Some(0),
            program: ProgramLine::Code {
                language: "python".to_owned(),
                source: code(),
            },
            mounts: vec![MountLine {
                mount: self.skill.name.clone(),
                namespace: self.skill.namespace.clone(),
                name: self.skill.name.clone(),
                digest: self.skill.digest.clone(),
            }],
            inputs: Vec::new(),
            working_directory: WorkingDirectoryLine::Work,
            limits: LimitsLine::default(),
            live: false,
            client: None,
        }
    }
}
