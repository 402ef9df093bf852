//! Names of this module's own objects; those that others share are in `api::vocabulary`.

/// Annotation of a Job: the replica that made it.
pub(super) const ANNOTATION_REPLICA: &str = "knack.dev/replica";
/// Label of the Jobs and pods of the isolation probe.
pub(super) const LABEL_PROBE: &str = "knack.dev/probe";
/// Kubernetes' label that names a node on the node itself.
pub(super) const LABEL_HOSTNAME: &str = "kubernetes.io/hostname";

/// The only container of a sandbox pod.
pub(super) const CONTAINER: &str = "sandbox";
/// Volume of the work directory.
pub(super) const WORK_VOLUME: &str = "work";
/// Volume of the runner, where it does not come with the image.
pub(super) const RUNNER_VOLUME: &str = "runner";
/// Where the work volume is mounted; Landlock rules and the images name it.
pub(super) const WORK_PATH: &str = "/work";
/// The directory of the run below it, made by the runner.
pub(super) const RUN_PATH: &str = "/work/run";
/// Where the runner is, in the image or mounted.
pub(super) const RUNNER_DIRECTORY: &str = "/knack";
/// The runner.
pub(super) const RUNNER_PATH: &str = "/knack/knack-runner";
/// What a pod is there for; what the deny-all NetworkPolicy selects.
pub(super) const LABEL_ROLE: &str = "knack.dev/role";
/// Value of [`LABEL_ROLE`] of every sandbox pod.
pub(super) const ROLE_SANDBOX: &str = "sandbox";
/// Name of the runtime.
pub(super) const LABEL_RUNTIME: &str = "knack.dev/runtime";
/// Key of the warm pool.
pub(super) const LABEL_POOL: &str = "knack.dev/pool";
/// Value of a label that is a flag.
pub(super) const ENABLED: &str = "enabled";
/// Field manager of what the hub writes.
pub(super) const FIELD_MANAGER_HUB: &str = "knack-hub";
/// Name of the skill.
pub(super) const LABEL_SKILL: &str = "knack.dev/skill";
/// Namespace of the skill.
pub(super) const LABEL_SKILL_NAMESPACE: &str = "knack.dev/skill-namespace";
/// Revision of the skill.
pub(super) const LABEL_REVISION: &str = "knack.dev/revision";
/// Id of an execution.
pub(super) const LABEL_EXECUTION: &str = "knack.dev/execution";
/// Result summary of an ended execution, JSON, on its Job.
pub(super) const ANNOTATION_RESULT: &str = "knack.dev/result";
/// Prefix of the Lease of a runtime's owner.
pub(super) const LEASE_RUNTIME_PREFIX: &str = "knack-runtime-";
/// Annotation of that Lease: where the owner answers.
pub(super) const ANNOTATION_ADDRESS: &str = "knack.dev/address";
