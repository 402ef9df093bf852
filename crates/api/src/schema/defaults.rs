//! Defaults that the API server writes into objects, for `kubectl explain` and `kubectl get`.
//!
//! Scalars that depend on nothing else. None is inside a list's item, where a default is a permanent difference for GitOps
//! tools, and an object that is absent stays absent. Without an API server the code has the same values.

use knack_vocabulary::defaults as value;
use serde_json::{Value, json};

use crate::runtime_sandbox::{Enforcement, LandlockDemand, LogsMode, ModelCode};
use crate::skill_runtime::{AllowedPackages, SkillRuntimeSpec};

/// Path below the schema's root, and the default, of a kind's fields.
pub(super) fn defaults(kind: &str) -> Vec<(&'static str, Value)> {
    if kind != "SkillRuntime" {
        // What a Skill leaves out may be in its SKILL.md.
        return Vec::new();
    }
    vec![
        ("spec.default", json!(false)),
        ("spec.suspend", json!(false)),
        ("spec.maxActivation", json!(SkillRuntimeSpec::MAX_ACTIVATION)),
        ("spec.maxRisk", json!(SkillRuntimeSpec::MAX_RISK)),
        ("spec.revisionHistoryLimit", json!(value::REVISION_HISTORY)),
        ("spec.sandbox.maxTimeoutSeconds", json!(value::MAX_TIMEOUT_SECONDS)),
        ("spec.sandbox.modelCode", json!(ModelCode::default())),
        (
            "spec.sandbox.ttlSecondsAfterFinished",
            json!(value::TTL_SECONDS_AFTER_FINISHED),
        ),
        ("spec.sandbox.enforcement", json!(Enforcement::default())),
        ("spec.sandbox.landlock", json!(LandlockDemand::default())),
        ("spec.sandbox.sharedMemory", json!(false)),
        ("spec.sandbox.logs", json!(LogsMode::default())),
        ("spec.concurrency.maxRuns", json!(value::MAX_RUNS)),
        (
            "spec.concurrency.queueTimeoutSeconds",
            json!(value::QUEUE_TIMEOUT.as_secs()),
        ),
        ("spec.packages.allowed", json!(AllowedPackages::default())),
        ("spec.packages.requireLock", json!(false)),
        ("spec.packages.standard", json!(false)),
        ("spec.warmPool.replicas", json!(value::WARM_REPLICAS)),
        ("spec.warmPool.maxIdleSeconds", json!(value::WARM_MAX_IDLE_SECONDS)),
        ("spec.warmPool.environments", json!(value::WARM_ENVIRONMENTS)),
        (
            "spec.gateway.maxSnapshotAgeSeconds",
            json!(value::MAX_SNAPSHOT_AGE_SECONDS),
        ),
        (
            "spec.gateway.injection.maxListingTokens",
            json!(value::MAX_LISTING_TOKENS),
        ),
        ("spec.gateway.injection.maxToolRounds", json!(value::MAX_TOOL_ROUNDS)),
        ("spec.gateway.injection.deadlineSeconds", json!(value::DEADLINE_SECONDS)),
        ("spec.gateway.injection.minMaxTokens", json!(value::MIN_MAX_TOKENS)),
    ]
}
