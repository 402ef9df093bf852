//! A namespace that belongs to one test.

use std::process::{Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace as Object, ServiceAccount};
use kube::api::{Api, PostParams};

/// The default ServiceAccount comes within some 20 ms; the bound is for a machine that does everything else too.
const SERVICE_ACCOUNT_TIMEOUT: Duration = crate::STILL;

/// How often a condition is asked for.
const POLL: Duration = Duration::from_millis(20);

/// A namespace of one test. Dropping it asks for its deletion and does not wait.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    kubectl: Command,
}

impl Namespace {
    pub(crate) async fn create(client: kube::Client, name: String, labels: &[(&str, &str)], kubectl: Command) -> Self {
        let mut object = Object::default();
        object.metadata.name = Some(name.clone());
        object.metadata.labels = Some(
            labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        );
        Api::<Object>::all(client.clone())
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        let namespace = Self { name, kubectl };
        let accounts: Api<ServiceAccount> = Api::namespaced(client, &namespace.name);
        // Pods are refused until it is there.
        tokio::time::timeout(SERVICE_ACCOUNT_TIMEOUT, async {
            while accounts.get_opt("default").await.unwrap().is_none() {
                tokio::time::sleep(POLL).await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("no default ServiceAccount in {}", namespace.name));
        namespace
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl std::ops::Deref for Namespace {
    type Target = str;

    fn deref(&self) -> &str {
        &self.name
    }
}

// A test that fails leaves nothing either.
impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self
            .kubectl
            .args(["delete", "namespace", &self.name, "--wait=false", "--ignore-not-found"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
    }
}
