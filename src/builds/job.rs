//! The Job that builds an environment. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMap, ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvVar, LocalObjectReference,
    PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements, SeccompProfile, SecretVolumeSource,
    SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use knack_packages::{EnvironmentKey, Request};
use knack_vocabulary::{LABEL_ENVIRONMENT, LABEL_MANAGED_BY, LABEL_ROLE, MANAGED_BY, ROLE_BUILDER};

use super::image::{Reference, repository_mark};
use crate::packages::{NPM_INDEX_VARIABLE, NPMRC_VARIABLE};

/// The folder of environments in builders and in sandboxes: the first line of every script names it.
pub(super) const STORE: &str = "/opt/knack/packages";
/// Its parent, which is writable for a builder.
const STORE_VOLUME_PATH: &str = "/opt/knack";
/// The work folder of a builder.
const WORK: &str = "/work";
/// The request, compressed.
const REQUEST_FOLDER: &str = "/request";
/// The file of the request there, and its key in the ConfigMap.
pub(super) const REQUEST_FILE: &str = "request.json.gz";
/// Authorities, beside the request.
const AUTHORITIES_FILE: &str = "ca.crt";
/// Most bytes of them: all of a Linux distribution are 220 KiB. The request has what a ConfigMap holds besides.
pub const AUTHORITIES_MAX_BYTES: usize = 300 << 10;
const INDEX_CREDENTIALS: &str = "/credentials/index";
const NPM_CREDENTIALS: &str = "/credentials/npm";
const REGISTRY_CREDENTIALS: &str = "/credentials/registry";

/// Choosing versions, installing packages of Python and installing those of Node have 5 minutes each, pushing 2 GiB five more.
const DEADLINE_SECONDS: i64 = 20 * 60;
/// An ended Job is deleted once it was read; this bound is for Jobs that are not read.
const TTL_SECONDS: i32 = 60 * 60;
/// A builder has nothing to finish at its termination.
const GRACE_SECONDS: i64 = 1;
/// Wheels and packed files of Node, what is unpacked of them, and the environment: files of the same content are one file.
const STORE_SIZE: &str = "5Gi";
/// The layer, compressed, and lists of the index.
const WORK_SIZE: &str = "3Gi";
/// The user of a builder; no image has one of that id with rights.
const USER: i64 = 65_532;

/// The settings of builders: those of the installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuilderSettings {
    /// The namespace of builders.
    pub namespace: String,
    /// The image of the builders.
    pub image: String,
    /// Their ServiceAccount, which has no rights.
    pub service_account: String,
    /// The repository of environments: `registry/repository`.
    pub repository: String,
    /// Repositories of sandbox images that builders pull with the registry's credentials, each as `registry/repository`.
    pub base_repositories: Vec<String>,
    /// Whether packages are added to images of these repositories alone.
    pub only_base_repositories: bool,
    /// The index of Python packages (PEP 503), an address.
    pub index: Option<String>,
    /// Secret with `netrc` for the index.
    pub index_secret: Option<String>,
    /// The index of packages of Node, an address; npm's own if there is none.
    pub npm_index: Option<String>,
    /// Secret with `npmrc` for it.
    pub npm_index_secret: Option<String>,
    /// Secret with `.dockerconfigjson` for the registry.
    pub registry_secret: Option<String>,
    /// Secrets to pull the builders' image with.
    pub image_pull_secrets: Vec<String>,
    /// Whether the registry is contacted without TLS (test clusters).
    pub plain_http: bool,
    /// Authorities besides those of the builders' image, PEM, for index and registry.
    pub authorities: Option<String>,
}

impl BuilderSettings {
    /// Whether packages are added to a sandbox image.
    pub(super) fn takes(&self, image: &str) -> bool {
        let is_listed = || Reference::parse(image).is_some_and(|image| image.is_of(&self.base_repositories));
        !self.only_base_repositories || is_listed()
    }

    /// The marks of the repositories whose images packages are added to. `None`: to all images.
    pub(super) fn marks(&self) -> Option<BTreeSet<String>> {
        let marks = self.base_repositories.iter().map(|name| repository_mark(name));
        self.only_base_repositories.then(|| marks.collect())
    }
}

/// The name of a key's Job, and of the ConfigMap with its request.
pub(super) fn name(key: &EnvironmentKey) -> String {
    format!("knack-build-{key}")
}

fn labels(key: &EnvironmentKey) -> BTreeMap<String, String> {
    [
        (LABEL_MANAGED_BY, MANAGED_BY),
        (LABEL_ROLE, ROLE_BUILDER),
        (LABEL_ENVIRONMENT, key.as_str()),
    ]
    .map(|(label, value)| (label.to_owned(), value.to_owned()))
    .into()
}

/// The ConfigMap with the request and the authorities, owned by its Job.
pub(super) fn request(settings: &BuilderSettings, key: &EnvironmentKey, job_uid: &str, request: Vec<u8>) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name(key)),
            namespace: Some(settings.namespace.clone()),
            labels: Some(labels(key)),
            owner_references: Some(vec![OwnerReference {
                api_version: "batch/v1".to_owned(),
                kind: "Job".to_owned(),
                name: name(key),
                uid: job_uid.to_owned(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        binary_data: Some([(REQUEST_FILE.to_owned(), ByteString(request))].into()),
        data: settings
            .authorities
            .as_ref()
            .map(|authorities| [(AUTHORITIES_FILE.to_owned(), authorities.clone())].into()),
        immutable: Some(true),
    }
}

/// The Job that builds a key. The same input gives the same Job.
pub(super) fn job(settings: &BuilderSettings, key: &EnvironmentKey) -> Job {
    Job {
        metadata: ObjectMeta {
            name: Some(name(key)),
            namespace: Some(settings.namespace.clone()),
            labels: Some(labels(key)),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            backoff_limit: Some(0),
            completions: Some(1),
            parallelism: Some(1),
            active_deadline_seconds: Some(DEADLINE_SECONDS),
            ttl_seconds_after_finished: Some(TTL_SECONDS),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels(key)),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod(settings, key)),
            },
            ..JobSpec::default()
        }),
        status: None,
    }
}

fn pod(settings: &BuilderSettings, key: &EnvironmentKey) -> PodSpec {
    let pull_secrets = settings.image_pull_secrets.iter();
    let pull_secrets: Vec<_> = pull_secrets
        .map(|name| LocalObjectReference { name: name.clone() })
        .collect();
    PodSpec {
        service_account_name: Some(settings.service_account.clone()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        restart_policy: Some("Never".to_owned()),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            fs_group: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        image_pull_secrets: (!pull_secrets.is_empty()).then_some(pull_secrets),
        containers: vec![container(settings, key)],
        volumes: Some(volumes(settings, key)),
        ..PodSpec::default()
    }
}

fn container(settings: &BuilderSettings, key: &EnvironmentKey) -> Container {
    Container {
        name: ROLE_BUILDER.to_owned(),
        image: Some(settings.image.clone()),
        args: Some(args(settings, key)),
        env: Some(env(settings)),
        resources: Some(resources()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                add: None,
            }),
            read_only_root_filesystem: Some(true),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(
            mounts(settings)
                .into_iter()
                .map(|(name, path, is_read_only)| VolumeMount {
                    name: name.to_owned(),
                    mount_path: path.to_owned(),
                    read_only: is_read_only.then_some(true),
                    ..VolumeMount::default()
                })
                .collect(),
        ),
        ..Container::default()
    }
}

/// The command line of `knack packages build`.
fn args(settings: &BuilderSettings, key: &EnvironmentKey) -> Vec<String> {
    let mut args = vec![
        "packages".to_owned(),
        "build".to_owned(),
        format!("--key={key}"),
        format!("--request={REQUEST_FOLDER}/{REQUEST_FILE}"),
        format!("--repository={}", settings.repository),
        format!("--store={STORE}"),
    ];
    let bases = settings.base_repositories.iter();
    args.extend(bases.map(|name| format!("--base-repository={name}")));
    if settings.only_base_repositories {
        args.push("--only-base-repositories".to_owned());
    }
    if settings.registry_secret.is_some() {
        args.push(format!(
            "--registry-credentials={REGISTRY_CREDENTIALS}/.dockerconfigjson"
        ));
    }
    if settings.authorities.is_some() {
        args.push(format!("--ca-file={REQUEST_FOLDER}/{AUTHORITIES_FILE}"));
    }
    args.extend(settings.plain_http.then(|| "--plain-http".to_owned()));
    args
}

/// The indexes and their credentials, for uv and npm.
fn env(settings: &BuilderSettings) -> Vec<EnvVar> {
    let mut env = vec![("HOME", WORK.to_owned()), ("TMPDIR", WORK.to_owned())];
    env.extend(settings.index.iter().map(|index| ("UV_DEFAULT_INDEX", index.clone())));
    let netrc = settings
        .index_secret
        .as_ref()
        .map(|_| format!("{INDEX_CREDENTIALS}/netrc"));
    env.extend(netrc.map(|path| ("NETRC", path)));
    let npm = settings.npm_index.iter();
    env.extend(npm.map(|index| (NPM_INDEX_VARIABLE, index.clone())));
    let npmrc = settings.npm_index_secret.as_ref();
    env.extend(npmrc.map(|_| (NPMRC_VARIABLE, format!("{NPM_CREDENTIALS}/npmrc"))));
    let env = env.into_iter().map(|(name, value)| EnvVar {
        name: name.to_owned(),
        value: Some(value),
        value_from: None,
    });
    env.collect()
}

fn resources() -> ResourceRequirements {
    let quantities = |list: [(&str, &str); 3]| {
        Some(
            list.map(|(name, value)| (name.to_owned(), Quantity(value.to_owned())))
                .into(),
        )
    };
    ResourceRequirements {
        requests: quantities([("cpu", "100m"), ("memory", "256Mi"), ("ephemeral-storage", "1Gi")]),
        limits: quantities([("cpu", "2"), ("memory", "2Gi"), ("ephemeral-storage", "8Gi")]),
        ..ResourceRequirements::default()
    }
}

fn mounts(settings: &BuilderSettings) -> Vec<(&'static str, &'static str, bool)> {
    let mut mounts = vec![
        ("store", STORE_VOLUME_PATH, false),
        ("work", WORK, false),
        ("request", REQUEST_FOLDER, true),
    ];
    mounts.extend(secrets(settings).map(|(volume, _, path)| (volume, path, true)));
    mounts
}

/// The Secrets of a builder: the volume of each, its name, and where it is.
fn secrets(settings: &BuilderSettings) -> impl Iterator<Item = (&'static str, &String, &'static str)> {
    let all = [
        ("index", &settings.index_secret, INDEX_CREDENTIALS),
        ("npm", &settings.npm_index_secret, NPM_CREDENTIALS),
        ("registry", &settings.registry_secret, REGISTRY_CREDENTIALS),
    ];
    all.into_iter()
        .filter_map(|(volume, secret, path)| Some((volume, secret.as_ref()?, path)))
}

fn volumes(settings: &BuilderSettings, key: &EnvironmentKey) -> Vec<Volume> {
    let empty = |name: &str, size: &str| Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: None,
            size_limit: Some(Quantity(size.to_owned())),
        }),
        ..Volume::default()
    };
    let secret = |name: &str, secret: &String| Volume {
        name: name.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.clone()),
            default_mode: Some(0o440),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    };
    let mut volumes = vec![
        empty("store", STORE_SIZE),
        empty("work", WORK_SIZE),
        Volume {
            name: "request".to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: name(key),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        },
    ];
    volumes.extend(secrets(settings).map(|(volume, name, _)| secret(volume, name)));
    volumes
}

/// The compressed request, as its ConfigMap holds it.
pub(super) fn compressed(request: &Request) -> Vec<u8> {
    // Serializing strings and writing to memory do not fail.
    let text = serde_json::to_vec(request).unwrap_or_default();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    let _ = gzip.write_all(&text);
    gzip.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> BuilderSettings {
        BuilderSettings {
            namespace: "knack-builds".to_owned(),
            image: "r.example/knack/packages-builder@sha256:00".to_owned(),
            service_account: "knack-builder".to_owned(),
            repository: "r.example/team/environments".to_owned(),
            base_repositories: vec!["r.example/knack/sandbox-python".to_owned()],
            only_base_repositories: true,
            index: Some("https://mirror.example/simple".to_owned()),
            index_secret: Some("index".to_owned()),
            npm_index: Some("https://mirror.example/npm/".to_owned()),
            npm_index_secret: Some("npm".to_owned()),
            registry_secret: Some("registry".to_owned()),
            image_pull_secrets: vec!["pull".to_owned()],
            plain_http: false,
            authorities: None,
        }
    }

    /// The tests of the chart ask an API server with this golden: namespace, quota and policies are written for it.
    #[test]
    fn a_builder_has_no_token_and_no_more_than_it_needs() {
        let key = "0123456789abcdef0123456789abcdef".into();
        let yaml = serde_saphyr::to_string(&job(&settings(), &key)).unwrap();
        insta::with_settings!({snapshot_path => "golden", prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_snapshot!("builder_job", yaml);
        });
    }

    #[test]
    fn what_is_not_set_is_not_mounted() {
        let bare = BuilderSettings {
            index: None,
            index_secret: None,
            npm_index: None,
            npm_index_secret: None,
            registry_secret: None,
            plain_http: true,
            ..settings()
        };
        let pod = job(&bare, &"k".into()).spec.unwrap().template.spec.unwrap();
        let names: Vec<String> = pod.volumes.unwrap().into_iter().map(|volume| volume.name).collect();
        assert_eq!(names, ["store", "work", "request"]);
        let container = &pod.containers[0];
        assert_eq!(container.volume_mounts.as_ref().unwrap().len(), 3);
        let env: Vec<&str> = container.env.iter().flatten().map(|env| env.name.as_str()).collect();
        assert_eq!(env, ["HOME", "TMPDIR"]);
        assert_eq!(container.args.as_ref().unwrap().last().unwrap(), "--plain-http");
        assert_eq!(request(&bare, &"k".into(), "u", Vec::new()).data, None);
    }

    #[test]
    fn authorities_go_with_the_request() {
        let with = BuilderSettings {
            authorities: Some("pem".to_owned()),
            ..settings()
        };
        let asked = request(&with, &"k".into(), "u", Vec::new());
        assert_eq!(asked.data, Some([("ca.crt".to_owned(), "pem".to_owned())].into()));
        let pod = job(&with, &"k".into()).spec.unwrap().template.spec.unwrap();
        let args = pod.containers[0].args.clone().unwrap();
        assert!(args.contains(&"--ca-file=/request/ca.crt".to_owned()), "{args:?}");
    }
}
