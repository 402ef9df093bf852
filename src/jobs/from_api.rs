//! From a SkillRuntime as written to the settings of its executor.

use std::time::Duration;

use knack_api::SkillRuntime;
use knack_api::quantity::Quantity;
use knack_api::runtime_sandbox::{
    self, Enforcement, LandlockDemand, LogsMode, RuntimeSandbox, SandboxLanguage, TaintEffect, TolerationOperator,
};
use knack_api::shared::Resources;
use knack_api::skill_runtime::{SkillPin, SkillRuntimeSpec};
use knack_execution::records::RecordSettings;
use knack_execution::{Language, Missing};
use knack_skill::config::variable;
use knack_vocabulary::defaults;

use super::resolved_runtime::{
    EnvGrant, ImagePullPolicy, JournalMode, PodResources, ResolvedRuntime, Resource, RunnerSource, Toleration, UidRange,
};
use crate::object_name::ObjectName;

/// The installation's values for fields that a SkillRuntime does not set.
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
    /// Whether environments of packages are built on this cluster.
    pub environments: bool,
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
            environments: false,
        }
    }
}

/// The part of the memory limit that files may take; the rest is the program's.
const WORK_FRACTION: u64 = 4;

impl ResolvedRuntime {
    /// Resolves a SkillRuntime.
    #[must_use]
    pub fn of(runtime: &SkillRuntime, defaults: &Defaults) -> Self {
        let spec = &runtime.spec;
        let sandbox = &spec.sandbox;
        let namespace = runtime.metadata.namespace.clone().unwrap_or_default();
        let seconds = |value: Option<u64>, default| Duration::from_secs(value.unwrap_or(default));
        let time_limits = sandbox.time_limits();
        let max_runs = spec.concurrency.max_runs.unwrap_or(defaults::MAX_RUNS);
        Self {
            name: runtime.metadata.name.clone().unwrap_or_default(),
            uid: runtime.metadata.uid.clone().unwrap_or_default(),
            image: sandbox
                .own_image()
                .map_or_else(|| defaults.image.clone(), str::to_owned),
            images: sandbox.images.iter().map(|named| named.image.clone()).collect(),
            image_pull_policy: defaults.image_pull_policy,
            runner: defaults.runner.clone(),
            languages: languages(sandbox, &defaults.languages),
            resources: PodResources::of(sandbox.resources.as_ref()),
            timeout: Duration::from_secs(time_limits.default_seconds),
            max_timeout: Duration::from_secs(time_limits.max_seconds),
            ttl: seconds(sandbox.ttl_seconds_after_finished, defaults::TTL_SECONDS_AFTER_FINISHED),
            admission: seconds(spec.gateway.injection.deadline_seconds, 0).max(RecordSettings::ADMISSION),
            uids: uids(sandbox),
            runtime_class: sandbox.runtime_class_name.clone(),
            node_selector: sandbox.node_selector.clone(),
            tolerations: sandbox.tolerations.iter().map(toleration).collect(),
            image_pull_secrets: sandbox
                .image_pull_secrets
                .iter()
                .map(|secret| secret.name.clone())
                .collect(),
            priority_class: defaults.priority_class.clone(),
            warm_replicas: spec.warm_pool.replicas.unwrap_or(defaults::WARM_REPLICAS),
            warm_environments: spec.warm_pool.environments.unwrap_or(defaults::WARM_ENVIRONMENTS),
            max_idle: seconds(spec.warm_pool.max_idle_seconds, defaults::WARM_MAX_IDLE_SECONDS),
            max_runs,
            max_queued: spec
                .concurrency
                .max_queued
                .unwrap_or(max_runs * knack_vocabulary::defaults::QUEUED_PER_RUN),
            queue_timeout: spec
                .concurrency
                .queue_timeout_seconds
                .map_or(knack_vocabulary::defaults::QUEUE_TIMEOUT, Duration::from_secs),
            env: grants(&namespace, spec),
            config: pins(spec).filter_map(|pin| pin.config_values(&namespace)).collect(),
            logs: match sandbox.logs.unwrap_or_default() {
                LogsMode::Plain => JournalMode::Plain,
                LogsMode::Sealed => JournalMode::Sealed,
            },
            requires_isolation: sandbox.enforcement.unwrap_or_default() == Enforcement::Required,
            requires_landlock: sandbox.landlock.unwrap_or_default() == LandlockDemand::Required,
            shared_memory: sandbox.shared_memory.unwrap_or_default(),
            own_users: sandbox.host_users == Some(false),
            labels: sandbox.pod_metadata.labels.clone(),
            annotations: sandbox.pod_metadata.annotations.clone(),
            has_environments: defaults.environments,
            stopped: spec.is_suspended().then(|| suspended(runtime)),
            namespace,
        }
    }
}

fn uids(sandbox: &RuntimeSandbox) -> UidRange {
    let uid = |number| u32::try_from(number).unwrap_or(u32::MAX);
    let range = sandbox.run_as_user_range;
    range.map_or_else(UidRange::default, |range| UidRange {
        first: uid(range.min),
        last: uid(range.max),
    })
}

/// Interpreters of the image in use: those that the runtime declares, else those of the installation's image if that is
/// in use.
#[must_use]
pub fn languages(sandbox: &RuntimeSandbox, of_default_image: &[Language]) -> Vec<Language> {
    let declared = sandbox.languages.iter().map(|language| match language {
        SandboxLanguage::Python => Language::Python,
        SandboxLanguage::Node => Language::Node,
    });
    match (sandbox.languages.is_empty(), sandbox.own_image()) {
        (false, _) => declared.collect(),
        (true, None) => of_default_image.to_vec(),
        (true, Some(_)) => vec![Language::Python],
    }
}

impl PodResources {
    /// Resources as written, with defaults for absent fields. A request above its limit is lowered to it.
    #[must_use]
    pub fn of(resources: Option<&Resources>) -> Self {
        resources.map_or_else(Self::default, |resources| Self::default().with(resources))
    }

    /// These defaults, with the written fields in their place.
    fn with(&self, written: &Resources) -> Self {
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

    /// The limit of a resource; `None`: it is not offered.
    #[must_use]
    pub fn offered(&self, name: &str) -> Option<&str> {
        match name {
            "cpu" => Some(&self.cpu.limit),
            "memory" => Some(&self.memory.limit),
            "ephemeral-storage" => Some(&self.ephemeral_storage.limit),
            other => self.extended.get(other).map(String::as_str),
        }
    }

    /// The limit of a resource; that of one that is not offered is 0.
    fn limit(&self, name: &str) -> &str {
        self.offered(name).unwrap_or("0")
    }

    /// The limit of memory, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        Quantity::parse(&self.memory.limit).map_or(0, |limit| limit.units())
    }

    /// Whether a pod with these has less of something than one with `other`.
    #[must_use]
    pub fn offers_less_than(&self, other: &Self) -> bool {
        let mut names = Resources::NATIVE
            .into_iter()
            .chain(other.extended.keys().map(String::as_str));
        names.any(|name| milli(self.limit(name)) < milli(other.limit(name)))
    }

    /// The resources of a pod for a skill that asks for more than these. `None`: these are enough, so that a pod of the
    /// pool can be used.
    #[must_use]
    pub fn raised_to(&self, asked: &Resources) -> Option<Self> {
        let is_more = |name: &str, wanted: &Quantity| {
            Quantity::parse(self.limit(name)).is_ok_and(|own| wanted.milli() > own.milli())
        };
        let all = || asked.limits.iter().chain(&asked.requests);
        if !all().any(|(name, wanted)| is_more(name, wanted)) {
            return None;
        }
        // Values below the runtime's stay the runtime's, or a skill that wants more memory could take the CPU from
        // itself.
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

/// A quantity in thousandths; 0 for one that is none.
fn milli(text: &str) -> u128 {
    Quantity::parse(text).map_or(0, |quantity| quantity.milli())
}

fn pins(spec: &SkillRuntimeSpec) -> impl Iterator<Item = &SkillPin> {
    spec.skill_selector.iter().flat_map(|selector| &selector.skills)
}

/// Why a suspended runtime runs nothing. The hub says so first (`src/hub/judged.rs`); an executor that it did not ask for says it by
/// itself.
fn suspended(runtime: &SkillRuntime) -> Missing {
    Missing::new(
        format!("SkillRuntime {} is suspended", ObjectName::of(runtime)),
        "set spec.suspend to false",
    )
}

/// The values of Secrets that skills may have: by `env`, and for the configuration of their functions. The names of the latter are
/// reserved, so that no skill can ask for them.
fn grants(namespace: &str, spec: &SkillRuntimeSpec) -> Vec<EnvGrant> {
    let mut grants: Vec<EnvGrant> = spec.env.iter().map(|grant| env_grant(namespace, grant)).collect();
    for pin in pins(spec) {
        let (skill_namespace, skill_name) = pin.skill(namespace);
        let skill = format!("{skill_namespace}/{skill_name}");
        let secret = pin
            .config
            .iter()
            .filter_map(|given| Some((given, given.value_from.as_ref()?)));
        grants.extend(secret.map(|(given, source)| EnvGrant {
            name: variable(&given.name),
            secret: source.secret_key_ref.name.clone(),
            key: source.secret_key_ref.key.clone(),
            skills: vec![skill.clone()],
        }));
    }
    grants
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

/// Nothing is left out silently: all fields that a default SkillRuntime results in.
#[cfg(test)]
#[path = "from_api_tests.rs"]
mod tests;
