//! Names that Kubernetes objects, logs and headers share. Code elsewhere spells none of them, but for keys that one module alone
//! writes and reads (`src/jobs/names.rs`), and names in texts of commands and messages.

pub mod defaults;
mod object_name;
pub mod probe;
pub mod program_file;

pub use object_name::{is_label, split_name};

/// API group and version of both kinds.
pub const API_VERSION: &str = "knack.dev/v1alpha1";
/// Kind of a skill.
pub const KIND_SKILL: &str = "Skill";
/// Kind of a runtime.
pub const KIND_SKILL_RUNTIME: &str = "SkillRuntime";
/// Namespace of objects and folders that name none.
pub const DEFAULT_NAMESPACE: &str = "default";
/// Request header that names skills for one request, or `none`.
pub const HEADER_SKILLS: &str = "x-knack-skills";
/// Request header from one gateway to another in its path, which then injects nothing.
pub const HEADER_VIA: &str = "x-knack-via";
/// Header by which a gateway knows its own requests to an upstream on its machine.
pub const HEADER_HOP: &str = "x-knack-hop";
/// Response header with a summary of what was injected.
pub const HEADER_KNACK: &str = "x-knack";
/// Longest `metadata.name`: it must fit a DNS label (RFC 1123), since pods and labels carry it.
pub const NAME_MAX_BYTES: usize = 63;

/// API group of both kinds.
pub const GROUP: &str = "knack.dev";
/// Prefix of Knack's labels and annotations, and of the `apiVersion` of its kinds: [`GROUP`] and a slash.
pub const KEY_PREFIX: &str = "knack.dev/";

/// Field manager of the controller's server-side applies.
pub const FIELD_MANAGER: &str = "knack";
/// Field manager of the hub: `warmPool`, `isolation`, `owner` and condition `Isolated` of a SkillRuntime's status, and the data of
/// [`CONFIG_MAP_SKILL_USES`].
pub const FIELD_MANAGER_HUB: &str = "knack-hub";
/// Audience of the projected ServiceAccount tokens that callers of the hub show.
pub const TOKEN_AUDIENCE: &str = "knack";
/// Lease of the active controller, in the release namespace.
pub const LEASE_CONTROLLER: &str = "knack-controller";
/// Prefix of the Lease of a runtime's owner among the hub's replicas, in the runtime's namespace.
pub const LEASE_RUNTIME_PREFIX: &str = "knack-runtime-";
/// Secret with the root that signs the certificates of hub and webhook, and its key, in the release namespace.
pub const SECRET_ROOT: &str = "knack-root";
/// Secret with the hub's serving certificate, in the release namespace.
pub const SECRET_HUB_TLS: &str = "knack-hub-tls";
/// Secret with the registry's serving certificate, in the release namespace.
pub const SECRET_REGISTRY_TLS: &str = "knack-registry-tls";
/// Secret with the serving certificate of the webhook that injects sidecars, in the release namespace.
pub const SECRET_WEBHOOK_TLS: &str = "knack-webhook-tls";
/// Secret with the key that the hub's replicas make the keys of journals from, in the release namespace.
pub const SECRET_HUB_JOURNAL: &str = "knack-hub-journal";
/// ConfigMap with the authorities that clients of the hub trust, in the release namespace.
pub const CONFIG_MAP_HUB_CA: &str = "knack-hub-ca";
/// ConfigMap with the authorities that clients of the registry trust, in the release namespace.
pub const CONFIG_MAP_REGISTRY_CA: &str = "knack-registry-ca";
/// ConfigMap with those of the hub in the namespaces of sidecars.
pub const CONFIG_MAP_CA: &str = "knack-ca";
/// ConfigMap with what is known of environments of packages, in the release namespace; `knack packages serve` writes it.
pub const CONFIG_MAP_PACKAGES: &str = "knack-packages";
/// ConfigMap with the last uses of skills, in the release namespace; the chart makes it, and the hub writes its data for the controller.
pub const CONFIG_MAP_SKILL_USES: &str = "knack-skill-uses";
/// Role of the release namespace that lets the hub `use` the environments of packages that were built; `knack packages serve`
/// writes its rules, and the admission policy `sandbox-environments` asks the API server's authorizer.
pub const ROLE_ENVIRONMENTS: &str = "knack-environments";
/// The resource of these rules. There are no objects of it: a name is that of a SkillRuntime and of an image's digest.
pub const RESOURCE_ENVIRONMENTS: &str = "environments";
/// Field manager of `knack packages serve`.
pub const FIELD_MANAGER_PACKAGES: &str = "knack-packages";
/// Key of the environment that a builder Job makes.
pub const LABEL_ENVIRONMENT: &str = "knack.dev/environment";
/// Value of [`LABEL_ROLE`] of the pods that build environments: what their NetworkPolicy selects.
pub const ROLE_BUILDER: &str = "builder";
/// Condition of a SkillRuntime: whether sandboxes start.
pub const CONDITION_SANDBOXES_READY: &str = "SandboxesReady";
/// Field manager of that condition: an apply takes away what the same manager has applied before and does not name again.
pub const FIELD_MANAGER_HUB_STARTS: &str = "knack-hub-starts";
/// Condition of a SkillRuntime: whether the pods that ask for its sidecar have it.
pub const CONDITION_PODS_INJECTED: &str = "PodsInjected";
/// Field manager of that condition.
pub const FIELD_MANAGER_SIDECARS: &str = "knack-sidecars";
/// ConfigMap with the settings of the sidecars of its namespace.
pub const CONFIG_MAP_SIDECAR: &str = "knack-sidecar";
/// Virtual verb of RBAC on `skillruntimes`: may execute at this runtime.
pub const VERB_USE: &str = "use";
/// Virtual verb of RBAC on `skillruntimes`: sees every skill of the cluster default, not only its own namespace's.
pub const VERB_USE_ALL: &str = "use-all";
/// Virtual verb of RBAC on `skillruntimes`: may ask for a client of another namespace, and is shown what that namespace sees.
pub const VERB_USE_FOR: &str = "use-for";
/// Request header by which a shared gateway names the namespace that a request is for.
pub const HEADER_FOR: &str = "x-knack-for";
/// On the Lease of a controller: the namespaces that its release manages, sorted, separated by commas; `*` for all.
pub const ANNOTATION_SCOPE: &str = "knack.dev/scope";

/// Name of the skill that an object belongs to.
pub const LABEL_SKILL: &str = "knack.dev/skill";
/// Namespace of that skill.
pub const LABEL_SKILL_NAMESPACE: &str = "knack.dev/skill-namespace";
/// Revision: the first 10 hex digits of what the artifact's name is made from.
pub const LABEL_REVISION: &str = "knack.dev/revision";
/// Name of the runtime that an object belongs to.
pub const LABEL_RUNTIME: &str = "knack.dev/runtime";
/// Id of an execution.
pub const LABEL_EXECUTION: &str = "knack.dev/execution";
/// The role of a pod; [`ROLE_SANDBOX`] for those that run code.
pub const LABEL_ROLE: &str = "knack.dev/role";
/// Key of the warm pool that a pod belongs to.
pub const LABEL_POOL: &str = "knack.dev/pool";
/// Opt-in of the injection, on a pod or a namespace; see [`ENABLED`].
pub const LABEL_INJECT: &str = "knack.dev/inject";
/// Name of the sidecar in a pod.
pub const CONTAINER_SIDECAR: &str = "knack-gateway";
/// Opt-in of restarts for the sake of older sidecars, on a namespace; see [`ENABLED`]. `disabled` on a workload wins.
pub const LABEL_ROLL: &str = "knack.dev/roll";
/// On a pod template: the sidecar's image that the controller has restarted the workload for.
pub const ANNOTATION_ROLLED_FOR: &str = "knack.dev/rolled-for";
/// On a pod: what the injection did, in words.
pub const ANNOTATION_INJECTION: &str = "knack.dev/injection";
/// On a pod: the SkillRuntime that its sidecar serves, as namespace/name.
pub const ANNOTATION_RUNTIME: &str = "knack.dev/runtime";
/// Value of [`LABEL_INJECT`] and of [`LABEL_ROLL`] that opts in.
pub const ENABLED: &str = "enabled";
/// Value of [`LABEL_ROLE`] of every pod that runs code, warm or cold: what the deny-all NetworkPolicy selects.
pub const ROLE_SANDBOX: &str = "sandbox";

/// Asks for a reconcile; echoed in `status.lastHandledReconcileAt`.
pub const ANNOTATION_REQUESTED_AT: &str = "knack.dev/requestedAt";
/// Full hex digest of the file tree, on every ConfigMap of an artifact.
pub const ANNOTATION_DIGEST: &str = "knack.dev/digest";
/// `<this>/<all>`, from 0: which shard a ConfigMap is.
pub const ANNOTATION_SHARD: &str = "knack.dev/shard";
/// On a Skill that a program uploaded: its entry, JSON. A Skill without it is never written by the registry.
pub const ANNOTATION_UPLOAD: &str = "knack.dev/upload";
/// On such a Skill: the user name of the last caller that changed it through the registry.
pub const ANNOTATION_UPLOADED_BY: &str = "knack.dev/uploaded-by";
/// On the ConfigMaps of an uploaded version: the name of its Skill. They have no [`LABEL_SKILL`], which is on what the
/// controller makes and deletes.
pub const LABEL_UPLOAD: &str = "knack.dev/upload";
/// On every Skill that the registry wrote: the name of the skill that it is a version of, its own for the version that is
/// served by default. Requests find versions by it: `name@^1`.
pub const LABEL_UPLOAD_OF: &str = "knack.dev/upload-of";
/// On every such Skill: the number of the version.
pub const LABEL_UPLOAD_VERSION: &str = "knack.dev/upload-version";
/// Field manager of `knack registry`.
pub const FIELD_MANAGER_REGISTRY: &str = "knack-registry";
/// Address at which the holder of a Lease answers, on the Lease.
pub const ANNOTATION_ADDRESS: &str = "knack.dev/address";
/// Result summary of an ended execution, JSON, on its Job.
pub const ANNOTATION_RESULT: &str = "knack.dev/result";

/// Name of the deny-all NetworkPolicy of a runtime's sandboxes: `<this><runtime>`.
pub const NETWORK_POLICY_PREFIX: &str = "knack-sandbox-";
/// Name of the ResourceQuota of all sandboxes of a namespace.
pub const QUOTA_NAME: &str = "knack-sandboxes";
/// On that ResourceQuota, followed by a runtime's name: what the API server lets the hub run for it.
pub const ANNOTATION_ADMITTED_PREFIX: &str = "admitted.knack.dev/";
/// The field manager of an object.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`LABEL_MANAGED_BY`] on objects that do not have a single owner of Knack's kinds.
pub const MANAGED_BY: &str = "knack";

/// Condition: valid and delivered (Skill), usable (SkillRuntime).
pub const CONDITION_READY: &str = "Ready";
/// Reason of the condition `Ready` of a Skill whose files are not a valid skill.
pub const REASON_INVALID_SKILL: &str = "InvalidSkill";
/// Condition: work is under way, or will be tried again.
pub const CONDITION_RECONCILING: &str = "Reconciling";
/// Condition: needs a change by a person.
pub const CONDITION_STALLED: &str = "Stalled";
/// Condition of a Skill: at least one runtime serves it.
pub const CONDITION_ACCEPTED: &str = "Accepted";
/// Condition of a SkillRuntime, written by the hub: what the isolation probe saw.
pub const CONDITION_ISOLATED: &str = "Isolated";

/// Service of the hub, in the release namespace; also the first label of its certificate's names.
pub const SERVICE_HUB: &str = "knack-hub";
/// Service of the registry, in the release namespace; also the first label of its certificate's names.
pub const SERVICE_REGISTRY: &str = "knack-registry";
/// Service of the webhook that injects sidecars, in the release namespace; also the first label of its certificate's names.
pub const SERVICE_WEBHOOK: &str = "knack-webhook";
/// Kubernetes' label of an EndpointSlice with the name of its Service.
pub const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Key of [`CONFIG_MAP_HUB_CA`] with the PEM of every authority that may be met.
pub const KEY_HUB_CA: &str = "ca.crt";
/// Audience of the tokens that clients of a shared gateway show to it. It is not the hub's: a gateway must not be able to
/// act at the hub as one of its clients.
pub const CLIENT_TOKEN_AUDIENCE: &str = "knack-gateway";
/// Request header in which a client of a shared gateway may show its token, if its API key has another use.
pub const HEADER_CLIENT_TOKEN: &str = "x-knack-token";
/// Request header with the client's identity, set by a shared gateway behind its own check, and by each gateway where it sends a
/// client's request on to the registry; never accepted from outside.
pub const HEADER_CLIENT: &str = "x-knack-client";

/// Variables by which programs find their proxies.
pub const PROXIES: [&str; 8] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
];
