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
