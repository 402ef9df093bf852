//! Builds the Job of a runtime; sandbox pods are defined only here.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource, ImageVolumeSource,
    LocalObjectReference, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodDNSConfig,
    PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements, SeccompProfile, SecretKeySelector,
    SecurityContext, Toleration as PodToleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sha2::{Digest as _, Sha256};

use super::pod_requirements::PodRequirements;
use super::start::start_frame;
use crate::jobs::names::{
    ANNOTATION_REPLICA, CONTAINER, FIELD_NODE_NAME, LABEL_PROBE, RUNNER_DIRECTORY, RUNNER_PATH, RUNNER_VOLUME,
    WORK_PATH, WORK_VOLUME,
};
use crate::jobs::resolved_runtime::{EnvGrant, PodResources, ResolvedRuntime, Resource, RunnerSource, Toleration};

/// The properties in which the Jobs of a runtime differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobIdentity {
    /// Name of the Job, at most 63 bytes.
    pub name: String,
    /// User and group id of the pod.
    pub uid: u32,
    /// Image, resources and values of its pod.
    pub requirements: PodRequirements,
    /// Replica that made it.
    pub owner: String,
    /// Nodes that it is not to be placed on, by name.
    pub avoid: Vec<String>,
    /// The purpose of the Job.
    pub purpose: JobPurpose,
}

/// The purpose of a Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobPurpose {
    /// One execution.
    Run,
    /// The isolation probe, which runs no user code: the runner dials the address.
    Probe {
        /// `host:port` of Knack's listener.
        target: String,
        /// The question of the probe.
        question: String,
        /// The node to probe; any when absent.
        node: Option<String>,
    },
}

/// Builds the Job. Pure: the same input gives the same Job.
///
/// The pod is beyond Pod Security `restricted`: no token, no DNS, no service links, read-only root, its own uid, limits
/// for everything, one container, never retried.
#[must_use]
pub fn job_spec(resolved: &ResolvedRuntime, identity: &JobIdentity) -> Job {
    let labels = labels(resolved, identity);
    Job {
        metadata: ObjectMeta {
            name: Some(identity.name.clone()),
            namespace: Some(resolved.namespace.clone()),
            labels: Some(labels.clone()),
            annotations: Some(BTreeMap::from([(
                ANNOTATION_REPLICA.to_owned(),
                identity.owner.clone(),
            )])),
            owner_references: Some(vec![owner(resolved)]),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            backoff_limit: Some(0),
            completions: Some(1),
            parallelism: Some(1),
            active_deadline_seconds: Some(seconds(resolved.active_deadline())),
            ttl_seconds_after_finished: i32::try_from(resolved.job_ttl().as_secs()).ok(),
            pod_failure_policy: Some(failure_policy()),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    // Knack's labels last: no other value may replace them.
                    labels: Some(resolved.labels.clone().into_iter().chain(labels).collect()),
                    annotations: (!resolved.annotations.is_empty()).then(|| resolved.annotations.clone()),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod(resolved, identity)),
            },
            ..JobSpec::default()
        }),
        status: None,
    }
}

/// Key of the pool that a pod of these settings belongs to: 10 hex digits over everything that decides about its Job and
/// its runner. The settings of interpreters and packages are the same for all pods of the pool, and are not part of it.
#[must_use]
pub fn pool_key(resolved: &ResolvedRuntime, image: &str, resources: &PodResources, env: &[EnvGrant]) -> String {
    let requirements = PodRequirements {
        image: image.to_owned(),
        resources: resources.clone(),
        env: env.to_vec(),
        packages: None,
        language: None,
    };
    let start = start_frame(resolved, &requirements);
    let identity = JobIdentity {
        name: String::new(),
        uid: resolved.uids.first,
        requirements,
        owner: String::new(),
        avoid: Vec::new(),
        purpose: JobPurpose::Run,
    };
    // The values themselves: a setting that reaches a pod later is in them.
    let settings = serde_json::json!({
        "pod": pod(resolved, &identity),
        "lastUid": resolved.uids.last,
        "deadline": seconds(resolved.active_deadline()),
        "retention": seconds(resolved.job_ttl()),
        "labels": resolved.labels,
        "annotations": resolved.annotations,
        "start": start,
    });
    knack_skill::digest::hex(&Sha256::digest(settings.to_string())[..5])
}

fn labels(resolved: &ResolvedRuntime, identity: &JobIdentity) -> BTreeMap<String, String> {
    let wanted = &identity.requirements;
    let key = pool_key(resolved, &wanted.image, &wanted.resources, &wanted.env);
    let mut labels = BTreeMap::from([
        (
            knack_vocabulary::LABEL_ROLE.to_owned(),
            knack_vocabulary::ROLE_SANDBOX.to_owned(),
        ),
        (knack_vocabulary::LABEL_RUNTIME.to_owned(), resolved.name.clone()),
        (knack_vocabulary::LABEL_POOL.to_owned(), key),
    ]);
    if matches!(identity.purpose, JobPurpose::Probe { .. }) {
        labels.insert(LABEL_PROBE.to_owned(), knack_vocabulary::ENABLED.to_owned());
    }
    labels
}

/// The SkillRuntime as the owner of what is made for it.
pub(in crate::jobs) fn owner(resolved: &ResolvedRuntime) -> OwnerReference {
    OwnerReference {
        api_version: knack_vocabulary::API_VERSION.to_owned(),
        kind: knack_vocabulary::KIND_SKILL_RUNTIME.to_owned(),
        name: resolved.name.clone(),
        uid: resolved.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// A disrupted pod and any exit code but 0 fail the Job at once: a run is never repeated by Kubernetes.
fn failure_policy() -> PodFailurePolicy {
    let fail = || PodFailurePolicyRule {
        action: "FailJob".to_owned(),
        ..PodFailurePolicyRule::default()
    };
    PodFailurePolicy {
        rules: vec![
            PodFailurePolicyRule {
                on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
                    status: "True".to_owned(),
                    type_: "DisruptionTarget".to_owned(),
                }]),
                ..fail()
            },
            PodFailurePolicyRule {
                on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
                    container_name: Some(CONTAINER.to_owned()),
                    operator: "NotIn".to_owned(),
                    values: vec![0],
                }),
                ..fail()
            },
        ],
    }
}

fn pod(resolved: &ResolvedRuntime, identity: &JobIdentity) -> PodSpec {
    PodSpec {
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        restart_policy: Some("Never".to_owned()),
        // No resolver at all; the API demands one address where the policy is None.
        dns_policy: Some("None".to_owned()),
        dns_config: Some(PodDNSConfig {
            nameservers: Some(vec!["127.0.0.1".to_owned()]),
            ..PodDNSConfig::default()
        }),
        termination_grace_period_seconds: Some(grace_seconds(resolved, &identity.purpose)),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(i64::from(identity.uid)),
            run_as_group: Some(i64::from(identity.uid)),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        host_users: resolved.own_users.then_some(false),
        runtime_class_name: resolved.runtime_class.clone(),
        priority_class_name: resolved.priority_class.clone(),
        node_selector: (!resolved.node_selector.is_empty()).then(|| resolved.node_selector.clone()),
        affinity: affinity(identity),
        tolerations: some(resolved.tolerations.iter().map(toleration).collect()),
        image_pull_secrets: some(
            resolved
                .image_pull_secrets
                .iter()
                .map(|name| LocalObjectReference { name: name.clone() })
                .collect(),
        ),
        containers: vec![container(resolved, identity)],
        volumes: Some(volumes(resolved, identity)),
        ..PodSpec::default()
    }
}

/// Placement beyond the runtime's settings: a probe on the node that it probes, everything else off the nodes that are
/// avoided.
fn affinity(identity: &JobIdentity) -> Option<Affinity> {
    // The API takes one name for each requirement; all of them must hold.
    let by_name = |operator: &str, name: &String| NodeSelectorRequirement {
        key: FIELD_NODE_NAME.to_owned(),
        operator: operator.to_owned(),
        values: Some(vec![name.clone()]),
    };
    let fields: Vec<_> = match &identity.purpose {
        JobPurpose::Probe { node: Some(node), .. } => vec![by_name("In", node)],
        _ => identity.avoid.iter().map(|name| by_name("NotIn", name)).collect(),
    };
    let term = NodeSelectorTerm {
        match_expressions: None,
        match_fields: Some(fields).filter(|fields| !fields.is_empty()),
    };
    term.match_fields.is_some().then(|| Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: vec![term],
            }),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    })
}

/// Beyond the longest run: killing what it left, collecting files, the last frames.
const GRACE_BEYOND: Duration = Duration::from_secs(5);
/// A probe has nothing to finish.
const PROBE_GRACE_SECONDS: i64 = 1;

/// A drained node asks its pods to end: an idle runner ends at once, one with a run after it.
fn grace_seconds(resolved: &ResolvedRuntime, purpose: &JobPurpose) -> i64 {
    match purpose {
        JobPurpose::Run => seconds(resolved.max_timeout + GRACE_BEYOND),
        JobPurpose::Probe { .. } => PROBE_GRACE_SECONDS,
    }
}

fn container(resolved: &ResolvedRuntime, identity: &JobIdentity) -> Container {
    let mut mounts = vec![VolumeMount {
        name: WORK_VOLUME.to_owned(),
        mount_path: WORK_PATH.to_owned(),
        ..VolumeMount::default()
    }];
    if matches!(resolved.runner, RunnerSource::ImageVolume { .. }) {
        mounts.push(VolumeMount {
            name: RUNNER_VOLUME.to_owned(),
            mount_path: RUNNER_DIRECTORY.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        });
    }
    let (args, stdin) = match &identity.purpose {
        JobPurpose::Run => (None, true),
        JobPurpose::Probe { target, question, .. } => (
            Some(vec!["--probe".to_owned(), target.clone(), question.clone()]),
            false,
        ),
    };
    Container {
        name: CONTAINER.to_owned(),
        image: Some(identity.requirements.image.clone()),
        image_pull_policy: Some(resolved.image_pull_policy.as_str().to_owned()),
        command: Some(vec![RUNNER_PATH.to_owned()]),
        args,
        stdin: Some(stdin),
        // An attach that ends must not end the run.
        stdin_once: Some(false),
        tty: Some(false),
        env: some(identity.requirements.env.iter().map(variable).collect()),
        resources: Some(resources(&identity.requirements.resources)),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                add: None,
            }),
            privileged: Some(false),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            ..SecurityContext::default()
        }),
        // The runner's fatal errors are in the log, which an attacker inside cannot write.
        termination_message_policy: Some("File".to_owned()),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

fn volumes(resolved: &ResolvedRuntime, identity: &JobIdentity) -> Vec<Volume> {
    let mut volumes = vec![Volume {
        name: WORK_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(Quantity(identity.requirements.resources.work_size.clone())),
        }),
        ..Volume::default()
    }];
    if let RunnerSource::ImageVolume { image } = &resolved.runner {
        volumes.push(Volume {
            name: RUNNER_VOLUME.to_owned(),
            image: Some(ImageVolumeSource {
                reference: Some(image.clone()),
                pull_policy: Some(resolved.image_pull_policy.as_str().to_owned()),
            }),
            ..Volume::default()
        });
    }
    volumes
}

fn resources(resources: &PodResources) -> ResourceRequirements {
    let of = |side: fn(&Resource) -> &String| {
        let native = [
            ("cpu", &resources.cpu),
            ("memory", &resources.memory),
            ("ephemeral-storage", &resources.ephemeral_storage),
        ];
        let native = native.map(|(name, resource)| (name.to_owned(), Quantity(side(resource).clone())));
        let extended = resources
            .extended
            .iter()
            .map(|(name, quantity)| (name.clone(), Quantity(quantity.clone())));
        Some(native.into_iter().chain(extended).collect())
    };
    ResourceRequirements {
        requests: of(|resource| &resource.request),
        limits: of(|resource| &resource.limit),
        ..ResourceRequirements::default()
    }
}

fn variable(grant: &EnvGrant) -> EnvVar {
    EnvVar {
        name: grant.name.clone(),
        value: None,
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: grant.secret.clone(),
                key: grant.key.clone(),
                optional: None,
            }),
            ..EnvVarSource::default()
        }),
    }
}

fn toleration(toleration: &Toleration) -> PodToleration {
    PodToleration {
        key: toleration.key.clone(),
        operator: toleration.operator.clone(),
        value: toleration.value.clone(),
        effect: toleration.effect.clone(),
        toleration_seconds: toleration.toleration_seconds,
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// An absent list and an empty one mean the same; the server stores the absent one.
fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

#[cfg(test)]
#[path = "spec_tests.rs"]
pub(in crate::jobs) mod tests;
