//! One bed: its places, its clients, its components.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kube::config::{KubeConfigOptions, Kubeconfig};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::component::Component;
use crate::logs::PodLogs;
use crate::namespace::Namespace;
use crate::policy::PolicyStandIn;
use crate::progress::{STILL, progress};

/// The folder of `bed`, below the repository's root.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../cluster");

/// The lists of the custom resources, which an API server that serves them answers.
const SERVED: [&str; 2] = ["skills", "skillruntimes"];
/// How often it is asked for them.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What a test may ask of a bed of its own.
#[derive(Debug, Clone, Default)]
pub struct Switches {
    /// Environment of `bed up`, as `tests/cluster/lib/settings.sh` names it: `KNACK_BED_FSYNC`, `KNACK_BED_PIDS`.
    pub environment: BTreeMap<&'static str, String>,
}

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    /// `None`: the shared one, which outlives the test run.
    own: Option<String>,
    switches: Switches,
    network: PathBuf,
    kubeconfig: PathBuf,
    /// The programs of the cluster come first.
    path: String,
    /// Set once the custom resources were seen to be served.
    served: OnceLock<()>,
}

impl Cluster {
    /// Brings the shared bed up, or attaches to it. Panics with `bed`'s own words if it cannot.
    pub(crate) fn shared() -> Self {
        Self::up(None, Switches::default())
    }

    /// Brings a bed of this name up, for tests that break things. It goes when dropped.
    pub(crate) fn named(name: &str, switches: Switches) -> Self {
        Self::up(Some(name.to_owned()), switches)
    }

    fn up(own: Option<String>, switches: Switches) -> Self {
        let mut cluster = Self {
            own,
            switches,
            network: PathBuf::new(),
            kubeconfig: PathBuf::new(),
            path: String::new(),
            served: OnceLock::new(),
        };
        cluster.bed(&["up"]);
        let lines = cluster.bed(&["env"]);
        let value = |name: &str| {
            let prefix = format!("export {name}=");
            let line = lines.lines().find_map(|line| line.strip_prefix(&prefix));
            line.unwrap_or_else(|| panic!("`bed env` has no {name}: {lines}"))
                .to_owned()
        };
        cluster.network = value("KNACK_BED_NETNS").into();
        cluster.kubeconfig = value("KUBECONFIG").into();
        cluster.path = value("PATH");
        cluster
    }

    /// Builds programs that not every test needs (a module below `tests/cluster/binaries`): minutes, the first time.
    /// Call it before [`crate::run`], whose bound is for the test itself.
    pub fn build(module: &str) {
        let output = Command::new(Path::new(FOLDER).join("bed"))
            .args(["binaries", module])
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success(), "bed binaries {module} failed");
    }

    /// Runs `bed` with these words and returns what it printed; panics with its errors.
    fn bed(&self, words: &[&str]) -> String {
        let mut command = Command::new(Path::new(FOLDER).join("bed"));
        command.args(words).envs(&self.switches.environment);
        if let Some(name) = &self.own {
            command.env("KNACK_BED", name).env_remove("KNACK_BED_DIR");
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "bed {words:?} failed: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    }

    /// Moves the calling thread, and all threads and programs that it starts, into the bed's network.
    pub fn enter(&self) {
        let network = File::open(&self.network).unwrap();
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
            .unwrap_or_else(|error| panic!("{}: {error}", self.network.display()));
    }

    /// The network namespace that represents the rest of the world. Pods reach every address in it.
    #[must_use]
    pub fn outside(&self) -> PathBuf {
        let mut name = self.network.clone().into_os_string();
        name.push("-outside");
        name.into()
    }

    /// Lifts the limit of processes of a pod, which the node sets for all; for controls that must meet no limit.
    /// Only on hosts with cgroup v1, or where kubelet uses the cgroupfs driver, as the bed's does.
    pub fn lift_process_limit(&self, pod_uid: &str) {
        let output = Command::new("find")
            .args([
                "/sys/fs/cgroup",
                "-path",
                &format!("*pod{pod_uid}*"),
                "-name",
                "pids.max",
            ])
            .output()
            .unwrap();
        let files = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!files.is_empty(), "no process limit of pod {pod_uid}");
        for file in files.lines() {
            std::fs::write(file, "max").unwrap_or_else(|error| panic!("{file}: {error}"));
        }
    }

    /// The administrator's kubeconfig. Its address is good inside the bed's network only.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A `PATH` on which kubectl, helm and ctr of the bed come first.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The administrator's client configuration, for clients with settings of their own.
    pub async fn config(&self) -> kube::Config {
        self.config_of(&self.kubeconfig).await
    }

    /// A client with all rights. Each call makes a new one, with connections of its own.
    pub async fn client(&self) -> kube::Client {
        kube::Client::try_from(self.config().await).unwrap()
    }

    /// A client with all rights at the second API server, which [`Cluster::start`] has started.
    pub async fn second_client(&self) -> kube::Client {
        let file = self.kubeconfig.with_file_name("second-admin.kubeconfig");
        kube::Client::try_from(self.config_of(&file).await).unwrap()
    }

    /// A client with all rights at [`Component::OldestApiserver`], which [`Cluster::start`] has started.
    pub async fn oldest_client(&self) -> kube::Client {
        let file = self.kubeconfig.with_file_name("oldest-admin.kubeconfig");
        kube::Client::try_from(self.config_of(&file).await).unwrap()
    }

    async fn config_of(&self, file: &Path) -> kube::Config {
        let kubeconfig = Kubeconfig::read_from(file).unwrap();
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap()
    }

    /// A fresh namespace `<prefix>-<unique>`; deleted, with all it holds, when dropped.
    pub async fn namespace(&self, prefix: &str) -> Namespace {
        self.namespace_with(prefix, &[]).await
    }

    /// A fresh namespace with labels, for example Pod Security's.
    pub async fn namespace_with(&self, prefix: &str, labels: &[(&str, &str)]) -> Namespace {
        let unique = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        Namespace::create(
            self.client().await,
            format!("{prefix}-{unique:x}"),
            labels,
            self.kubectl_command(),
        )
        .await
    }

    /// kubectl with the administrator's rights, to be given its words. Works from outside the bed's network too.
    #[must_use]
    pub fn kubectl_command(&self) -> Command {
        self.command("kubectl")
    }

    /// A program of the bed (`kubectl`, `helm`, `ctr`) or of the machine, inside the bed's network, `KUBECONFIG` set.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.network.display()))
            .args(["--", "env"])
            .arg(format!("PATH={}", self.path))
            .arg(program)
            .env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// Runs kubectl and returns what it printed; panics with its errors.
    pub fn kubectl(&self, words: &[&str]) -> String {
        let output = self.try_kubectl(words);
        assert!(
            output.status.success(),
            "kubectl {words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Applies the definitions of this checkout, also where others are installed, and waits until they are served.
    pub fn install_definitions(&self) {
        const DEFINITIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../crds");
        self.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", DEFINITIONS]);
        let established = [
            "wait",
            "--for=condition=Established",
            "--timeout=300s",
            "-f",
            DEFINITIONS,
        ];
        self.kubectl(&established);
        self.served.get_or_init(|| self.until_served());
    }

    /// Established is what the API server has written; its handlers hear of it from their own watch, a moment later.
    fn until_served(&self) {
        let begun = Instant::now();
        for resource in SERVED {
            let list = format!("/apis/knack.dev/v1alpha1/namespaces/default/{resource}?limit=1");
            while !self.try_kubectl(&["get", "--raw", &list]).status.success() {
                assert!(begun.elapsed() < STILL, "{resource} are not served");
                std::thread::park_timeout(LOOK_EVERY);
            }
        }
    }

    /// Runs kubectl, whatever comes of it.
    pub fn try_kubectl(&self, words: &[&str]) -> Output {
        self.kubectl_command().args(words).output().unwrap()
    }

    /// The full name of an image. Panics if the bed does not hold it.
    ///
    /// Those of the product (`knack`, `sandbox-python`, `sandbox-node`, `runner`) have the tag `KNACK_IMAGE_TAG`, else
    /// `dev`. Those of the bed have the tag `bed`: `busybox`, and sandboxes with a broken runner: `greedy` (PID 1 takes
    /// all memory), `garbage`, `old-runner`, `silent`.
    #[must_use]
    pub fn image(&self, name: &str) -> String {
        let tag = match name {
            "knack" | "sandbox-python" | "sandbox-node" | "runner" => {
                std::env::var("KNACK_IMAGE_TAG").unwrap_or_else(|_| "dev".to_owned())
            }
            _ => "bed".to_owned(),
        };
        let image = format!("knack.local/{name}:{tag}");
        assert!(
            self.bed(&["images"]).lines().any(|line| line == image),
            "the bed does not hold {image}; run: make cluster-images"
        );
        image
    }

    /// Imports image archives.
    pub fn import(&self, archives: &[&Path]) {
        let mut words = vec!["import"];
        words.extend(archives.iter().map(|path| path.to_str().unwrap()));
        self.bed(&words);
    }

    /// Brings an image with nothing but a program at `path`, its entry point, into the cluster; gives its name. Panics if that fails.
    #[must_use]
    pub fn image_of_program(&self, name: &str, program: &Path, path: &str) -> String {
        let image = format!("knack.local/{name}:test");
        let folder = tempfile::tempdir().unwrap();
        let layer = folder.path().join("layer");
        let inside = layer.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(inside.parent().unwrap()).unwrap();
        std::fs::copy(program, &inside).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let archive = folder.path().join("image.tar");
        let mut make = Command::new(Path::new(FOLDER).join("../../images/archive.py"));
        make.args(["--name", &image, "--entrypoint", path, "--output"]);
        let output = make.arg(&archive).arg(&layer).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{make:?}: {errors}");
        self.import(&[&archive]);
        image
    }

    /// SIGKILL to a component; returns when it is gone.
    pub fn kill(&self, component: Component) {
        self.bed(&["kill", component.name()]);
    }

    /// Starts a component again. The second and the oldest API server are ready on return; what others serve comes later.
    pub fn start(&self, component: Component) {
        self.bed(&["start", component.name()]);
    }

    /// From now on keeps what the pods of a namespace write, also of those that are deleted.
    #[must_use]
    pub fn keep_logs(&self, namespace: &str) -> PodLogs {
        let state = self.kubeconfig.parent().unwrap();
        let kept = state.join(format!("kept-logs-{namespace}"));
        PodLogs::keep(state.join("pod-logs"), kept, namespace)
    }

    /// From now on, sandbox pods of these namespaces may not open a connection: a stand-in for an enforcing network.
    /// Pods elsewhere pass once they were seen. Ends when dropped. One at a time per bed: a second one
    /// waits here.
    #[must_use]
    pub fn enforce_policies(&self, namespaces: &[&str]) -> PolicyStandIn {
        let mut policies = self.policy_turn();
        policies.enforce(namespaces);
        policies
    }

    /// The stand-in before anything is enforced: for who counts on a network that is open, or begins to enforce at a moment of its own.
    #[must_use]
    pub fn policy_turn(&self) -> PolicyStandIn {
        let mut command = Command::new(Path::new(FOLDER).join("netpol.sh"));
        command.env("PATH", &self.path);
        if let Some(name) = &self.own {
            command.env("KNACK_BED", name).env_remove("KNACK_BED_DIR");
        }
        let policies = PolicyStandIn::start(command);
        progress("no other test has a stand-in for the network");
        policies
    }
}

// An own bed ends with the test that asked for it.
impl Drop for Cluster {
    fn drop(&mut self) {
        if self.own.is_some() && !std::thread::panicking() {
            self.bed(&["down"]);
        } else if let Some(name) = &self.own {
            // No second panic while one unwinds.
            let _ = Command::new(Path::new(FOLDER).join("bed"))
                .arg("down")
                .env("KNACK_BED", name)
                .status();
        }
    }
}
