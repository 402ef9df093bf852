use super::*;

fn cause(reason: &str) -> Cause {
    Cause {
        reason: reason.to_owned(),
        message: "m".to_owned(),
    }
}

fn pod() -> PodFacts {
    PodFacts {
        node: Some("n1".to_owned()),
        phase: Phase::Running,
        container: ContainerFacts::Running,
        ..PodFacts::default()
    }
}

fn waiting(reason: &str) -> PodFacts {
    PodFacts {
        phase: Phase::Pending,
        container: ContainerFacts::Waiting(cause(reason)),
        ..pod()
    }
}

fn ended(reason: &str, exit_code: i32) -> PodFacts {
    PodFacts {
        phase: if exit_code == 0 {
            Phase::Succeeded
        } else {
            Phase::Failed
        },
        container: ContainerFacts::Terminated {
            cause: cause(reason),
            exit_code,
        },
        ..pod()
    }
}

fn failed(reason: &str) -> PodFacts {
    PodFacts {
        phase: Phase::Failed,
        reason: Some(reason.to_owned()),
        container: ContainerFacts::Terminated {
            cause: cause("Error"),
            exit_code: 137,
        },
        ..pod()
    }
}

fn disrupted(reason: &str) -> PodFacts {
    PodFacts {
        disruption: Some(cause(reason)),
        ..failed("")
    }
}

#[track_caller]
fn check(facts: &PodFacts, expected: Option<(ClusterFailureKind, &str)>) {
    let found = pod_failure(facts);
    let found = found.as_ref().map(|found| (found.kind, found.reason.as_str()));
    assert_eq!(found, expected, "{facts:?}");
}

#[test]
fn every_state_of_a_pod_has_its_own_failure() {
    use ClusterFailureKind as Kind;
    check(&pod(), None);
    check(&waiting("ContainerCreating"), None);
    check(&ended("Completed", 0), None);
    check(&ended("OOMKilled", 137), Some((Kind::OutOfMemory, "OOMKilled")));
    check(&ended("Error", 1), Some((Kind::ContainerFailed, "Error")));
    check(&failed("Evicted"), Some((Kind::Evicted, "Evicted")));
    check(
        &failed("DeadlineExceeded"),
        Some((Kind::DeadlineExceeded, "DeadlineExceeded")),
    );
    check(&failed("OutOfcpu"), Some((Kind::Unschedulable, "OutOfcpu")));
    check(&failed("NodeShutdown"), Some((Kind::NodeLost, "NodeShutdown")));
    check(
        &disrupted("TerminationByKubelet"),
        Some((Kind::Evicted, "TerminationByKubelet")),
    );
    check(&disrupted("DeletionByPodGC"), Some((Kind::NodeLost, "DeletionByPodGC")));
    check(
        &disrupted("EvictionByEvictionAPI"),
        Some((Kind::Evicted, "EvictionByEvictionAPI")),
    );
    check(&waiting("ErrImagePull"), Some((Kind::ImagePullFailed, "ErrImagePull")));
    check(
        &waiting("ImagePullBackOff"),
        Some((Kind::ImagePullFailed, "ImagePullBackOff")),
    );
    check(
        &waiting("ErrImageNeverPull"),
        Some((Kind::ImagePullFailed, "ErrImageNeverPull")),
    );
    check(
        &waiting("InvalidImageName"),
        Some((Kind::ImagePullFailed, "InvalidImageName")),
    );
    check(
        &waiting("CreateContainerConfigError"),
        Some((Kind::ContainerFailed, "CreateContainerConfigError")),
    );
    let unknown = PodFacts {
        phase: Phase::Unknown,
        ..pod()
    };
    check(&unknown, Some((Kind::NodeLost, "NodeStatusUnknown")));
    let deleted = PodFacts {
        is_deleting: true,
        ..pod()
    };
    check(&deleted, Some((Kind::PodDeleted, "Deleted")));
    let killed = PodFacts {
        is_deleting: true,
        ..ended("Error", 137)
    };
    check(&killed, Some((Kind::PodDeleted, "Deleted")));
    let unscheduled = PodFacts {
        node: None,
        phase: Phase::Pending,
        container: ContainerFacts::Absent,
        unscheduled: Some(cause("Unschedulable")),
        ..pod()
    };
    check(&unscheduled, Some((Kind::Unschedulable, "Unschedulable")));
}

#[test]
fn what_the_kubelet_tries_again_is_given_time() {
    for (facts, waits) in [
        (waiting("ErrImagePull"), true),
        (waiting("ImagePullBackOff"), false),
        (waiting("CreateContainerError"), true),
        (ended("OOMKilled", 137), false),
    ] {
        let grace = pod_failure(&facts).unwrap().grace;
        assert_eq!(!grace.is_zero(), waits, "{facts:?}");
    }
}

#[test]
fn a_pod_that_is_gone_is_explained_by_its_job_or_its_last_state() {
    use ClusterFailureKind as Kind;
    let deadline = cause("DeadlineExceeded");
    for (facts, job, expected) in [
        (Some(pod()), Some(&deadline), Kind::DeadlineExceeded),
        (Some(pod()), None, Kind::PodDeleted),
        (None, None, Kind::PodDeleted),
        (Some(disrupted("DeletionByPodGC")), None, Kind::NodeLost),
        (Some(ended("OOMKilled", 137)), None, Kind::OutOfMemory),
    ] {
        assert_eq!(vanished(facts.as_ref(), job).kind, expected, "{facts:?}");
    }
}

#[test]
fn answers_of_the_api_server_are_distinguished() {
    use ClusterFailureKind as Kind;
    for (code, message, expected) in [
        (
            403,
            "jobs.batch \"x\" is forbidden: exceeded quota: q, requested: count/jobs.batch=1",
            Kind::QuotaExceeded,
        ),
        (
            403,
            "jobs.batch is forbidden: User cannot create resource",
            Kind::Refused,
        ),
        (422, "Job is invalid", Kind::Refused),
        (503, "etcd", Kind::ApiUnavailable),
        (429, "slow down", Kind::ApiUnavailable),
    ] {
        assert_eq!(refusal(code, "R", message).kind, expected, "{message}");
    }
    assert_eq!(
        event("FailedCreate", "pods \"x\" is forbidden: exceeded quota")
            .unwrap()
            .kind,
        Kind::QuotaExceeded
    );
    assert_eq!(
        event("FailedCreate", "violates PodSecurity").unwrap().kind,
        Kind::Refused
    );
    assert_eq!(event("SuccessfulCreate", ""), None);
}

#[test]
fn a_message_is_one_bounded_line() {
    let long = format!("a\nb  {}", "ä".repeat(1000));
    let error = failure(ClusterFailureKind::Evicted, "Evicted", &long, true).to_string();
    assert!(error.starts_with("the sandbox pod was evicted: a b ä"), "{error}");
    assert!(error.chars().count() < 400, "{error}");
    assert!(error.ends_with("... (reason Evicted)"), "{error}");
}
