//! An image with one more layer. Pure.

use serde_json::{Value, json};

use super::layer::Layer;

/// Platforms of an image that an error names.
const PLATFORMS_TOLD: usize = 10;
/// Longest name of a system or an architecture that it shows.
const PLATFORM_WORD_MAX: usize = 32;

/// An image by name and digest: `registry/repository@sha256:…`; a tag is taken too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Host and port.
    pub registry: String,
    /// The repository there.
    pub repository: String,
    /// Digest, or tag.
    pub version: String,
}

/// The host that serves the images of Docker Hub.
const DOCKER_HUB: &str = "registry-1.docker.io";
/// Other names of it: in images, and in the credentials that `docker login` and `kubectl create secret docker-registry` write.
const DOCKER_HUB_NAMES: [&str; 2] = ["docker.io", "index.docker.io"];

/// The host that serves a registry of this name.
pub(super) fn serving_host(registry: &str) -> &str {
    if DOCKER_HUB_NAMES.contains(&registry) {
        DOCKER_HUB
    } else {
        registry
    }
}

impl Reference {
    /// Reads a reference as nodes do: a first part without dot, colon and `localhost` is a repository of docker.io, and one without
    /// any slash there is one of `library`.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, digest) = text
            .split_once('@')
            .map_or((text, None), |(name, digest)| (name, Some(digest)));
        let is_host = |host: &str| host.contains(['.', ':']) || host == "localhost";
        let (registry, rest) = match name.split_once('/') {
            Some((host, rest)) if is_host(host) => (serving_host(host), rest),
            _ => (DOCKER_HUB, name),
        };
        let (repository, tag) = rest
            .rsplit_once(':')
            .map_or((rest, None), |(name, tag)| (name, Some(tag)));
        let repository = if registry == DOCKER_HUB && !repository.contains('/') && !repository.is_empty() {
            format!("library/{repository}")
        } else {
            repository.to_owned()
        };
        let is_plain = !repository.is_empty()
            && repository
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
            && !repository
                .split('/')
                .any(|part| part.is_empty() || part == "." || part == "..");
        is_plain.then(|| Self {
            registry: registry.to_owned(),
            repository,
            version: digest.or(tag).unwrap_or("latest").to_owned(),
        })
    }
}

impl Reference {
    /// Whether it is of one of these repositories, each as `registry/repository`.
    pub(super) fn is_of(&self, repositories: &[String]) -> bool {
        let mut listed = repositories.iter().filter_map(|name| Self::parse(name));
        listed.any(|listed| (&listed.registry, &listed.repository) == (&self.registry, &self.repository))
    }
}

/// Hex digits of [`repository_mark`]: thousands of images have one each, and installations list a dozen repositories.
const MARK_DIGITS: usize = 8;

/// A short word for the repository of an image: equal for all images of it, however it is written. Empty for what is no image.
pub(super) fn repository_mark(image: &str) -> String {
    let mark = |of: Reference| {
        let mut digest = knack_skill::digest::sha256(format!("{}/{}", of.registry, of.repository));
        digest.truncate(MARK_DIGITS);
        digest
    };
    Reference::parse(image).map(mark).unwrap_or_default()
}

/// The manifest of a platform in an index; `None`: it has none.
pub(super) fn of_platform<'a>(index: &'a Value, architecture: &str) -> Option<&'a str> {
    let manifests = index.get("manifests")?.as_array()?;
    let is_of = |manifest: &&Value| {
        let platform = &manifest["platform"];
        platform["os"] == "linux" && platform["architecture"] == architecture
    };
    manifests.iter().find(is_of)?.get("digest")?.as_str()
}

/// The platforms in an index, as `os/architecture`. Manifests that are no image, such as attestations, have the platform `unknown`.
pub(super) fn platforms(index: &Value) -> Vec<String> {
    let manifests = index.get("manifests").and_then(Value::as_array);
    let platforms = manifests
        .into_iter()
        .flatten()
        .take(PLATFORMS_TOLD)
        .filter_map(|manifest| {
            let of = |key: &str| platform_word(&manifest["platform"][key]).filter(|word| *word != "unknown");
            Some(format!("{}/{}", of("os")?, of("architecture")?))
        });
    platforms.collect()
}

/// A word for a system or an architecture, which an error may show; a registry may send any text.
pub(super) fn platform_word(value: &Value) -> Option<&str> {
    let is_plain = |word: &&str| {
        (1..=PLATFORM_WORD_MAX).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    value.as_str().filter(is_plain)
}

/// Whether a manifest lists manifests of several platforms.
pub(super) fn is_index(manifest: &Value) -> bool {
    manifest.get("manifests").is_some_and(Value::is_array)
}

/// What an image is made of besides its layers.
#[derive(Debug)]
pub(super) struct ImageDocuments {
    pub(super) config: Value,
    pub(super) manifest: Value,
}

/// A base with a layer on top; the manifest's `config` is for the caller to fill in.
///
/// Errors: the base is no image, or of a form that is not known.
pub(super) fn with_layer(config: &Value, manifest: &Value, layer: &Layer) -> Result<ImageDocuments, String> {
    let (mut config, mut manifest) = (config.clone(), manifest.clone());
    let diff_ids = config.pointer_mut("/rootfs/diff_ids").and_then(Value::as_array_mut);
    let diff_ids = diff_ids.ok_or("its config lists no layers")?;
    let layers = manifest.get_mut("layers").and_then(Value::as_array_mut);
    let layers = layers.ok_or("its manifest lists no layers")?;
    if diff_ids.len() != layers.len() {
        return Err("its config and its manifest list different layers".to_owned());
    }
    let is_docker = layers.iter().any(|layer| {
        layer["mediaType"]
            .as_str()
            .is_some_and(|kind| kind.starts_with("application/vnd.docker."))
    });
    let kind = if is_docker {
        "application/vnd.docker.image.rootfs.diff.tar.gzip"
    } else {
        "application/vnd.oci.image.layer.v1.tar+gzip"
    };
    diff_ids.push(json!(layer.diff_id));
    layers.push(json!({"mediaType": kind, "digest": layer.digest, "size": layer.size}));
    if let Some(history) = config.get_mut("history").and_then(Value::as_array_mut) {
        history.push(json!({"created_by": "knack packages build"}));
    }
    Ok(ImageDocuments { config, manifest })
}

/// The value of an image's label; `None`: it has none.
pub(super) fn label_of<'a>(config: &'a Value, label: &str) -> Option<&'a str> {
    config.pointer("/config/Labels")?.get(label)?.as_str()
}

/// Label of sandbox images with Python: interpreter and distribution, equal where environments of one can be used in the other.
pub(super) const PYTHON_LABEL: &str = "dev.knack.python";

/// Label of sandbox images with Node: the distribution, whose C library programs in packages of Node are for.
pub(super) const NODE_LABEL: &str = "dev.knack.node";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_as_nodes_read_them() {
        for (text, expected) in [
            (
                "r.example:5000/a/b@sha256:1",
                Some(("r.example:5000", "a/b", "sha256:1")),
            ),
            ("r.example/a/b:1.2@sha256:1", Some(("r.example", "a/b", "sha256:1"))),
            ("10.99.0.1:5000/a:dev", Some(("10.99.0.1:5000", "a", "dev"))),
            ("localhost/a", Some(("localhost", "a", "latest"))),
            ("debian:12", Some(("registry-1.docker.io", "library/debian", "12"))),
            ("team/image", Some(("registry-1.docker.io", "team/image", "latest"))),
            (
                "docker.io/team/image:1",
                Some(("registry-1.docker.io", "team/image", "1")),
            ),
            (
                "docker.io/debian",
                Some(("registry-1.docker.io", "library/debian", "latest")),
            ),
            (
                "index.docker.io/team/image",
                Some(("registry-1.docker.io", "team/image", "latest")),
            ),
            ("docker.io/", None),
            ("r.example/../v2", None),
            ("r.example/", None),
            ("r.example/a b", None),
        ] {
            let read = Reference::parse(text);
            let read = read
                .as_ref()
                .map(|read| (read.registry.as_str(), read.repository.as_str(), read.version.as_str()));
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn a_layer_comes_on_top_and_nothing_else_changes() {
        let layer = Layer {
            digest: "sha256:l".to_owned(),
            diff_id: "sha256:d".to_owned(),
            size: 7,
        };
        let config = json!({"architecture": "amd64", "config": {"Entrypoint": ["/x"]}, "rootfs": {"diff_ids": ["sha256:a"]}, "history": [{}]});
        for (kind, expected) in [
            (
                "application/vnd.oci.image.layer.v1.tar",
                "application/vnd.oci.image.layer.v1.tar+gzip",
            ),
            (
                "application/vnd.docker.image.rootfs.diff.tar.gzip",
                "application/vnd.docker.image.rootfs.diff.tar.gzip",
            ),
        ] {
            let manifest =
                json!({"layers": [{"mediaType": kind, "digest": "sha256:z", "size": 1}], "annotations": {"a": "b"}});
            let ImageDocuments {
                config: new_config,
                manifest: new,
            } = with_layer(&config, &manifest, &layer).unwrap();
            assert_eq!(
                new["layers"][1],
                json!({"mediaType": expected, "digest": "sha256:l", "size": 7})
            );
            assert_eq!(
                (&new["layers"][0], &new["annotations"]),
                (&manifest["layers"][0], &manifest["annotations"])
            );
            assert_eq!(new_config["rootfs"]["diff_ids"], json!(["sha256:a", "sha256:d"]));
            assert_eq!(new_config["config"], config["config"]);
            assert_eq!(new_config["history"].as_array().unwrap().len(), 2);
        }
        for (config, manifest) in [
            (json!({}), json!({"layers": []})),
            (config.clone(), json!({})),
            (config, json!({"layers": []})),
        ] {
            assert!(with_layer(&config, &manifest, &layer).is_err());
        }
    }

    #[test]
    fn an_index_is_read_for_one_platform() {
        let index = json!({"manifests": [
            {"digest": "sha256:arm", "platform": {"os": "linux", "architecture": "arm64"}},
            {"digest": "sha256:amd", "platform": {"os": "linux", "architecture": "amd64"}},
        ]});
        assert!(is_index(&index) && !is_index(&json!({"layers": []})));
        assert_eq!(of_platform(&index, "amd64"), Some("sha256:amd"));
        assert_eq!(of_platform(&index, "s390x"), None);
    }
}
