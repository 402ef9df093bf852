//! How soon a cancelled run has ended.

use std::time::{Duration, Instant};

use knack_execution::{ExecutionError, ExecutionStatus, Executor as _};
use tokio_util::sync::CancellationToken;

use crate::runner::{executor, python};
use crate::{SWEPT_WITHIN, folders_named, named, processes_named, timeout, until, until_within};

/// A floor above this is a machine that stands still, and says nothing about how long a kill takes.
const FLOOR_MAX: Duration = Duration::from_millis(50);
/// Attempts of a machine that does not stand still, of which one must be in time.
const JUDGED: usize = 5;
/// How long such attempts are waited for. After that the kill is compared with what else ends on this machine.
const QUIET_WITHIN: Duration = Duration::from_mins(1);

#[tokio::test]
async fn cancelling_answers_at_once_and_kills_within_a_tenth_of_a_second() {
    let executor = executor(0).await;
    let (mut ended, begun) = (Vec::new(), Instant::now());
    let in_time = |took: Duration, floor: Duration| took < Duration::from_millis(100) + 4 * floor;
    // A machine that is busy with other things only adds to the time.
    for attempt in 0.. {
        let cancel = CancellationToken::new();
        let source = named("cancel", "import time\ntime.sleep(60)");
        let request = timeout(python(&attempt.to_string(), &source), Duration::from_mins(1));
        let id = request.id;
        let running = executor.execute(request, cancel.clone());
        let stop = async {
            let mut program = Vec::new();
            until("the program runs", || {
                program = folders_named("cancel");
                program.len() == 1
            })
            .await;
            cancel.cancel();
            let since = Instant::now();
            // It has forked nothing: a look at all of /proc takes longer than the kill.
            until_within(SWEPT_WITHIN, "the program is gone", || !program[0].exists()).await;
            let took = since.elapsed();
            assert_eq!(processes_named("cancel"), 0);
            took
        };
        let (outcome, took) = tokio::join!(running, stop);
        assert_eq!(outcome.unwrap_err(), ExecutionError::Cancelled);
        let record = executor.get("tester", id).await.unwrap();
        assert!(
            matches!(record.status, ExecutionStatus::Error | ExecutionStatus::Running),
            "{record:?}"
        );
        let floor = end_of_a_sleep().await;
        ended.push((took, floor));
        if in_time(took, floor.min(FLOOR_MAX)) {
            return;
        }
        let judged = ended.iter().filter(|(_, floor)| *floor <= FLOOR_MAX).count();
        assert!(judged < JUDGED, "the program, and one without a sandbox: {ended:?}");
        if begun.elapsed() > QUIET_WITHIN {
            break;
        }
    }
    assert!(
        ended.iter().any(|(took, floor)| in_time(*took, *floor)),
        "the program, and one without a sandbox: {ended:?}"
    );
}

/// How long it takes here and now until a process that is killed is seen to be gone.
async fn end_of_a_sleep() -> Duration {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let process = format!("/proc/{}", child.id());
    let since = Instant::now();
    child.kill().unwrap();
    until_within(SWEPT_WITHIN, "the sleep is gone", || {
        let _ = child.try_wait();
        !std::path::Path::new(&process).exists()
    })
    .await;
    since.elapsed()
}
