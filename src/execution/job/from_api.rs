//! From a SkillRuntime as written to the settings of its executor.

use std::time::Duration;

use super::view::{
    EnvGrant, ImagePullPolicy, JournalMode, PodResources, Resource, RunnerSource, RuntimeView, Toleration, UidRange,
};
use crate::api::SkillRuntime;
use crate::api::quantity::Quantity;
use crate::api::runtime_sandbox::{
    self, Enforcement, LandlockDemand, LogsMode, RuntimeSandbox, SandboxLanguage, TaintEffect, TolerationOperator,
};
use crate::api::shared::Resources;
use crate::execution::Language;
use crate::execution::queue::QueueSettings;
use crate::execution::records::RecordSettings;

/// What the installation says where a SkillRuntime says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// Sandbox image.
    pub image: String,
    /// When images are pulled.
    pub image_pull_policy: ImagePullPolicy,
    /// How the runner comes into the container.
    pub runner: RunnerSource,
    /// Interpreters of that image, most used first.
    pub languages: Vec<Language>,
    /// PriorityClass of the pods; the cluster's default when absent.
    pub priority_class: Option<String>,
}

impl Defaults {
    /// An image that has python and the runner.
    #[must_use]
    pub fn new(image: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            image_pull_policy: ImagePullPolicy::default(),
            runner: RunnerSource::default(),
            languages: vec![Language::Python],
            priority_class: None,
        }
    }
}

/// `sandbox.ttlSecondsAfterFinished` where absent.
const TTL_SECONDS: u64 = 300;
/// `warmPool.replicas` where absent.
const WARM_REPLICAS: usize = 2;
/// `warmPool.maxIdleSeconds` where absent.
const MAX_IDLE_SECONDS: u64 = 1800;
/// `concurrency.maxRuns` where absent: pods of 10 millicores and 32 MiB that a node takes beside other work.
const MAX_RUNS: usize = 32;
/// The part of the memory limit that files may take; the rest is the program's.
const WORK_FRACTION: u64 = 4;

impl RuntimeView {
    /// Resolves a SkillRuntime.
    #[must_use]
    pub fn of(runtime: &SkillRuntime, defaults: &Defaults) -> Self {
        let spec = &runtime.spec;
        let sandbox = &spec.sandbox;
        let namespace = runtime.metadata.namespace.clone().unwrap_or_default();
        let seconds = |value: Option<u64>, default| Duration::from_secs(value.unwrap_or(default));
        let timeout = seconds(sandbox.timeout_seconds, crate::selection::DEFAULT_TIMEOUT_SECONDS);
        let max_runs = spec.concurrency.max_runs.unwrap_or(MAX_RUNS);
        Self {
            name: runtime.metadata.name.clone().unwrap_or_default(),
            uid: runtime.metadata.uid.clone().unwrap_or_default(),
            image: sandbox.image.clone().unwrap_or_else(|| defaults.image.clone()),
            image_pull_policy: defaults.image_pull_policy,
            runner: defaults.runner.clone(),
            languages: languages(sandbox, &defaults.languages),
            resources: PodResources::of(sandbox.resources.as_ref()),
            timeout,
            max_timeout: seconds(
                sandbox.max_timeout_seconds,
                crate::selection::DEFAULT_MAX_TIMEOUT_SECONDS,
            )
            .max(timeout),
            ttl: seconds(sandbox.ttl_seconds_after_finished, TTL_SECONDS),
            admission: seconds(spec.gateway.injection.deadline_seconds, 0).max(RecordSettings::ADMISSION),
            uids: sandbox
                .run_as_user_range
                .map_or_else(UidRange::default, |range| UidRange {
                    first: u32::try_from(range.min).unwrap_or(u32::MAX),
                    last: u32::try_from(range.max).unwrap_or(u32::MAX),
                }),
            runtime_class: sandbox.runtime_class_name.clone(),
            node_selector: sandbox.node_selector.clone(),
            tolerations: sandbox.tolerations.iter().map(toleration).collect(),
            image_pull_secrets: sandbox
                .image_pull_secrets
                .iter()
                .map(|secret| secret.name.clone())
                .collect(),
            priority_class: defaults.priority_class.clone(),
            warm_replicas: spec.warm_pool.replicas.unwrap_or(WARM_REPLICAS),
            max_idle: seconds(spec.warm_pool.max_idle_seconds, MAX_IDLE_SECONDS),
            max_runs,
            max_queued: spec
                .concurrency
                .max_queued
                .unwrap_or(max_runs * QueueSettings::QUEUED_PER_PLACE),
            queue_timeout: spec
                .concurrency
                .queue_timeout_seconds
                .map_or(QueueSettings::DEFAULT_TIMEOUT, Duration::from_secs),
            env: spec.env.iter().map(|grant| env_grant(&namespace, grant)).collect(),
            logs: match sandbox.logs {
                Some(LogsMode::Plain) => JournalMode::Plain,
                Some(LogsMode::Sealed) | None => JournalMode::Sealed,
            },
            requires_isolation: sandbox.enforcement == Some(Enforcement::Required),
            requires_landlock: sandbox.landlock == Some(LandlockDemand::Required),
            own_users: sandbox.host_users == Some(false),
            labels: sandbox.pod_metadata.labels.clone(),
            annotations: sandbox.pod_metadata.annotations.clone(),
            suspended: spec.suspend,
            namespace,
        }
    }
}

/// Interpreters of the image in use: what the runtime says of it, else those of the installation's image if that is it.
#[must_use]
pub fn languages(sandbox: &RuntimeSandbox, of_default_image: &[Language]) -> Vec<Language> {
    let declared = sandbox.languages.iter().map(|language| match language {
        SandboxLanguage::Python => Language::Python,
        SandboxLanguage::Node => Language::Node,
    });
    match (sandbox.languages.is_empty(), &sandbox.image) {
        (false, _) => declared.collect(),
        (true, None) => of_default_image.to_vec(),
        (true, Some(_)) => vec![Language::Python],
    }
}

impl PodResources {
    /// Resources as written, the default where they say nothing. A request above its limit is lowered to it.
    #[must_use]
    pub fn of(resources: Option<&Resources>) -> Self {
        resources.map_or_else(Self::default, |resources| Self::default().with(resources))
    }

    /// These with what somebody wrote in their place.
    fn with(&self, written: &Resources) -> Self {
        let milli = |text: &str| Quantity::parse(text).map_or(0, |quantity| quantity.milli());
        let one = |name: &str, own: &Resource| {
            let limit = written.limits.get(name).map_or(own.limit.as_str(), Quantity::as_str);
            let request = written
                .requests
                .get(name)
                .map_or(own.request.as_str(), Quantity::as_str);
            let request = if milli(request) > milli(limit) { limit } else { request };
            Resource::new(request, limit)
        };
        let mut extended = self.extended.clone();
        for (name, quantity) in written.requests.iter().chain(&written.limits) {
            if !Resources::NATIVE.contains(&name.as_str()) {
                extended.insert(name.clone(), quantity.to_string());
            }
        }
        Self {
            cpu: one("cpu", &self.cpu),
            memory: one("memory", &self.memory),
            ephemeral_storage: one("ephemeral-storage", &self.ephemeral_storage),
            work_size: written.limits.get("memory").map_or(self.work_size.clone(), |limit| {
                (limit.units() / WORK_FRACTION).to_string()
            }),
            extended,
        }
    }

    /// What a pod must get for a skill that asks for more than these. `None`: whoever has these has enough, so that a
    /// pod of the pool serves.
    #[must_use]
    pub fn raised_to(&self, asked: &Resources) -> Option<Self> {
        let own = |name: &str| match name {
            "cpu" => self.cpu.limit.as_str(),
            "memory" => self.memory.limit.as_str(),
            "ephemeral-storage" => self.ephemeral_storage.limit.as_str(),
            other => self.extended.get(other).map_or("0", String::as_str),
        };
        let is_more =
            |name: &str, wanted: &Quantity| Quantity::parse(own(name)).is_ok_and(|own| wanted.milli() > own.milli());
        let all = || asked.limits.iter().chain(&asked.requests);
        if !all().any(|(name, wanted)| is_more(name, wanted)) {
            return None;
        }
        // What is lower than the runtime's own stays the runtime's own, or a skill that wants more memory could take
        // the CPU from itself.
        let mut more = Resources::default();
        for (list, from) in [(&mut more.limits, &asked.limits), (&mut more.requests, &asked.requests)] {
            list.extend(
                from.iter()
                    .filter(|(name, wanted)| is_more(name, wanted))
                    .map(|(name, wanted)| (name.clone(), wanted.clone())),
            );
        }
        // A request above the runtime's limit without a limit of its own is the limit.
        for (name, wanted) in &more.requests {
            more.limits.entry(name.clone()).or_insert_with(|| wanted.clone());
        }
        Some(self.with(&more))
    }
}

fn env_grant(namespace: &str, grant: &runtime_sandbox::EnvGrant) -> EnvGrant {
    EnvGrant {
        name: grant.name.clone(),
        secret: grant.value_from.secret_key_ref.name.clone(),
        key: grant.value_from.secret_key_ref.key.clone(),
        skills: grant
            .skills
            .iter()
            .map(|skill| {
                if skill.contains('/') {
                    skill.clone()
                } else {
                    format!("{namespace}/{skill}")
                }
            })
            .collect(),
    }
}

fn toleration(toleration: &runtime_sandbox::Toleration) -> Toleration {
    Toleration {
        key: toleration.key.clone(),
        operator: toleration.operator.map(|operator| {
            match operator {
                TolerationOperator::Equal => "Equal",
                TolerationOperator::Exists => "Exists",
            }
            .to_owned()
        }),
        value: toleration.value.clone(),
        effect: toleration.effect.map(|effect| {
            match effect {
                TaintEffect::NoSchedule => "NoSchedule",
                TaintEffect::PreferNoSchedule => "PreferNoSchedule",
                TaintEffect::NoExecute => "NoExecute",
            }
            .to_owned()
        }),
        toleration_seconds: None,
    }
}

/// Nothing is left out silently: a map of what a default SkillRuntime becomes.
#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::execution::fixture::mk_tool_run;

    #[expect(clippy::needless_pass_by_value, reason = "`json!` values are written at the call")]
    fn runtime(spec: serde_json::Value) -> SkillRuntime {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
            "metadata": {"name": "r", "namespace": "ns", "uid": "u"}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn an_empty_runtime_has_the_documented_defaults() {
        let view = RuntimeView::of(&runtime(serde_json::json!({})), &Defaults::new("img"));
        assert_eq!(
            (view.namespace.as_str(), view.name.as_str(), view.uid.as_str()),
            ("ns", "r", "u")
        );
        assert_eq!(view.image, "img");
        assert_eq!(view.active_deadline(), Duration::from_mins(33));
        assert_eq!((view.warm_replicas, view.max_runs, view.max_queued), (2, 32, 256));
        assert_eq!(view.resources, PodResources::default());
        assert_eq!(view.logs, JournalMode::Sealed);
        assert_eq!(view.admission, RecordSettings::ADMISSION);
        assert!(!view.suspended && !view.requires_isolation);
    }

    #[test]
    fn every_written_field_arrives() {
        let spec = serde_json::json!({
            "suspend": true,
            "sandbox": {
                "image": "other", "timeoutSeconds": 5, "maxTimeoutSeconds": 20, "ttlSecondsAfterFinished": 60,
                "runAsUserRange": {"min": 5000, "max": 5001}, "runtimeClassName": "gvisor",
                "nodeSelector": {"a": "b"}, "imagePullSecrets": [{"name": "s"}],
                "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute"}],
                "resources": {"limits": {"memory": "64Mi", "cpu": "500m"}, "requests": {"memory": "128Mi"}},
                "enforcement": "Required", "logs": "Plain", "landlock": "Required", "languages": ["node", "python"],
                "hostUsers": false, "podMetadata": {"labels": {"l": "1"}, "annotations": {"a": "2"}}
            },
            "warmPool": {"replicas": 0, "maxIdleSeconds": 30},
            "concurrency": {"maxRuns": 2, "maxQueued": 1, "queueTimeoutSeconds": 3},
            "gateway": {"injection": {"deadlineSeconds": 3600}},
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}, "skills": ["pdf", "other/x"]}]
        });
        let view = RuntimeView::of(&runtime(spec), &Defaults::new("img"));
        assert_eq!(view.image, "other");
        assert_eq!(view.active_deadline(), Duration::from_secs(30 + 20 + 60));
        assert_eq!((view.uids.first, view.uids.last), (5000, 5001));
        assert_eq!(view.runtime_class.as_deref(), Some("gvisor"));
        assert_eq!(view.node_selector, BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        assert_eq!(view.tolerations[0].effect.as_deref(), Some("NoExecute"));
        assert_eq!(view.resources.memory, Resource::new("64Mi", "64Mi"));
        assert_eq!(view.resources.cpu, Resource::new("10m", "500m"));
        assert_eq!(view.resources.work_size, (16 << 20).to_string());
        assert_eq!((view.warm_replicas, view.max_runs, view.max_queued), (0, 2, 1));
        assert_eq!(view.queue_timeout, Duration::from_secs(3));
        assert_eq!(view.admission, Duration::from_hours(1));
        assert!(view.suspended && view.requires_isolation && view.logs == JournalMode::Plain);
        assert!(view.requires_landlock && view.own_users);
        assert_eq!(view.languages, [Language::Node, Language::Python]);
        assert_eq!(view.labels, BTreeMap::from([("l".to_owned(), "1".to_owned())]));
        assert_eq!(view.annotations, BTreeMap::from([("a".to_owned(), "2".to_owned())]));
    }

    /// Never told by the name of an image.
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
            let view = RuntimeView::of(&runtime(serde_json::json!({"sandbox": sandbox})), &defaults);
            assert_eq!(view.languages, [expected], "{sandbox}");
        }
    }

    /// Grants are for declared tools that ask for them, of the skills that are named.
    #[test]
    fn a_run_gets_what_its_skill_is_granted_and_its_tool_asks_for() {
        let grant = |name: &str, skills: &[&str]| serde_json::json!({"name": name, "skills": skills, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
        let spec = serde_json::json!({"env": [grant("A", &["pdf", "other/x"]), grant("B", &["pdf"])]});
        let view = RuntimeView::of(&runtime(spec), &Defaults::new("img"));
        for (namespace, skill, asked, expected) in [
            ("ns", "pdf", &["A", "B", "C"][..], &["A", "B"][..]),
            ("ns", "pdf", &["B"], &["B"]),
            ("ns", "pdf", &[], &[]),
            ("other", "x", &["A", "B"], &["A"]),
            ("other", "pdf", &["A"], &[]),
            ("ns", "x", &["A"], &[]),
        ] {
            let granted = view.grants_of(Some(&mk_tool_run(namespace, skill, asked)));
            let names: Vec<&str> = granted.iter().map(|grant| grant.name.as_str()).collect();
            assert_eq!(names, expected, "{namespace}/{skill} {asked:?}");
        }
        assert_eq!(view.grants_of(None), []);
    }

    #[test]
    fn a_pod_is_raised_where_a_skill_asks_for_more_and_only_there() {
        let spec = serde_json::json!({"sandbox": {"resources": {"limits": {"memory": "256Mi", "cpu": "500m"}}}});
        let own = RuntimeView::of(&runtime(spec), &Defaults::new("img")).resources;
        let raised = |asked: serde_json::Value| own.raised_to(&serde_json::from_value(asked).unwrap());
        for enough in [
            serde_json::json!({}),
            serde_json::json!({"limits": {"memory": "256Mi", "cpu": "0.5"}}),
            serde_json::json!({"requests": {"memory": "200Mi"}}),
        ] {
            assert_eq!(raised(enough.clone()), None, "{enough}");
        }
        let more =
            raised(serde_json::json!({"limits": {"memory": "1Gi", "cpu": "100m", "example.org/gpu": 1}})).unwrap();
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
}
