//! Names of this module's own objects; those that others share are in `crates/vocabulary`.

/// Annotation of a Job: the replica that made it.
pub(super) const ANNOTATION_REPLICA: &str = "knack.dev/replica";
/// Annotation of the Lease of a runtime: the shortest time for which Jobs of it were kept lately, seconds.
pub(super) const ANNOTATION_RETENTION: &str = "knack.dev/retention";
/// Annotation of the same: since when they are kept for longer.
pub(super) const ANNOTATION_RETENTION_RAISED: &str = "knack.dev/retention-raised";
/// Annotation of the same: a new owner refuses executions that it does not know whose ids are older than this time.
pub(super) const ANNOTATION_REFUSED_BEFORE: &str = "knack.dev/refused-before";
/// Label of the Jobs and pods of the isolation probe.
pub(super) const LABEL_PROBE: &str = "knack.dev/probe";
/// The field that names a node. Its label `kubernetes.io/hostname` is another name on some clouds.
pub(super) const FIELD_NODE_NAME: &str = "metadata.name";
/// The only container of a sandbox pod.
pub(super) const CONTAINER: &str = "sandbox";
/// Volume of the work directory.
pub(super) const WORK_VOLUME: &str = "work";
/// Volume of the runner, where it does not come with the image.
pub(super) const RUNNER_VOLUME: &str = "runner";
/// Where the work volume is mounted; Landlock rules and the images name it, and the runner marks it.
pub(super) use knack_runner::protocol::WORK_PATH;
/// The directory of the run below it, made by the runner. `/tmp` of the sandbox images is a link to its temporary folder
/// (`images/layers.sh`).
pub(super) const RUN_PATH: &str = "/work/run";
/// Where the runner is, in the image or mounted.
pub(super) const RUNNER_DIRECTORY: &str = "/knack";
/// The runner.
pub(super) const RUNNER_PATH: &str = "/knack/knack-runner";
