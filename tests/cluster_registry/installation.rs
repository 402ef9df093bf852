//! Controller and registry of one test; the registry has the rights of the chart, and is held by its rules.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cluster_support::{Cluster, Namespace};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use knack_api::Skill;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::port::free_port;
use crate::requests::Program;

/// How long anything that should come soon may take on a busy machine.
pub(crate) const SOON: Duration = cluster_support::STILL.saturating_sub(Duration::from_mins(1));
/// How often a condition without a signal is asked for.
const POLL: Duration = Duration::from_millis(50);

pub(crate) struct Installation {
    cluster: &'static Cluster,
    pub(crate) client: Client,
    system: Namespace,
    pub(crate) team: Namespace,
    pub(crate) other: Namespace,
    release: String,
    port: u16,
    metrics_port: u16,
    authorities: String,
    /// More words of a registry that is started.
    pub(crate) words: Vec<String>,
    folder: tempfile::TempDir,
    registry: Option<Child>,
    controller: Child,
}

impl Installation {
    pub(crate) async fn start(cluster: &'static Cluster) -> Self {
        cluster.install_definitions();
        let client = cluster.client().await;
        let (system, team) = (
            cluster.namespace("reg-system").await,
            cluster.namespace("reg-team").await,
        );
        let other = cluster.namespace("reg-other").await;
        let folder = tempfile::tempdir().unwrap();
        let controller = Command::new(env!("CARGO_BIN_EXE_knack"))
            .args([
                "controller",
                "--namespace",
                &system,
                "--watch-namespace",
                &team,
                "--runtime-namespaces",
                &team,
                "--allow-image-tags",
                "--registry",
            ])
            .args(["--registry-name", "127.0.0.1", "--metrics-listen", "127.0.0.1:0"])
            .env("KUBECONFIG", cluster.kubeconfig())
            .env("KNACK_LOG", "warn")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut installation = Self {
            release: format!("knack-{}", &*system),
            cluster,
            client,
            system,
            team,
            other,
            port: free_port(),
            metrics_port: free_port(),
            authorities: String::new(),
            words: Vec::new(),
            folder,
            registry: None,
            controller,
        };
        installation.chart();
        installation.accounts().await;
        installation.authorities = installation.mount().await;
        cluster_support::progress("the certificates are there");
        installation.start_registry().await;
        installation
    }

    /// Rights and rules of the registry as the chart makes them, for this release.
    fn chart(&self) {
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/knack");
        let values = format!(
            "registry.enabled=true,crds.enabled=false,watchNamespaces={{{}\\,{}}}",
            &*self.team, &*self.other
        );
        let values = values.replace("\\,", ",");
        let rendered = self
            .cluster
            .command("helm")
            .args([
                "template",
                &self.release,
                chart.to_str().unwrap(),
                "--namespace",
                &self.system,
                "--set",
                &values,
            ])
            .args([
                "-s",
                "templates/rbac/registry.yaml",
                "-s",
                "templates/policy/registry.yaml",
            ])
            .output()
            .unwrap();
        assert!(
            rendered.status.success(),
            "{}",
            String::from_utf8_lossy(&rendered.stderr)
        );
        let file = self.folder.path().join("chart.yaml");
        std::fs::write(&file, rendered.stdout).unwrap();
        self.cluster.kubectl(&["apply", "-f", file.to_str().unwrap()]);
    }

    async fn accounts(&self) {
        for (namespace, name) in [
            (&self.team, "stranger"),
            (&self.other, "reader"),
            (&self.other, "lister"),
        ] {
            let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
            let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            api.create(&PostParams::default(), &account).await.unwrap();
        }
        let team: &str = &self.team;
        for (name, verbs, account) in [
            ("all", "get,list,create,update,delete", format!("{team}:default")),
            ("read", "get,list", format!("{}:reader", &*self.other)),
            ("list", "list", format!("{}:lister", &*self.other)),
        ] {
            self.cluster.kubectl(&[
                "create",
                "role",
                name,
                "-n",
                team,
                &format!("--verb={verbs}"),
                "--resource=skills.knack.dev",
            ]);
            let (role, account) = (format!("--role={name}"), format!("--serviceaccount={account}"));
            self.cluster
                .kubectl(&["create", "rolebinding", name, "-n", team, &role, &account]);
        }
    }

    /// Waits for the certificate; the authorities that clients trust.
    async fn mount(&self) -> String {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.system);
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.system);
        let made = async {
            loop {
                let secret = secrets.get_opt("knack-registry-tls").await.unwrap();
                let map = maps.get_opt("knack-registry-ca").await.unwrap();
                if let (Some(data), Some(mut map)) =
                    (secret.and_then(|secret| secret.data), map.and_then(|map| map.data))
                {
                    for key in ["tls.crt", "tls.key"] {
                        std::fs::write(self.folder.path().join(key), &data[key].0).unwrap();
                    }
                    return map.remove("ca.crt").unwrap();
                }
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(SOON, made)
            .await
            .expect("the controller makes certificates")
    }

    /// The administrator's way to the API server, as the registry's ServiceAccount.
    fn kubeconfig(&self) -> PathBuf {
        let text = std::fs::read_to_string(self.cluster.kubeconfig()).unwrap();
        let mut config: Value = serde_saphyr::from_str(&text).unwrap();
        for entry in config["users"].as_array_mut().unwrap() {
            entry["user"]["as"] = json!(format!("system:serviceaccount:{}:knack-registry", &*self.system));
        }
        let path = self.folder.path().join("kubeconfig");
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    pub(crate) async fn start_registry(&mut self) {
        let log = self.folder.path().join("registry.log");
        let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let registry = Command::new(env!("CARGO_BIN_EXE_knack"))
            .args([
                "registry",
                "--watch-namespace",
                &self.team,
                "--watch-namespace",
                &self.other,
            ])
            .arg(format!("--listen=127.0.0.1:{}", self.port))
            .arg(format!("--metrics-listen=127.0.0.1:{}", self.metrics_port))
            .arg(format!("--tls-dir={}", self.folder.path().display()))
            .arg(format!(
                "--history-dir={}",
                self.folder.path().join("history").display()
            ))
            .arg(format!("--files-dir={}", self.folder.path().join("files").display()))
            .args(&self.words)
            .env("KUBECONFIG", self.kubeconfig())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.registry = Some(registry);
        let ready = async {
            while !self.get("/readyz").await.is_some_and(|answer| answer.0) {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(SOON, ready).await.expect("the registry is ready");
        cluster_support::progress("the registry is ready");
    }

    /// SIGKILL.
    pub(crate) fn kill_registry(&mut self) {
        if let Some(mut registry) = self.registry.take() {
            registry.kill().unwrap();
            registry.wait().unwrap();
        }
    }

    async fn get(&self, path: &str) -> Option<(bool, String)> {
        let answer = reqwest::get(format!("http://127.0.0.1:{}{path}", self.metrics_port))
            .await
            .ok()?;
        Some((answer.status().is_success(), answer.text().await.ok()?))
    }

    pub(crate) async fn metrics(&self) -> String {
        self.get("/metrics").await.unwrap().1
    }

    /// A token of a ServiceAccount of `team` or `other`.
    pub(crate) async fn token(&self, place: &str, account: &str, audience: &str) -> String {
        let namespace = if place == "team" { &self.team } else { &self.other };
        cluster_support::token(&self.client, namespace, account, audience).await
    }

    /// What kubectl says to these words where the registry's ServiceAccount gives them.
    pub(crate) fn as_registry(&self, words: &[&str]) -> String {
        let user = format!("--as=system:serviceaccount:{}:knack-registry", &*self.system);
        let ended = self.cluster.try_kubectl(&[words, &["-n", &self.team, &user]].concat());
        String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr)
    }

    /// Where the registry answers.
    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// A file with what clients trust.
    pub(crate) fn authorities_file(&self) -> PathBuf {
        let path = self.folder.path().join("ca.crt");
        std::fs::write(&path, &self.authorities).unwrap();
        path
    }

    /// A program that runs as that.
    pub(crate) async fn client_of(&self, place: &str, account: &str) -> Program {
        let authority = reqwest::Certificate::from_pem(self.authorities.as_bytes()).unwrap();
        Program {
            http: reqwest::Client::builder()
                .tls_certs_only([authority])
                .no_proxy()
                .build()
                .unwrap(),
            url: self.url(),
            token: self.token(place, account, "knack").await,
            client: None,
        }
    }

    /// Applies a Skill as a person does.
    pub(crate) fn apply(&self, name: &str) {
        let document = format!("---\nname: {name}\ndescription: About {name}.\n---\nText.\n");
        let skill = json!({"apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": name},
            "spec": {"source": {"inline": {"files": {"SKILL.md": document}}}}});
        let file = self.folder.path().join(format!("{name}.json"));
        std::fs::write(&file, skill.to_string()).unwrap();
        self.cluster
            .kubectl(&["apply", "--server-side", "-n", &self.team, "-f", file.to_str().unwrap()]);
    }

    /// Waits until nothing of a skill is left.
    pub(crate) async fn until_gone(&self, name: &str) {
        let skills: Api<Skill> = Api::namespaced(self.client.clone(), &self.team);
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.team);
        let of = |label: &str| ListParams::default().labels(&format!("{label}={name}"));
        let gone = async {
            loop {
                let skills = skills.list(&of("knack.dev/upload-of")).await.unwrap().items.len();
                let maps = maps.list(&of("knack.dev/upload")).await.unwrap().items.len();
                if skills + maps == 0 {
                    return;
                }
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(SOON, gone)
            .await
            .expect("Kubernetes removes what a deleted skill owned");
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        self.kill_registry();
        let _ = self.controller.kill();
        let _ = self.controller.wait();
        let file = self.folder.path().join("chart.yaml");
        let _ = self.cluster.try_kubectl(&[
            "delete",
            "--ignore-not-found",
            "--wait=false",
            "-f",
            file.to_str().unwrap(),
        ]);
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join("registry.log")).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(20).collect();
            eprintln!("{}", tail.iter().rev().copied().collect::<Vec<_>>().join("\n"));
        }
    }
}
