//! From a SkillRuntime as written to the settings of its executor.

use std::time::Duration;

use super::view::{
    EnvGrant, ImagePullPolicy, JournalMode, PodResources, Resource, RunnerSource, RuntimeView, Toleration, UidRange,
};
use crate::api::SkillRuntime;
use crate::api::quantity::Quantity;
use crate::api::runtime_sandbox::{self, Enforcement, LogsMode, TaintEffect, TolerationOperator};
use crate::api::shared::Resources;
use crate::execution::Language;
use crate::execution::queue::QueueSettings;

/// What the installation says where a SkillRuntime says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// Sandbox image.
    pub image: String,
    /// When images are pulled.
    pub image_pull_policy: ImagePullPolicy,
    /// How the runner comes into the container.
    pub runner: RunnerSource,
    /// Interpreters of the sandbox images.
    pub languages: Vec<Language>,
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
            languages: defaults.languages.clone(),
            resources: PodResources::of(sandbox.resources.as_ref()),
            timeout,
            max_timeout: seconds(
                sandbox.max_timeout_seconds,
                crate::selection::DEFAULT_MAX_TIMEOUT_SECONDS,
            )
            .max(timeout),
            ttl: seconds(sandbox.ttl_seconds_after_finished, TTL_SECONDS),
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
            suspended: spec.suspend,
            namespace,
        }
    }
}

impl PodResources {
    /// Resources as written, the default where they say nothing. A request above its limit is lowered to it.
    #[must_use]
    pub fn of(resources: Option<&Resources>) -> Self {
        let base = Self::default();
        let Some(resources) = resources else { return base };
        let one = |name: &str, base: &Resource| {
            let limit = resources.limits.get(name).map_or(base.limit.as_str(), Quantity::as_str);
            let request = resources
                .requests
                .get(name)
                .map_or(base.request.as_str(), Quantity::as_str);
            let milli = |text: &str| Quantity::parse(text).map_or(0, |quantity| quantity.milli());
            let request = if milli(request) > milli(limit) { limit } else { request };
            Resource::new(request, limit)
        };
        let memory = one("memory", &base.memory);
        let work_size = resources.limits.get("memory").map_or(base.work_size.clone(), |limit| {
            (limit.units() / WORK_FRACTION).to_string()
        });
        Self {
            cpu: one("cpu", &base.cpu),
            memory,
            ephemeral_storage: one("ephemeral-storage", &base.ephemeral_storage),
            work_size,
        }
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
        assert_eq!(view.active_deadline(), Duration::from_mins(32));
        assert_eq!((view.warm_replicas, view.max_runs, view.max_queued), (2, 32, 256));
        assert_eq!(view.resources, PodResources::default());
        assert_eq!(view.logs, JournalMode::Sealed);
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
                "enforcement": "Required", "logs": "Plain"
            },
            "warmPool": {"replicas": 0, "maxIdleSeconds": 30},
            "concurrency": {"maxRuns": 2, "maxQueued": 1, "queueTimeoutSeconds": 3},
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
        assert!(view.suspended && view.requires_isolation && view.logs == JournalMode::Plain);
        let of = |namespace, name| view.grants_of(Some(namespace), Some(name)).len();
        assert_eq!(
            (of("ns", "pdf"), of("other", "x"), of("other", "pdf"), of("ns", "x")),
            (1, 1, 0, 0)
        );
    }
}
