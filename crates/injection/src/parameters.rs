//! The parameters of the sidecar: plain YAML, made by the chart.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The chart's defaults in the namespace `knack-system`; a test of the chart compares.
const DEFAULTS: &str = include_str!("parameters.yaml");

/// The sidecar, and how applications are led to it. The chart writes it as `parameters.yaml` into the ConfigMap
/// `knack-injection` of its namespace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Parameters {
    /// The sidecar, as a container of a pod, without resources.
    pub container: Map<String, Value>,
    /// The sidecar's resources.
    pub resources: Resources,
    /// Volumes that it mounts.
    pub volumes: Vec<Map<String, Value>>,
    /// Names of Secrets in the application's namespace, for its image.
    #[serde(default)]
    pub image_pull_secrets: Vec<String>,
    /// Ports of the pod that it listens on.
    pub ports: Vec<u16>,
    /// The APIs whose calls go through it.
    pub apis: Vec<Api>,
}

/// Resources of the sidecar, each a map of `cpu`, `memory` and `ephemeral-storage` to a quantity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Its requests, which the scheduler reserves. `ephemeral-storage` is used only in pods of which a container requests or limits
    /// it.
    pub requests: Map<String, Value>,
    /// Its limits. `cpu` is used only in pods whose containers all have a limit of CPU, `ephemeral-storage` only in those of which
    /// a container has a limit of it.
    pub limits: Map<String, Value>,
}

/// One API of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Api {
    /// Its word: openai, anthropic, gemini.
    pub name: String,
    /// Where applications find the sidecar.
    pub url: String,
    /// Variables by which SDKs get a base URL.
    pub variables: Vec<String>,
    /// Variable of the gateway with the base URL that the application had.
    pub upstream: String,
}

/// Why parameters cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ParametersError {
    /// Not the YAML of parameters.
    #[error("not the parameters of an injection: {0}")]
    Yaml(String),
    /// A container or volume without a name.
    #[error("{0}: a name is required")]
    Unnamed(&'static str),
}

impl Parameters {
    /// Reads YAML. Errors: what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, ParametersError> {
        let parameters: Self =
            serde_saphyr::from_str(text).map_err(|error| ParametersError::Yaml(error.to_string()))?;
        let named = |object: &Map<String, Value>| object.get("name").is_some_and(Value::is_string);
        if !named(&parameters.container) {
            return Err(ParametersError::Unnamed("container"));
        }
        if !parameters.volumes.iter().all(named) {
            return Err(ParametersError::Unnamed("volumes"));
        }
        Ok(parameters)
    }

    /// The parameters of an installation of this version with the chart's defaults in the namespace `knack-system`.
    pub fn defaults() -> Result<Self, ParametersError> {
        Self::parse(DEFAULTS)
    }

    /// The sidecar's name.
    pub fn name(&self) -> &str {
        self.container.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// Names of its volumes.
    pub(crate) fn volume_names(&self) -> impl Iterator<Item = &str> {
        self.volumes.iter().filter_map(|volume| volume.get("name")?.as_str())
    }

    /// Names of its volumes that are on the node.
    pub(crate) fn local_volumes(&self) -> impl Iterator<Item = &str> {
        let local = self.volumes.iter().filter(|volume| volume.contains_key("emptyDir"));
        local.filter_map(|volume| volume.get("name")?.as_str())
    }
}
