//! The defaults of the fields of both kinds, in one place. Those that are a word of an enum are with their types in `knack-api`, since
//! this crate depends on nothing: its `#[default]`, and `MAX_ACTIVATION` and `MAX_RISK` of `SkillRuntimeSpec`.
//!
//! A field that is not here has no default of its own: what holds without it depends on another field, on the skill's
//! frontmatter or on the installation, and the field's description says so.

use core::time::Duration;

/// `SkillRuntime.spec.sandbox.timeoutSeconds`: wall-clock limit of one run, seconds.
pub const TIMEOUT_SECONDS: u64 = 10;
/// `SkillRuntime.spec.sandbox.maxTimeoutSeconds`: the highest limit that a skill may ask for, seconds. It is what the LiteLLM
/// dialect gives a run by itself.
pub const MAX_TIMEOUT_SECONDS: u64 = 120;
/// `Skill.spec.sandbox.maxOutputBytes`: cap of stdout and stderr each, and the highest one. 32 times what a model is shown.
pub const MAX_OUTPUT_BYTES: u64 = 1 << 20;
/// `SkillRuntime.spec.sandbox.ttlSecondsAfterFinished`: how long an ended Job stays, seconds.
pub const TTL_SECONDS_AFTER_FINISHED: u64 = 300;
/// `SkillRuntime.spec.sandbox.resources`: request and limit of CPU. Requests are small: a pod of the pool does nothing most of its life,
/// and a full pool must not push others from the node.
pub const CPU: (&str, &str) = ("10m", "1");
/// `SkillRuntime.spec.sandbox.resources`: request and limit of memory, files in the work directory included.
pub const MEMORY: (&str, &str) = ("32Mi", "512Mi");
/// `SkillRuntime.spec.sandbox.resources`: request and limit of ephemeral storage. The root is read-only, so it bounds the log.
pub const EPHEMERAL_STORAGE: (&str, &str) = ("16Mi", "64Mi");
/// Size of the work directory: a quarter of the memory limit.
pub const WORK_SIZE: &str = "128Mi";
/// `SkillRuntime.spec.sandbox.runAsUserRange`: the lowest user id and the highest
/// (docs/design/decisions.md#user-ids-of-sandboxes).
pub const USER_IDS: (u32, u32) = (200_000, 265_535);
/// `SkillRuntime.spec.revisionHistoryLimit`: superseded revisions that are kept where no runtime says otherwise.
pub const REVISION_HISTORY: u32 = 3;
/// `SkillRuntime.spec.warmPool.replicas` on a cluster and on a laptop: the second serves a call while the first is replaced.
pub const WARM_REPLICAS: usize = 2;
/// `SkillRuntime.spec.warmPool.maxIdleSeconds`: when an unused warm sandbox is ended, seconds.
pub const WARM_MAX_IDLE_SECONDS: u64 = 1_800;
/// `SkillRuntime.spec.warmPool.environments`: a conversation uses the tools of a few skills.
pub const WARM_ENVIRONMENTS: usize = 4;
/// `SkillRuntime.spec.concurrency.maxRuns` on a cluster: pods of 10 millicores and 32 MiB that a node takes beside other work. On a
/// laptop it is the number of cores.
pub const MAX_RUNS: usize = 32;
/// `SkillRuntime.spec.concurrency.maxQueued` for each of `maxRuns`: with the default time limit of 10 s the last of them would wait 80 s at
/// worst, past any queue timeout, and a few milliseconds at the usual run time.
pub const QUEUED_PER_RUN: usize = 8;
/// `SkillRuntime.spec.concurrency.queueTimeoutSeconds`: three times the default time limit of a run, below the idle limits of HTTP
/// clients and proxies (60 s and more).
pub const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// `SkillRuntime.spec.gateway.injection.maxToolRounds`: rounds of skill execution in one request.
pub const MAX_TOOL_ROUNDS: u32 = 10;
/// `SkillRuntime.spec.gateway.injection.deadlineSeconds`: below the 600 s after which the SDKs give up.
pub const DEADLINE_SECONDS: u64 = 540;
/// `SkillRuntime.spec.gateway.injection.maxListingTokens`: about 60 skills with descriptions of 200 bytes, about one page of context
/// (docs/design/conversation.md#listing-budget).
pub const MAX_LISTING_TOKENS: usize = 4_000;
/// `SkillRuntime.spec.gateway.injection.minMaxTokens`: requests for fewer tokens are titles, labels and probes, in which a skill cannot be
/// used (docs/design/conversation.md#when-nothing-is-injected).
pub const MIN_MAX_TOKENS: u64 = 64;
/// `SkillRuntime.spec.gateway.maxSnapshotAgeSeconds`: an hour outlives any upgrade of the hub.
pub const MAX_SNAPSHOT_AGE_SECONDS: u64 = 3_600;
