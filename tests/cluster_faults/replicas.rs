//! Several replicas of the hub as processes.

use std::time::{Duration, Instant};

use cluster_support::Cluster;
use k8s_openapi::api::coordination::v1::Lease;
use knack_hub_api::client::{HubClient, HubError};
use knack_hub_api::{HubRefusal, RefusalCode};
use knack_vocabulary::ANNOTATION_ADDRESS;
use kube::Api;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::beside;
use super::calls::Calls;
use super::service::Service;
use super::support::{Installation, InstallationOptions, Process, SOON, free_port, fresh_id};

/// Replicas behind one Service.
pub(crate) struct Replicas<'w> {
    installation: &'w Installation,
    pub(crate) service: Service,
    alive: Vec<(String, Process)>,
    started: usize,
}

impl<'w> Replicas<'w> {
    pub(crate) async fn start(installation: &'w Installation, count: usize) -> Self {
        let mut replicas = Self {
            installation,
            service: Service::start().await,
            alive: Vec::new(),
            started: 0,
        };
        for _ in 0..count {
            replicas.add();
        }
        for (address, _) in &replicas.alive {
            installation.wait_for_hub_at(&format!("https://{address}")).await;
        }
        replicas
    }

    /// Another one, at an address of its own.
    pub(crate) fn add(&mut self) {
        let (name, port) = (format!("hub-{}", self.started), free_port());
        self.started += 1;
        let process = self.installation.replica(&name, port);
        self.alive.push((format!("127.0.0.1:{port}"), process));
        self.tell();
    }

    /// SIGKILL to one; returns when it is gone.
    pub(crate) fn kill(&mut self, address: &str) {
        let position = self.alive.iter().position(|(known, _)| known == address).unwrap();
        let (_, mut process) = self.alive.remove(position);
        process.kill();
        self.tell();
    }

    /// Halts one where it is, until it is resumed or killed.
    pub(crate) fn freeze(&self, address: &str) {
        self.of(address).signal(Signal::STOP);
    }

    /// Lets one go on after a freeze.
    pub(crate) fn resume(&self, address: &str) {
        self.of(address).signal(Signal::CONT);
    }

    fn of(&self, address: &str) -> &Process {
        let (_, process) = self.alive.iter().find(|(known, _)| known == address).unwrap();
        process
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.alive.iter().map(|(address, _)| address.clone()).collect()
    }

    fn tell(&self) {
        self.service.point_to(self.addresses());
    }

    /// The address of the living replica that holds the runtime's Lease.
    pub(crate) async fn owner(&self) -> Option<String> {
        let owner = owner(self.installation).await?;
        self.addresses().into_iter().find(|address| *address == owner)
    }

    /// Waits for an owner.
    pub(crate) async fn wait_for_owner(&self) -> String {
        tokio::time::timeout(SOON, async {
            loop {
                if let Some(owner) = self.owner().await {
                    return owner;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("the runtime has an owner")
    }
}

/// Who the runtime's Lease says owns it, by `host:port`.
pub(crate) async fn owner(installation: &Installation) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(installation.client.clone(), installation.run.name());
    let lease = leases.get_opt("knack-runtime-default").await.ok().flatten()?;
    let address = lease.metadata.annotations?.remove(ANNOTATION_ADDRESS)?;
    Some(address.strip_prefix("https://")?.to_owned())
}

/// Everything but a hub, for one tenant.
pub(crate) async fn install(cluster: &'static Cluster, spec: Value) -> Installation {
    let options = InstallationOptions {
        tenants: 1,
        spec,
        hub_names: vec!["127.0.0.1".to_owned()],
        hub_words: Vec::new(),
    };
    Installation::install(cluster, options).await
}

/// What a replica refuses a POST with. One that has just started takes it, until it has heard of the owner.
async fn refusal(client: &HubClient, post: &Value) -> HubRefusal {
    let refused = async {
        loop {
            match client
                .hub()
                .post_stream("/v1/executions", post.to_string().into())
                .await
            {
                Err(HubError::Refused(refusal)) if refusal.code == RefusalCode::NotOwner => return refusal,
                Ok(_) => {}
                // The replica, or the API server that it asks who calls, is busy.
                Err(error) => assert!(error.is_transient(), "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(SOON, refused)
        .await
        .expect("the replica hears of the owner")
}

/// One replica owns a runtime. The other names it with 421, a client follows, and when the owner dies the other takes over.
#[test]
fn the_other_replica_names_the_owner_and_follows_it() {
    beside("the_other_replica_names_the_owner_and_follows_it", async |cluster| {
        let installation = install(cluster, json!({})).await;
        let mut replicas = Replicas::start(&installation, 2).await;
        let owner = replicas.wait_for_owner().await;
        let other = replicas
            .addresses()
            .into_iter()
            .find(|address| *address != owner)
            .unwrap();
        let token = installation.token(&installation.tenants[0], "default", "knack").await;
        let at_other = installation.hub_client_at(&format!("https://{other}"), &token);
        let calls = Calls::new(&installation, at_other.clone()).await;

        let skill = installation.served(&at_other, "steady").await;
        let post = installation.post(&skill, &fresh_id().to_string(), &["python3", "-c", "print(1)"]);
        let refusal = refusal(&at_other, &post).await;
        assert_eq!(refusal.owner, Some(format!("https://{owner}")));
        assert!(!refusal.message.contains("127.0.0.1"), "{refusal}");
        // The word on the wire is HTTP's own.
        let plain = reqwest::Client::builder()
            .tls_danger_accept_invalid_certs(true)
            .build()
            .unwrap()
            .post(format!("https://{other}/v1/executions"))
            .bearer_auth(&token)
            .body(post.to_string());
        assert_eq!(plain.send().await.unwrap().status().as_u16(), 421);

        // A client that knows the other one only gets its result.
        let asked = Instant::now();
        assert_eq!(
            calls.text(calls.sleeper(0.0, "followed")).await,
            Ok("followed\n".to_owned())
        );
        let run = asked.elapsed();

        replicas.kill(&owner);
        let since = Instant::now();
        let outcome = tokio::time::timeout(SOON, calls.text(calls.sleeper(0.0, "taken over"))).await;
        assert_eq!(outcome.expect("bounded"), Ok("taken over\n".to_owned()));
        println!("an owner that was killed is followed after {:?}", since.elapsed());
        assert_eq!(replicas.owner().await, Some(other));
        // A Lease of 15 s, looks 3 s apart, the reading of the journals, and the run, which a busy machine may take longer for now.
        let within = Duration::from_secs(75) + 5 * run;
        assert!(since.elapsed() < within, "{:?} of {within:?}", since.elapsed());
    });
}
