//! The webhook's certificate and parameters, read again while it runs.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use k8s_openapi::api::core::v1::Secret;
use knack_injection::Parameters;
use knack_vocabulary::SECRET_WEBHOOK_TLS;
use kube::{Api, Client};
use rustls::ServerConfig;
use tracing::{info, warn};

use crate::api_call::call;
use crate::certificates::{ServedCertificate, certified_key};
use crate::controller::settings::WebhookSettings;

/// How often Secret and file are read. A new certificate serves an hour after its authority was published; only one that
/// replaces a lost one is needed at once, and until then the API server does without the webhook.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Certificate and parameters, as they were last read.
#[derive(Debug, Default)]
pub(super) struct Followed {
    certificate: Arc<ServedCertificate>,
    parameters: ArcSwapOption<Parameters>,
}

impl Followed {
    /// The injection's parameters; `None` until they could be read once.
    pub(super) fn parameters(&self) -> Option<Arc<Parameters>> {
        self.parameters.load_full()
    }

    /// Reads both once. What cannot be read stays as it was; the answer says why.
    pub(super) async fn refresh(&self, client: &Client, namespace: &str, settings: &WebhookSettings) -> Vec<String> {
        let certificate = self.read_certificate(client, namespace).await;
        let parameters = self.read_parameters(settings).await;
        [certificate.err(), parameters.err()].into_iter().flatten().collect()
    }

    /// Reads both again and again, and says once what is wrong.
    pub(super) async fn follow(&self, client: &Client, namespace: &str, settings: &WebhookSettings) {
        let mut logged = Vec::new();
        loop {
            let wrong = self.refresh(client, namespace, settings).await;
            if wrong != logged {
                for what in &wrong {
                    warn!(%what, "the webhook for sidecars is not up to date; retrying");
                }
                logged = wrong;
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    async fn read_certificate(&self, client: &Client, namespace: &str) -> Result<(), String> {
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let what = || format!("get Secret {namespace}/{SECRET_WEBHOOK_TLS}");
        let read = call(what, api.get_opt(SECRET_WEBHOOK_TLS)).await;
        let secret = read
            .map_err(|error| error.to_string())?
            .ok_or_else(|| format!("Secret {SECRET_WEBHOOK_TLS} not found; the leading replica creates it"))?;
        let part = |key: &str| {
            let data = secret.data.as_ref().and_then(|data| data.get(key));
            data.map(|bytes| bytes.0.as_slice()).unwrap_or_default()
        };
        let key = certified_key(part("tls.crt"), part("tls.key"))
            .map_err(|error| format!("Secret {SECRET_WEBHOOK_TLS}: {error}"))?;
        if self.certificate.replace(key) {
            info!("the webhook for sidecars has a new certificate");
        }
        Ok(())
    }

    async fn read_parameters(&self, settings: &WebhookSettings) -> Result<(), String> {
        let file = settings.parameters.as_path();
        let text = tokio::fs::read_to_string(file).await;
        let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
        let mut parameters = Parameters::parse(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        if let Some(image) = &settings.image {
            parameters.container.insert("image".to_owned(), image.as_str().into());
        }
        if self.parameters().is_none_or(|current| *current != parameters) {
            self.parameters.store(Some(Arc::new(parameters)));
        }
        Ok(())
    }

    /// The configuration of a TLS listener. API servers speak HTTP/2: one connection carries all of their calls.
    pub(super) fn server_config(&self) -> ServerConfig {
        self.certificate.server_config(&["h2", "http/1.1"])
    }
}

#[cfg(test)]
mod tests {
    use knack_injection::Parameters;

    use super::{Followed, WebhookSettings};

    #[tokio::test]
    async fn the_image_of_the_settings_wins_over_that_of_the_parameters() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("parameters.yaml");
        let defaults = Parameters::defaults().unwrap();
        std::fs::write(&file, serde_json::to_string(&defaults).unwrap()).unwrap();
        let in_file = defaults.container["image"].as_str().unwrap();
        let own = "registry.example.org/knack-gateway:1";
        for (image, expected) in [(None, in_file), (Some(own), own)] {
            let settings = WebhookSettings {
                listen: ([127, 0, 0, 1], 0).into(),
                configuration: String::new(),
                parameters: file.clone(),
                image: image.map(str::to_owned),
                names: Vec::new(),
            };
            let followed = Followed::default();
            followed.read_parameters(&settings).await.unwrap();
            let taken = followed.parameters().unwrap();
            assert_eq!(taken.container["image"], expected, "{image:?}");
            let without = |parameters: &Parameters| {
                let mut container = parameters.container.clone();
                container.remove("image");
                container
            };
            assert_eq!(without(&taken), without(&defaults), "nothing else is changed");
        }
    }
}
