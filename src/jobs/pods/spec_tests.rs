use std::time::Duration;

use knack_execution::Language;

use super::*;
use crate::jobs::pods::kinds::PodKind;
use crate::jobs::resolved_runtime::{ImagePullPolicy, JournalMode, UidRange};

pub(crate) fn resolved() -> ResolvedRuntime {
    ResolvedRuntime {
        namespace: "sandboxes".to_owned(),
        name: "default".to_owned(),
        uid: "9d1f3c1e-0000-4000-8000-000000000001".to_owned(),
        image: "registry.example/knack/sandbox-python@sha256:aa".to_owned(),
        images: Vec::new(),
        image_pull_policy: ImagePullPolicy::IfNotPresent,
        runner: RunnerSource::InImage,
        languages: vec![Language::Python],
        resources: PodResources::default(),
        timeout: Duration::from_secs(10),
        max_timeout: Duration::from_mins(1),
        admission: Duration::from_mins(9),
        ttl: Duration::from_mins(5),
        uids: UidRange::default(),
        runtime_class: None,
        node_selector: BTreeMap::new(),
        tolerations: Vec::new(),
        image_pull_secrets: Vec::new(),
        priority_class: None,
        warm_replicas: 2,
        warm_environments: 4,
        max_idle: Duration::from_mins(30),
        max_runs: 10,
        max_queued: 80,
        queue_timeout: Duration::from_secs(30),
        env: Vec::new(),
        config: Vec::new(),
        logs: JournalMode::Sealed,
        requires_landlock: false,
        shared_memory: false,
        own_users: false,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        requires_isolation: false,
        has_environments: false,
        stopped: None,
    }
}

fn identity() -> JobIdentity {
    let resolved = resolved();
    JobIdentity {
        name: "knack-default-x7f3a".to_owned(),
        uid: 200_123,
        requirements: PodRequirements::of_pool(&resolved, &PodKind::plain(None)),
        owner: "knack-hub-0".to_owned(),
        avoid: Vec::new(),
        purpose: JobPurpose::Run,
    }
}

/// The whole Job as it goes to the API server; a changed golden is reviewed like code.
fn check(name: &str, resolved: &ResolvedRuntime, identity: &JobIdentity) {
    let json = serde_json::to_value(job_spec(resolved, identity)).unwrap();
    let yaml = serde_saphyr::to_string(&json).unwrap();
    insta::with_settings!({snapshot_path => "golden", prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!(name, yaml);
    });
}

#[test]
fn a_run_of_the_defaults() {
    check("job_defaults", &resolved(), &identity());
}

#[test]
fn a_run_with_everything_set() {
    let resolved = ResolvedRuntime {
        runner: RunnerSource::ImageVolume {
            image: "registry.example/knack/runner@sha256:bb".to_owned(),
        },
        runtime_class: Some("gvisor".to_owned()),
        priority_class: Some("knack-sandboxes".to_owned()),
        node_selector: BTreeMap::from([("pool".to_owned(), "sandboxes".to_owned())]),
        tolerations: vec![Toleration {
            key: Some("sandboxes".to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some("NoSchedule".to_owned()),
            ..Toleration::default()
        }],
        image_pull_secrets: vec!["registry".to_owned()],
        own_users: true,
        labels: BTreeMap::from([
            ("example.org/team".to_owned(), "weather".to_owned()),
            // The API refuses it in a SkillRuntime; here it replaces nothing either.
            (knack_vocabulary::LABEL_ROLE.to_owned(), "gateway".to_owned()),
        ]),
        annotations: BTreeMap::from([("example.org/inject".to_owned(), "false".to_owned())]),
        ..resolved()
    };
    let identity = JobIdentity {
        requirements: PodRequirements {
            env: vec![EnvGrant {
                name: "API_KEY".to_owned(),
                secret: "weather".to_owned(),
                key: "key".to_owned(),
                skills: vec!["team/weather".to_owned()],
            }],
            resources: PodResources {
                extended: BTreeMap::from([("example.org/gpu".to_owned(), "1".to_owned())]),
                ..PodResources::default()
            },
            ..identity().requirements
        },
        ..identity()
    };
    check("job_everything", &resolved, &identity);
}

#[test]
fn a_run_keeps_off_avoided_nodes_by_their_names() {
    let identity = JobIdentity {
        avoid: vec!["node-1".to_owned(), "node-2".to_owned()],
        ..identity()
    };
    let job = serde_json::to_value(job_spec(&resolved(), &identity)).unwrap();
    let terms =
        "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let off = |name| serde_json::json!({"key": "metadata.name", "operator": "NotIn", "values": [name]});
    assert_eq!(
        job.pointer(terms),
        Some(&serde_json::json!([{"matchFields": [off("node-1"), off("node-2")]}]))
    );
}

#[test]
fn a_probe_has_the_labels_and_locks_of_a_run() {
    let probe = JobIdentity {
        purpose: JobPurpose::Probe {
            target: "10.0.0.7:9440".to_owned(),
            question: "6d1f".to_owned(),
            node: Some("node-1".to_owned()),
        },
        ..identity()
    };
    check("job_probe", &resolved(), &probe);
}

#[test]
fn pods_of_one_pool_are_interchangeable() {
    let base = resolved();
    let key =
        |resolved: &ResolvedRuntime, env: &[EnvGrant]| pool_key(resolved, &resolved.image, &resolved.resources, env);
    let same = ResolvedRuntime {
        warm_replicas: 7,
        warm_environments: 9,
        max_runs: 1,
        timeout: Duration::from_secs(3),
        requires_isolation: true,
        ..resolved()
    };
    assert_eq!(key(&base, &[]), key(&same, &[]));
    let with_uids = |uids| ResolvedRuntime { uids, ..resolved() };
    let others = [
        ResolvedRuntime {
            image: "other".to_owned(),
            ..resolved()
        },
        ResolvedRuntime {
            runtime_class: Some("kata".to_owned()),
            ..resolved()
        },
        ResolvedRuntime {
            priority_class: Some("other".to_owned()),
            ..resolved()
        },
        ResolvedRuntime {
            max_timeout: Duration::from_mins(2),
            ..resolved()
        },
        // The deadline stays.
        ResolvedRuntime {
            max_timeout: base.max_timeout.saturating_sub(Duration::from_secs(30)),
            max_idle: base.max_idle + Duration::from_secs(30),
            ..resolved()
        },
        // An ended Job stays as long as the runtime says when it was used.
        ResolvedRuntime {
            ttl: base.ttl * 2,
            ..resolved()
        },
        ResolvedRuntime {
            own_users: true,
            ..resolved()
        },
        ResolvedRuntime {
            requires_landlock: true,
            ..resolved()
        },
        ResolvedRuntime {
            logs: JournalMode::Plain,
            ..resolved()
        },
        with_uids(UidRange {
            first: base.uids.first + 1,
            ..base.uids
        }),
        with_uids(UidRange {
            last: base.uids.last - 1,
            ..base.uids
        }),
        ResolvedRuntime {
            image_pull_policy: ImagePullPolicy::Always,
            ..resolved()
        },
        ResolvedRuntime {
            labels: BTreeMap::from([("example.org/team".to_owned(), "weather".to_owned())]),
            ..resolved()
        },
        ResolvedRuntime {
            annotations: BTreeMap::from([("example.org/inject".to_owned(), "false".to_owned())]),
            ..resolved()
        },
        ResolvedRuntime {
            resources: PodResources {
                work_size: "1Gi".to_owned(),
                ..PodResources::default()
            },
            ..resolved()
        },
    ];
    for other in others {
        assert_ne!(key(&base, &[]), key(&other, &[]), "{other:?}");
    }
    let grant = EnvGrant {
        name: "A".to_owned(),
        secret: "s".to_owned(),
        key: "k".to_owned(),
        skills: Vec::new(),
    };
    assert_ne!(key(&base, &[]), key(&base, &[grant]));
}
