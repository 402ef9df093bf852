//! Settings of executors from SkillRuntimes as written.

use std::collections::BTreeMap;

use knack_execution::fixture::mk_tool_run;

use super::*;
use crate::fixture::mk_runtime;

#[test]
fn an_empty_runtime_has_the_documented_defaults() {
    let resolved = ResolvedRuntime::of(&mk_runtime(serde_json::json!({})), &Defaults::new("img"));
    assert_eq!(
        (
            resolved.namespace.as_str(),
            resolved.name.as_str(),
            resolved.uid.as_str()
        ),
        ("ns", "r", "u")
    );
    assert_eq!(resolved.image, "img");
    assert_eq!(resolved.active_deadline(), Duration::from_mins(33));
    assert_eq!(
        (resolved.warm_replicas, resolved.max_runs, resolved.max_queued),
        (2, 32, 256)
    );
    assert_eq!(resolved.resources, PodResources::default());
    assert_eq!(resolved.logs, JournalMode::Sealed);
    assert_eq!(resolved.admission, RecordSettings::ADMISSION);
    assert!(resolved.stopped.is_none() && !resolved.requires_isolation);
}

#[test]
fn a_low_ceiling_bounds_the_default_time_limit() {
    let resolved = ResolvedRuntime::of(
        &mk_runtime(serde_json::json!({"sandbox": {"maxTimeoutSeconds": 5}})),
        &Defaults::new("img"),
    );
    assert_eq!((resolved.timeout.as_secs(), resolved.max_timeout.as_secs()), (5, 5));
}

#[test]
fn every_written_field_arrives() {
    let spec = serde_json::json!({
        "suspend": true,
        "sandbox": {
            "image": "other", "images": [{"name": "office", "image": "office@sha256:1"}], "timeoutSeconds": 5, "maxTimeoutSeconds": 20, "ttlSecondsAfterFinished": 60,
            "runAsUserRange": {"min": 5000, "max": 5001}, "runtimeClassName": "gvisor",
            "nodeSelector": {"a": "b"}, "imagePullSecrets": [{"name": "s"}],
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute"}],
            "resources": {"limits": {"memory": "64Mi", "cpu": "500m"}, "requests": {"memory": "128Mi"}},
            "enforcement": "Required", "logs": "Plain", "landlock": "Required", "sharedMemory": true, "languages": ["node", "python"],
            "hostUsers": false, "podMetadata": {"labels": {"l": "1"}, "annotations": {"a": "2"}}
        },
        "warmPool": {"replicas": 0, "maxIdleSeconds": 30, "environments": 7},
        "concurrency": {"maxRuns": 2, "maxQueued": 1, "queueTimeoutSeconds": 3},
        "gateway": {"injection": {"deadlineSeconds": 3600}},
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}, "skills": ["pdf", "other/x"]}]
    });
    let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let mut limited = Defaults::new("img");
    limited.priority_class = Some("sandboxes".to_owned());
    let resolved = ResolvedRuntime::of(&mk_runtime(spec), &limited);
    assert_eq!(resolved.active_deadline(), Duration::from_secs(30 + 20 + 60));
    // Without a rest pattern: a field that is new in the view has to be added here.
    let expected = ResolvedRuntime {
        namespace: "ns".to_owned(),
        name: "r".to_owned(),
        uid: "u".to_owned(),
        image: "other".to_owned(),
        images: vec!["office@sha256:1".to_owned()],
        image_pull_policy: limited.image_pull_policy,
        runner: limited.runner.clone(),
        languages: vec![Language::Node, Language::Python],
        resources: PodResources {
            cpu: Resource::new("10m", "500m"),
            memory: Resource::new("64Mi", "64Mi"),
            ephemeral_storage: PodResources::of(None).ephemeral_storage,
            work_size: (16 << 20).to_string(),
            extended: BTreeMap::new(),
        },
        timeout: Duration::from_secs(5),
        max_timeout: Duration::from_secs(20),
        ttl: Duration::from_mins(1),
        admission: Duration::from_hours(1),
        uids: UidRange {
            first: 5000,
            last: 5001,
        },
        runtime_class: Some("gvisor".to_owned()),
        node_selector: one("a", "b"),
        tolerations: vec![Toleration {
            key: Some("k".to_owned()),
            operator: Some("Exists".to_owned()),
            value: None,
            effect: Some("NoExecute".to_owned()),
            toleration_seconds: None,
        }],
        image_pull_secrets: vec!["s".to_owned()],
        warm_replicas: 0,
        warm_environments: 7,
        max_idle: Duration::from_secs(30),
        priority_class: Some("sandboxes".to_owned()),
        max_runs: 2,
        max_queued: 1,
        queue_timeout: Duration::from_secs(3),
        config: Vec::new(),
        env: vec![EnvGrant {
            name: "A".to_owned(),
            secret: "s".to_owned(),
            key: "k".to_owned(),
            skills: vec!["ns/pdf".to_owned(), "other/x".to_owned()],
        }],
        logs: JournalMode::Plain,
        requires_landlock: true,
        shared_memory: true,
        own_users: true,
        labels: one("l", "1"),
        annotations: one("a", "2"),
        requires_isolation: true,
        has_environments: false,
        stopped: Some(Missing::new(
            "SkillRuntime ns/r is suspended",
            "set spec.suspend to false",
        )),
    };
    assert_eq!(resolved, expected);
}

/// Never derived from the name of an image.
#[test]
fn interpreters_are_those_that_are_declared() {
    let defaults = Defaults {
        languages: vec![Language::Node],
        ..Defaults::new("img")
    };
    for (sandbox, expected) in [
        (serde_json::json!({}), Language::Node),
        (serde_json::json!({"image": "r.io/my-nodes"}), Language::Python),
        (
            serde_json::json!({"image": "r.io/x", "languages": ["node"]}),
            Language::Node,
        ),
        (serde_json::json!({"languages": ["python"]}), Language::Python),
    ] {
        let resolved = ResolvedRuntime::of(&mk_runtime(serde_json::json!({"sandbox": sandbox})), &defaults);
        assert_eq!(resolved.languages, [expected], "{sandbox}");
    }
}

/// Grants are for declared tools that ask for them, of the skills that are named.
#[test]
fn a_run_gets_what_its_skill_is_granted_and_its_tool_asks_for() {
    let grant = |name: &str, skills: &[&str]| serde_json::json!({"name": name, "skills": skills, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
    let spec = serde_json::json!({"env": [grant("A", &["pdf", "other/x"]), grant("B", &["pdf"])]});
    let resolved = ResolvedRuntime::of(&mk_runtime(spec), &Defaults::new("img"));
    for (namespace, skill, asked, expected) in [
        ("ns", "pdf", &["A", "B", "C"][..], &["A", "B"][..]),
        ("ns", "pdf", &["B"], &["B"]),
        ("ns", "pdf", &[], &[]),
        ("other", "x", &["A", "B"], &["A"]),
        ("other", "pdf", &["A"], &[]),
        ("ns", "x", &["A"], &[]),
    ] {
        let granted = resolved.grants_of(Some(&mk_tool_run(namespace, skill, asked)));
        let names: Vec<&str> = granted.iter().map(|grant| grant.name.as_str()).collect();
        assert_eq!(names, expected, "{namespace}/{skill} {asked:?}");
    }
    assert_eq!(resolved.grants_of(None), []);
}

#[test]
fn a_pod_is_raised_where_a_skill_asks_for_more_and_only_there() {
    let spec = serde_json::json!({"sandbox": {"resources": {"limits": {"memory": "256Mi", "cpu": "500m"}}}});
    let own = ResolvedRuntime::of(&mk_runtime(spec), &Defaults::new("img")).resources;
    let raised = |asked: serde_json::Value| own.raised_to(&serde_json::from_value(asked).unwrap());
    for enough in [
        serde_json::json!({}),
        serde_json::json!({"limits": {"memory": "256Mi", "cpu": "0.5"}}),
        serde_json::json!({"requests": {"memory": "200Mi"}}),
    ] {
        assert_eq!(raised(enough.clone()), None, "{enough}");
    }
    let more = raised(serde_json::json!({"limits": {"memory": "1Gi", "cpu": "100m", "example.org/gpu": 1}})).unwrap();
    assert_eq!(more.memory, Resource::new("32Mi", "1Gi"));
    assert_eq!(more.cpu, own.cpu, "not lowered");
    assert_eq!(more.work_size, (256_u64 << 20).to_string(), "a quarter of the memory");
    assert_eq!(
        more.extended,
        BTreeMap::from([("example.org/gpu".to_owned(), "1".to_owned())])
    );
    let requested = raised(serde_json::json!({"requests": {"cpu": "2"}})).unwrap();
    assert_eq!(requested.cpu, Resource::new("2", "2"));
}
