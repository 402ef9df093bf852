//! What is sent, and when a run is given up on.

use super::*;
use crate::jobs::cluster::pod_facts::{Cause, Phase};

/// A runner that takes everything.
#[derive(Default)]
struct AcceptingRunner {
    waiting_bytes: usize,
    most_waiting: usize,
    writes: Vec<usize>,
}

impl Transport for AcceptingRunner {
    fn encode(&mut self, frame: &ToRunner) -> Vec<u8> {
        let line = serde_json::to_vec(frame).unwrap();
        self.waiting_bytes += line.len();
        self.most_waiting = self.most_waiting.max(self.waiting_bytes);
        line
    }

    fn request_digest(&self) -> String {
        String::new()
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), ExecutionError> {
        self.waiting_bytes -= bytes.len();
        self.writes.push(bytes.len());
        Ok(())
    }

    async fn next(&mut self) -> Result<FromRunner, ExecutionError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_small_request_is_one_write_and_of_a_large_one_a_piece_waits() {
    let program = knack_execution::Program::Command {
        argv: vec!["true".to_owned()],
    };
    let id = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    let mut request = ExecutionRequest::new(id, "c", program);
    let input = |bytes: usize| knack_execution::InputFile {
        path: "data".to_owned(),
        bytes: vec![0; bytes].into(),
    };
    request.inputs = vec![input(10), input(20)];
    let mut runner = AcceptingRunner::default();
    send_all(&mut runner, input_frames(&request)).await.unwrap();
    assert_eq!(runner.writes.len(), 1, "{:?}", runner.writes);
    request.inputs = vec![input(16 << 20)];
    send_all(&mut runner, input_frames(&request)).await.unwrap();
    assert!(runner.most_waiting < 2 << 20, "{} bytes waited", runner.most_waiting);
    assert!(runner.writes.iter().sum::<usize>() > 16 << 20);
}

#[tokio::test]
async fn what_is_on_its_way_to_a_pod_has_its_memory() {
    let id = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    let program = knack_execution::Program::Code {
        language: knack_execution::Language::Python,
        source: "x".repeat(1000),
    };
    let mut request = ExecutionRequest::new(id, "c", program);
    assert_eq!(sending_bytes(&request), 3000);
    for bytes in [10_000, 300 << 10, 16 << 20] {
        request.inputs = vec![knack_execution::InputFile {
            path: "data".to_owned(),
            bytes: vec![0; bytes].into(),
        }];
        let mut runner = AcceptingRunner::default();
        send_all(&mut runner, input_frames(&request)).await.unwrap();
        let reserved = sending_bytes(&request);
        // What waits, and the piece that it was made of.
        let waits = runner.most_waiting + bytes.min(PIECE_BYTES);
        assert!(
            reserved >= waits && reserved <= SENDING_BYTES + 3000,
            "{bytes}: {waits} of {reserved}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_still_arrives_is_read_on_after_its_pod_is_over() {
    let over = PodState {
        is_gone: true,
        ..PodState::default()
    };
    let (_index, mut state) = watch::channel(over);
    let received = AtomicUsize::new(0);
    let arriving = TROUBLE_GRACE * 5;
    let arrive = async {
        let begun = Instant::now();
        while begun.elapsed() < arriving {
            received.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(TROUBLE_GRACE / 4).await;
        }
    };
    let begun = Instant::now();
    let given_up = async {
        in_trouble(&mut state, &received).await;
        begun.elapsed()
    };
    let ((), given_up) = tokio::join!(arrive, given_up);
    assert!(
        given_up > arriving && given_up < arriving + 2 * TROUBLE_GRACE,
        "{given_up:?}"
    );
}

#[test]
fn a_pod_that_is_asked_to_end_is_lost_when_its_container_is() {
    let running = PodFacts {
        phase: Phase::Running,
        container: ContainerFacts::Running,
        ..PodFacts::default()
    };
    let disrupted = |reason: &str| PodFacts {
        disruption: Some(Cause {
            reason: reason.to_owned(),
            message: String::new(),
        }),
        ..running.clone()
    };
    let ended = ContainerFacts::Terminated {
        cause: Cause::default(),
        exit_code: 0,
    };
    for (facts, expected) in [
        (running.clone(), false),
        (
            PodFacts {
                is_deleting: true,
                ..running.clone()
            },
            false,
        ),
        (disrupted("EvictionByEvictionAPI"), false),
        (
            PodFacts {
                is_deleting: true,
                ..disrupted("EvictionByEvictionAPI")
            },
            false,
        ),
        (
            PodFacts {
                container: ended,
                ..disrupted("EvictionByEvictionAPI")
            },
            true,
        ),
        (
            PodFacts {
                container: ContainerFacts::Absent,
                is_deleting: true,
                ..running.clone()
            },
            true,
        ),
        (disrupted("DeletionByTaintManager"), true),
        (
            PodFacts {
                phase: Phase::Unknown,
                ..running
            },
            true,
        ),
    ] {
        assert_eq!(is_lost(&facts), expected, "{facts:?}");
    }
}
