//! Tests of the launcher's decisions without a cluster.

use super::*;

#[test]
fn names_of_jobs_fit_a_label_with_their_pods_suffix() {
    for runtime in ["a", "default", &"x".repeat(63), &format!("{}-", "y".repeat(39)), "a.b"] {
        let name = job_name(runtime);
        assert!(name.len() + 6 <= 63, "{name}");
        assert!(
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'),
            "{name}"
        );
        assert!(!name.contains("--"), "{name}");
    }
    assert_ne!(job_name("a"), job_name("a"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_node_is_waited_for_by_the_pool_and_not_by_a_caller() {
    let unschedulable = || PodFailure {
        kind: ClusterFailureKind::Unschedulable,
        reason: "Unschedulable".to_owned(),
        message: "0/3 nodes are available".to_owned(),
        grace: Duration::from_secs(10),
    };
    for (requester, waits) in [(Requester::Caller, false), (Requester::Pool, true)] {
        let mut failures = StartFailures::of(requester);
        assert!(failures.lasting(Some(unschedulable())).is_none());
        tokio::time::sleep(Duration::from_secs(11)).await;
        let found = failures.lasting(Some(unschedulable())).unwrap();
        assert_eq!(failures.waits_for(&found), waits);
        // After all that time the reason is reported, not the time.
        assert_eq!(failures.timeout(Duration::from_mins(2)).metric_label(), "unschedulable");
    }
    let pull = PodFailure {
        kind: ClusterFailureKind::ImagePullFailed,
        ..unschedulable()
    };
    assert!(!StartFailures::of(Requester::Pool).waits_for(&pull));
}

#[test]
fn a_pod_without_a_promised_lock_is_not_used() {
    let report = |seccomp, landlock: &str| {
        Some(LockReport {
            seccomp,
            landlock: landlock.to_owned(),
            landlock_abi: 0,
        })
    };
    for (locks, required, refused) in [
        (None, false, Some("does not report")),
        (report(false, "FullyEnforced"), false, Some("no seccomp")),
        (report(true, "FullyEnforced"), true, None),
        (report(true, "PartiallyEnforced"), true, None),
        (report(true, "NotEnforced"), false, None),
        (report(true, "NotEnforced"), true, Some("Landlock")),
    ] {
        let found = lacking(locks.as_ref(), required);
        assert_eq!(found.is_some(), refused.is_some(), "{locks:?} {required}");
        assert!(
            found.unwrap_or_default().contains(refused.unwrap_or_default()),
            "{found:?}"
        );
    }
}

#[test]
fn the_runner_of_another_protocol_is_refused_by_name() {
    let ready = |oldest, newest| Ready {
        protocol_min: oldest,
        protocol: newest,
        version: "0.0.9".to_owned(),
        locks: None,
    };
    for known in [
        ready(None, PROTOCOL),
        ready(Some(1), PROTOCOL_MIN),
        ready(Some(PROTOCOL), PROTOCOL + 9),
    ] {
        assert!(check_version(&known).is_ok(), "{known:?}");
    }
    for strange in [
        ready(None, PROTOCOL_MIN - 1),
        ready(None, PROTOCOL + 1),
        ready(Some(PROTOCOL + 1), PROTOCOL + 2),
        ready(Some(1), PROTOCOL_MIN - 1),
    ] {
        let error = check_version(&strange).unwrap_err();
        assert_eq!(error.metric_label(), "runner_too_old");
        assert!(error.to_string().contains("0.0.9"), "{error}");
    }
}
