//! A SkillRuntime as the executor needs it: every default filled in, every quantity a number or checked.

use std::collections::BTreeMap;
use std::time::Duration;

use knack_execution::records::RecordSettings;
use knack_execution::{Language, Missing};
use knack_skill::call::ToolRun;
use knack_skill::config::SkillConfig;
use knack_vocabulary::defaults;

use crate::status_write::Target;

/// The resolved settings of one SkillRuntime. A plain value: equal views behave alike.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the SkillRuntime's own"
)]
pub struct ResolvedRuntime {
    /// Namespace of the SkillRuntime; its Jobs run there.
    pub namespace: String,
    /// Name of the SkillRuntime.
    pub name: String,
    /// Its uid: Jobs are owned by it.
    pub uid: String,
    /// Image of the sandbox (`sandbox.image`, or the one of `sandbox.images` that `sandbox.imageName` names).
    pub image: String,
    /// Images that skills may ask for by name (`sandbox.images`).
    pub images: Vec<String>,
    /// When the image is pulled.
    pub image_pull_policy: ImagePullPolicy,
    /// How the runner comes into the container.
    pub runner: RunnerSource,
    /// Interpreters that pods are held ready for, most used first.
    pub languages: Vec<Language>,
    /// The resources of a pod (`sandbox.resources`).
    pub resources: PodResources,
    /// Time limit of a run that names none (`sandbox.timeoutSeconds`).
    pub timeout: Duration,
    /// Longest time limit of a run (`sandbox.maxTimeoutSeconds`).
    pub max_timeout: Duration,
    /// How long a result is kept (`sandbox.ttlSecondsAfterFinished`).
    pub ttl: Duration,
    /// How old an id may be at its first run: a gateway's request may run code until its deadline
    /// (`gateway.injection.deadlineSeconds`).
    pub admission: Duration,
    /// User ids of the pods (`sandbox.runAsUserRange`).
    pub uids: UidRange,
    /// `sandbox.runtimeClassName`.
    pub runtime_class: Option<String>,
    /// `sandbox.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// `sandbox.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// `sandbox.imagePullSecrets`, by name.
    pub image_pull_secrets: Vec<String>,
    /// Pods held ready per interpreter (`warmPool.replicas`).
    pub warm_replicas: usize,
    /// Sets of granted values, environments of packages and named images that pods are held ready for at once
    /// (`warmPool.environments`).
    pub warm_environments: usize,
    /// How long one may stay unused (`warmPool.maxIdleSeconds`).
    pub max_idle: Duration,
    /// PriorityClass of the pods, the installation's: what the quota of sandboxes counts by.
    pub priority_class: Option<String>,
    /// Runs at once (`concurrency.maxRuns`).
    pub max_runs: usize,
    /// Executions that may wait (`concurrency.maxQueued`).
    pub max_queued: usize,
    /// How long one may wait (`concurrency.queueTimeoutSeconds`).
    pub queue_timeout: Duration,
    /// Environment values from Secrets and the skills that may have them (`env`),
    /// and those of the configuration of functions, under their own names.
    pub env: Vec<EnvGrant>,
    /// Values of the configuration of functions, by skill (`skillSelector.skills[].config`).
    pub config: Vec<SkillConfig>,
    /// Whether the pod's log can be read by people (`sandbox.logs`).
    pub logs: JournalMode,
    /// A node without Landlock runs nothing (`sandbox.landlock: Required`).
    pub requires_landlock: bool,
    /// Runs may write to `/dev/shm` of their pod (`sandbox.sharedMemory`).
    pub shared_memory: bool,
    /// User ids of the pods are not the node's (`sandbox.hostUsers: false`).
    pub own_users: bool,
    /// Labels of the pods, besides Knack's (`sandbox.podMetadata.labels`).
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pods (`sandbox.podMetadata.annotations`).
    pub annotations: BTreeMap<String, String>,
    /// Runs are refused on nodes whose CNI was not seen to enforce policies (`sandbox.enforcement: Required`).
    pub requires_isolation: bool,
    /// Whether its skills may have environments of packages, in images of their own: the installation's.
    pub has_environments: bool,
    /// Why no code runs, if none does: the runtime is suspended, or what the hub says of its status (`src/hub/judged.rs`).
    pub stopped: Option<Missing>,
}

impl ResolvedRuntime {
    /// The deadline of every Job of this runtime: `maxIdleSeconds` + `maxTimeoutSeconds` + 60 s, for cold and warm alike
    /// (docs/design/decisions.md#life-of-a-sandbox-pod).
    #[must_use]
    pub fn active_deadline(&self) -> Duration {
        self.max_idle + self.max_timeout + DEADLINE_SLACK
    }

    /// How long a finished Job stays, so that a next owner of the runtime knows its execution: as long as its result, and as far
    /// as the id of the execution may have been ahead of the owner's clock.
    #[must_use]
    pub fn job_ttl(&self) -> Duration {
        self.ttl + RecordSettings::CLOCK_SKEW
    }

    /// Pods that its pool can hold: for each interpreter, and for runs with granted values, packages or a named image.
    #[must_use]
    pub fn most_warm(&self) -> usize {
        let on_demand = !self.env.is_empty() || self.has_environments || !self.images.is_empty();
        let plain = self.warm_replicas.saturating_mul(self.languages.len().max(1));
        plain.saturating_add(if on_demand { self.most_on_demand() } else { 0 })
    }

    /// Pods that are held ready for granted values, packages and named images, all sets together.
    #[must_use]
    pub fn most_on_demand(&self) -> usize {
        if self.warm_replicas == 0 || self.warm_environments == 0 {
            return 0;
        }
        let shared = self.warm_replicas.saturating_mul(GRANTED_SHARE);
        shared.max(self.warm_environments)
    }

    /// The environment values that a run of a declared tool gets: those that its skill is granted and that it asks for.
    /// Whatever else runs has no [`ToolRun`] and gets none.
    #[must_use]
    pub fn grants_of(&self, tool: Option<&ToolRun>) -> Vec<EnvGrant> {
        let Some(tool) = tool else {
            return Vec::new();
        };
        let reference = tool.skill.to_string();
        let mut granted: Vec<EnvGrant> = self
            .env
            .iter()
            .filter(|grant| grant.skills.contains(&reference) && tool.env.contains(&grant.name))
            // Which other skills have it does not affect the pod.
            .map(|grant| EnvGrant {
                skills: Vec::new(),
                ..grant.clone()
            })
            .collect();
        granted.sort();
        granted
    }

    /// `namespace/name`, for logs and errors.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The object, for what is written into its status.
    pub(crate) fn target(&self) -> Target<'_> {
        Target {
            namespace: &self.namespace,
            name: &self.name,
            uid: Some(&self.uid),
        }
    }
}

/// Above the longest idle time and the longest run: pulling the image, start, kill, collecting files.
const DEADLINE_SLACK: Duration = Duration::from_mins(1);

/// When the kubelet pulls the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImagePullPolicy {
    /// Unless the node has it: images are pinned by digest.
    #[default]
    IfNotPresent,
    /// Never: for images that were imported to the node.
    Never,
    /// At every start.
    Always,
}

impl ImagePullPolicy {
    /// The word of the pod's field.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
            Self::Always => "Always",
        }
    }
}

/// How the runner comes into the container. Its path is `/knack/knack-runner` either way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RunnerSource {
    /// The sandbox image has it.
    #[default]
    InImage,
    /// An image volume (servers 1.35 and later), mounted at `/knack`.
    ImageVolume {
        /// The image that holds `knack-runner` in its root.
        image: String,
    },
}

/// The resources of a pod. Kubernetes quantities as written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodResources {
    /// CPU.
    pub cpu: Resource,
    /// Memory; files in the work directory count as memory.
    pub memory: Resource,
    /// Ephemeral storage; the root is read-only, so it bounds the log.
    pub ephemeral_storage: Resource,
    /// Size of the work directory.
    pub work_size: String,
    /// Resources of devices by name, such as `nvidia.com/gpu`: requests and limits are the same there.
    pub extended: BTreeMap<String, String>,
}

/// Request and limit of one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// The request, which the scheduler counts.
    pub request: String,
    /// The limit.
    pub limit: String,
}

impl Resource {
    /// A request and a limit.
    #[must_use]
    pub fn new(request: &str, limit: &str) -> Self {
        Self {
            request: request.to_owned(),
            limit: limit.to_owned(),
        }
    }
}

impl Default for PodResources {
    /// The resources of a SkillRuntime that names none.
    fn default() -> Self {
        let resource = |(request, limit): (&str, &str)| Resource::new(request, limit);
        Self {
            cpu: resource(defaults::CPU),
            memory: resource(defaults::MEMORY),
            ephemeral_storage: resource(defaults::EPHEMERAL_STORAGE),
            work_size: defaults::WORK_SIZE.to_owned(),
            extended: BTreeMap::new(),
        }
    }
}

/// User ids of the pods, both ends included: each pod gets a separate one, so that process limits, which the kernel
/// counts by uid over all pods of a node, count one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UidRange {
    /// The lowest.
    pub first: u32,
    /// The highest.
    pub last: u32,
}

impl Default for UidRange {
    /// `runAsUserRange` of a SkillRuntime that names none.
    fn default() -> Self {
        let (first, last) = defaults::USER_IDS;
        Self { first, last }
    }
}

/// One toleration of the pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Toleration {
    /// Taint key; absent: any.
    pub key: Option<String>,
    /// `Exists` or `Equal`.
    pub operator: Option<String>,
    /// Taint value.
    pub value: Option<String>,
    /// Taint effect; absent: any.
    pub effect: Option<String>,
    /// How long a `NoExecute` taint is tolerated.
    pub toleration_seconds: Option<i64>,
}

/// An environment value that skills of a runtime may get. Its value is read by the kubelet, never by the hub.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvGrant {
    /// Name of the variable.
    pub name: String,
    /// Name of the Secret, in the runtime's namespace.
    pub secret: String,
    /// Key in the Secret.
    pub key: String,
    /// The skills that may have it: `namespace/name`.
    pub skills: Vec<String>,
}

/// The content of a pod's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JournalMode {
    /// Ids, times and digests; what the run wrote is sealed.
    #[default]
    Sealed,
    /// Everything, for debugging.
    Plain,
}

/// Pods with granted values, packages or a named image, all sets together, as a multiple of `warmPool.replicas`: two sets are held as ready as programs of
/// the model's, more of them share, and each of `warmPool.environments` has one.
const GRANTED_SHARE: usize = 2;
