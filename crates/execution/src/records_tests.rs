use futures::FutureExt as _;

use super::*;
use crate::Exit;
use crate::fixture::mk_result;

const START: Duration = Duration::from_secs(1_763_770_000);

fn id(call: &str) -> ExecutionId {
    ExecutionId::new(START, "request", 0, call)
}

#[expect(clippy::unnecessary_wraps, reason = "the callers want an outcome")]
fn result(id: ExecutionId, exit: Exit, output: usize) -> Outcome {
    Outcome::Ok(Arc::new(mk_result(id, exit, vec![b'x'; output])))
}

fn first(records: &Arc<Records>, caller: &str, id: ExecutionId) -> (Run, Waiter) {
    match records.claim(START, caller, id, Some("ns/skill")).unwrap() {
        Claim::First(run, waiter) => (run, waiter),
        other => panic!("not the first: {other:?}"),
    }
}

#[tokio::test]
async fn one_run_for_concurrent_askers_and_the_same_result_for_all() {
    let records = Records::new(RecordSettings::default());
    let (run, mut waiter) = first(&records, "a", id("1"));
    let Claim::Known(mut second) = records.claim(START, "a", id("1"), None).unwrap() else {
        panic!("run twice")
    };
    run.start();
    assert_eq!(
        records.get(START, "a", id("1")).unwrap().status,
        ExecutionStatus::Running
    );
    run.finish(START, result(id("1"), Exit::Code(0), 3));
    let (left, right) = (waiter.wait().await.unwrap(), second.wait().await.unwrap());
    assert!(Arc::ptr_eq(&left, &right));
    let Claim::Ended(Ok(again)) = records.claim(START, "a", id("1"), None).unwrap() else {
        panic!("run twice")
    };
    assert!(Arc::ptr_eq(&left, &again));
}

#[test]
fn another_callers_id_is_not_found_and_its_own_run() {
    let records = Records::new(RecordSettings::default());
    let (_run, _waiter) = first(&records, "a", id("1"));
    assert_eq!(records.get(START, "b", id("1")).unwrap_err(), ExecutionError::NotFound);
    assert_eq!(
        records.cancel(START, "b", id("1")).unwrap_err(),
        ExecutionError::NotFound
    );
    let _own = first(&records, "b", id("1"));
}

#[test]
fn the_five_statuses_follow_the_run() {
    for (exit, status) in [
        (Exit::Code(0), "success"),
        (Exit::Code(1), "error"),
        (Exit::Signal(9), "error"),
        (Exit::OutOfMemory, "error"),
        (Exit::Timeout, "timeout"),
    ] {
        let records = Records::new(RecordSettings::default());
        let (run, _waiter) = first(&records, "a", id("1"));
        let now = || records.get(START, "a", id("1")).unwrap().status.as_str();
        assert_eq!(now(), "pending");
        run.start();
        assert_eq!(now(), "running");
        run.finish(START, result(id("1"), exit, 0));
        assert_eq!(now(), status);
    }
}

#[test]
fn a_result_is_gone_after_the_retention_and_never_runs_again() {
    let records = Records::new(RecordSettings::default());
    let RecordSettings {
        retention, admission, ..
    } = RecordSettings::default();
    let (run, _waiter) = first(&records, "a", id("1"));
    run.finish(START, result(id("1"), Exit::Code(0), 0));
    assert!(records.get(START + retention, "a", id("1")).is_ok());
    let second = Duration::from_secs(1);
    for later in [
        retention + second,
        admission + retention,
        admission + retention + second,
        Duration::from_secs(1 << 30),
    ] {
        assert_eq!(
            records.get(START + later, "a", id("1")).unwrap_err(),
            ExecutionError::Gone,
            "{later:?}"
        );
        assert_eq!(
            records.claim(START + later, "a", id("1"), None).unwrap_err(),
            ExecutionError::Gone,
            "{later:?}"
        );
    }
}

#[test]
fn what_was_forgotten_while_the_clock_was_ahead_does_not_run_again_once_it_is_stepped_back() {
    let records = Records::new(RecordSettings::default());
    let (run, _waiter) = first(&records, "a", id("1"));
    run.finish(START, result(id("1"), Exit::Code(0), 0));
    let ahead = START + Duration::from_hours(1);
    let of_then = ExecutionId::new(ahead, "request", 0, "2");
    let (run, _waiter) = match records.claim(ahead, "a", of_then, None).unwrap() {
        Claim::First(run, waiter) => (run, waiter),
        other => panic!("not the first: {other:?}"),
    };
    let second = Duration::from_secs(1);
    let repeated = records.claim(START + second, "a", id("1"), None);
    assert_eq!(repeated.unwrap_err(), ExecutionError::Gone);
    let later = ExecutionId::new(START + second, "request", 0, "3");
    assert!(matches!(
        records.claim(START + second, "a", later, None),
        Ok(Claim::First(..))
    ));
    drop(run);
}

#[test]
fn an_old_id_is_gone_without_look_up_and_one_of_a_long_request_is_not() {
    let records = Records::new(RecordSettings::default());
    let RecordSettings {
        retention, admission, ..
    } = RecordSettings::default();
    assert!(matches!(
        records.claim(START + admission, "a", id("late round"), None),
        Ok(Claim::First(..))
    ));
    let old = START + admission + retention + Duration::from_millis(1);
    assert_eq!(
        records.claim(old, "a", id("old"), None).unwrap_err(),
        ExecutionError::Gone
    );
    let early = START.saturating_sub(Duration::from_hours(1));
    assert_eq!(
        records
            .claim(early, "a", id("future"), None)
            .unwrap_err()
            .metric_label(),
        "invalid"
    );
}

#[test]
fn kept_bytes_and_entries_are_bounded_and_leave_nothing_behind() {
    let settings = RecordSettings {
        max_bytes: 10_000,
        max_entries: 50,
        ..RecordSettings::default()
    };
    let horizon = settings.admission + settings.retention;
    let records = Records::new(settings);
    for call in 0..50 {
        let (run, _waiter) = first(&records, "a", id(&call.to_string()));
        run.finish(START, result(id(&call.to_string()), Exit::Code(0), 1_000));
    }
    assert!(records.0.lock().kept_bytes <= 10_000);
    assert_eq!(records.get(START, "a", id("0")).unwrap_err(), ExecutionError::Gone);
    assert!(records.get(START, "a", id("49")).is_ok());
    assert_eq!(
        records
            .claim(START, "a", id("one more"), None)
            .unwrap_err()
            .metric_label(),
        "queue_full"
    );

    let later = START + horizon + Duration::from_secs(1);
    let next = ExecutionId::new(later, "request", 0, "next");
    let _next = records.claim(later, "a", next, None).unwrap();
    let table = records.0.lock();
    assert_eq!(
        (
            table.entries.len(),
            table.expiry.len(),
            table.kept.len(),
            table.kept_bytes
        ),
        (1, 1, 0, 0)
    );
}

#[test]
fn the_last_waiter_that_leaves_cancels_the_run() {
    let records = Records::new(RecordSettings::default());
    let (run, waiter) = first(&records, "a", id("1"));
    let Claim::Known(second) = records.claim(START, "a", id("1"), None).unwrap() else {
        panic!("run twice")
    };
    drop(waiter);
    assert!(!run.cancel.is_cancelled());
    drop(second);
    assert!(run.cancel.is_cancelled());
}

#[test]
fn cancel_by_id_reaches_the_run() {
    let records = Records::new(RecordSettings::default());
    let (run, _waiter) = first(&records, "a", id("1"));
    records.cancel(START, "a", id("1")).unwrap();
    assert!(run.cancel.is_cancelled());
    run.finish(START, Err(ExecutionError::Cancelled));
    let record = records.get(START, "a", id("1")).unwrap();
    assert_eq!(
        (record.status, record.error.as_deref()),
        (ExecutionStatus::Error, Some("execution cancelled"))
    );
    assert!(matches!(
        records.claim(START, "a", id("1"), None),
        Ok(Claim::Ended(Err(ExecutionError::Cancelled)))
    ));
}

#[test]
fn what_never_started_frees_its_id_and_an_old_waiter_does_not_touch_the_new_run() {
    let records = Records::new(RecordSettings::default());
    let (run, mut old) = first(&records, "a", id("1"));
    run.finish(
        START,
        Err(ExecutionError::QueueTimeout {
            retry_after: Duration::from_secs(1),
        }),
    );
    assert_eq!(
        old.wait().now_or_never().unwrap().unwrap_err().metric_label(),
        "queue_timeout"
    );
    let (again, _waiter) = first(&records, "a", id("1"));
    drop(old);
    assert!(!again.cancel.is_cancelled());
}

#[tokio::test]
async fn an_abandoned_run_ends_as_an_error() {
    let records = Records::new(RecordSettings::default());
    let (run, mut waiter) = first(&records, "a", id("1"));
    drop(run);
    assert_eq!(waiter.wait().await.unwrap_err().metric_label(), "internal");
}

#[test]
fn the_largest_keeper_loses_its_own_oldest_first() {
    let settings = RecordSettings {
        max_bytes: 10_000,
        ..RecordSettings::default()
    };
    let records = Records::new(settings);
    let keep = |caller: &str, call: &str| {
        let (run, _waiter) = first(&records, caller, id(call));
        run.finish(START, result(id(call), Exit::Code(0), 1_000));
    };
    keep("quiet", "only");
    for call in 0..50 {
        keep("loud", &call.to_string());
    }
    assert!(records.get(START, "quiet", id("only")).is_ok());
    assert_eq!(records.get(START, "loud", id("0")).unwrap_err(), ExecutionError::Gone);
    assert!(records.get(START, "loud", id("49")).is_ok());
    // Behind one gateway the names are its clients.
    let (run, _waiter) = first(&records, "loud", id("client"));
    run.shared_by("loud/client");
    run.finish(START, result(id("client"), Exit::Code(0), 1_000));
    for call in 50..100 {
        keep("loud", &call.to_string());
    }
    assert!(records.get(START, "loud", id("client")).is_ok());
}

#[test]
fn tables_of_one_process_keep_within_one_memory_and_an_id_still_runs_once() {
    let memory = knack_memory::MemoryBudget::new(8 << 10);
    let tables: Vec<_> = (0..3)
        .map(|_| Records::sharing(RecordSettings::default(), Some(memory.clone())))
        .collect();
    for call in 0..20 {
        for table in &tables {
            let (run, mut waiter) = first(table, "a", id(&call.to_string()));
            run.finish(START, result(id(&call.to_string()), Exit::Code(0), 2_000));
            assert!(waiter.wait().now_or_never().unwrap().is_ok(), "who waits hears it");
            let again = table.claim(START, "a", id(&call.to_string()), None);
            assert!(!matches!(again, Ok(Claim::First(..))), "never twice");
        }
        assert!(memory.held_bytes() <= memory.total_bytes());
    }
    drop(tables);
    assert_eq!(memory.held_bytes(), 0);
}

#[test]
fn what_an_earlier_owner_started_is_gone_for_everybody_and_a_floor_never_falls() {
    let records = Records::new(RecordSettings::default());
    records.refuse(id("started"));
    for caller in ["a", "b"] {
        assert!(matches!(
            records.claim(START, caller, id("started"), None),
            Err(ExecutionError::Gone)
        ));
        assert!(matches!(
            records.get(START, caller, id("started")),
            Err(ExecutionError::Gone)
        ));
    }
    let (_run, _waiter) = first(&records, "a", id("other"));
    let later = START + Duration::from_secs(1);
    records.raise_floor(later);
    records.raise_floor(Duration::ZERO);
    assert!(matches!(
        records.claim(later, "a", id("third"), None),
        Err(ExecutionError::Gone)
    ));
}

#[test]
fn an_id_of_a_clock_that_is_too_far_ahead_is_refused_with_how_far() {
    let claim = |ahead| {
        let id = ExecutionId::new(START + ahead, "request", 0, "call");
        Records::new(RecordSettings::default()).claim(START, "a", id, None)
    };
    assert!(matches!(claim(RecordSettings::CLOCK_SKEW), Ok(Claim::First(..))));
    match claim(2 * RecordSettings::CLOCK_SKEW) {
        Err(ExecutionError::Invalid(text)) => assert!(text.contains("120 s in the future"), "{text}"),
        other => panic!("{other:?}"),
    }
}

/// A longer admission accepts ids again whose tombstones have been forgotten; those must not run.
#[test]
fn a_longer_admission_takes_no_id_that_was_forgotten_under_the_last_one() {
    let settings = RecordSettings::default();
    let horizon = settings.horizon();
    let records = Records::new(settings.clone());
    let (run, _waiter) = first(&records, "a", id("old"));
    run.finish(START, result(id("old"), Exit::Code(0), 1));
    let later = START + horizon + Duration::from_secs(1);
    // Read, and so forgotten.
    assert!(matches!(records.get(later, "a", id("old")), Err(ExecutionError::Gone)));
    let young = ExecutionId::new(later, "request", 0, "young");
    let Ok(Claim::First(run, _waiter)) = records.claim(later, "a", young, None) else {
        panic!("not the first")
    };
    run.finish(later, result(young, Exit::Code(0), 1));

    records.renew(later, settings.retention, settings.admission * 4);
    assert!(matches!(
        records.claim(later, "a", id("old"), None),
        Err(ExecutionError::Gone)
    ));
    // What the new admission accepts keeps its tombstone for as long.
    let much_later = later + horizon + Duration::from_secs(1);
    assert!(matches!(
        records.claim(much_later, "a", young, None),
        Err(ExecutionError::Gone)
    ));
}

#[tokio::test]
async fn a_run_that_outlives_its_id_is_forgotten_at_its_end() {
    let settings = RecordSettings::default();
    let expires = START + settings.admission + settings.retention;
    let late = |id: ExecutionId| expires + Duration::from_secs(1) + id.time().saturating_sub(START);
    let others = |at: Duration| ExecutionId::new(at, "request", 0, "other");
    for is_dropped in [false, true] {
        let records = Records::new(settings.clone());
        let (run, mut waiter) = first(&records, "a", id("1"));
        // Another request removes what has expired while it runs.
        let now = late(id("1"));
        drop(records.get(now, "a", others(now)));
        if is_dropped {
            drop(run);
            assert!(waiter.wait().await.is_err());
        } else {
            run.finish(now, result(id("1"), Exit::Code(0), 3));
            assert!(waiter.wait().await.is_ok());
        }
        drop(records.get(now, "a", others(now)));
        let table = records.0.lock();
        assert!(
            table.entries.is_empty() && table.expiry.is_empty(),
            "dropped: {is_dropped}"
        );
        assert_eq!(table.kept_bytes, 0);
        drop(table);
        assert!(matches!(
            records.claim(now, "a", id("1"), None),
            Err(ExecutionError::Gone)
        ));
    }
}
