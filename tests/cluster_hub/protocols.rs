//! Gateways of several protocol ranges at one hub at once, as while a cluster is upgraded: each gets what it can understand.

use cluster_support::{progress, run};
use knack_api::Skill;
use knack_hub_api::client::{HubClient, HubError};
use knack_hub_api::{CatalogLine, HubRefusal, PROTOCOL, PROTOCOL_MIN, ProtocolRange, RefusalCode, SkillLine};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::answer::printed;
use super::support::{Installation, fresh_id, patiently};

/// Gateways of the oldest protocol that is understood, of this release, of the next one, and of one after it.
const OLDER: ProtocolRange = ProtocolRange::new(PROTOCOL_MIN, PROTOCOL_MIN);
const SAME: ProtocolRange = ProtocolRange::new(PROTOCOL_MIN, PROTOCOL);
const NEWER: ProtocolRange = ProtocolRange::new(PROTOCOL, PROTOCOL + 1);
const TOO_NEW: ProtocolRange = ProtocolRange::new(PROTOCOL + 1, PROTOCOL + 2);

/// A Skill with a declared tool, which is posted otherwise by protocol 1.
async fn apply(installation: &Installation) {
    let document = "---\nname: steady\ndescription: A skill of a test.\nmode: llm\nactivation: Listed\n\
                    tools:\n  - {name: tell, description: d, command: [python3, tell.py]}\n---\nx\n";
    let body = json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": "steady"},
        "spec": {
            "source": {"inline": {"files": {"SKILL.md": document, "tell.py": "print('told')"}}},
            "sandbox": {"timeoutSeconds": 60},
        },
    });
    let api: Api<Skill> = Api::namespaced(installation.client.clone(), &installation.tenants[0]);
    let params = PatchParams::apply("hub-test").force();
    api.patch("steady", &params, &Patch::Apply(&body)).await.unwrap();
}

/// A run of the tool as gateways post it that write `protocol`.
fn post(installation: &Installation, skill: &SkillLine, protocol: u32) -> Value {
    let mut post = installation.post(skill, &fresh_id().to_string(), &["python3", "tell.py"]);
    post["protocol"] = json!(protocol);
    if protocol == 1 {
        post["working_directory"] = json!({"skill": skill.name});
    } else {
        post["program"] = json!({"kind": "tool", "name": "tell", "arguments": {}});
    }
    post
}

/// What a gateway that speaks `range` gets for a run: what the tool printed, or why there is no run. It writes its newest
/// protocol, and after a refusal the hub's, if it speaks that.
async fn told(
    installation: &Installation,
    client: &HubClient,
    skill: &SkillLine,
    range: ProtocolRange,
) -> Result<String, HubRefusal> {
    let mut stated = range.max;
    loop {
        let body = bytes::Bytes::from(post(installation, skill, stated).to_string());
        let posted = patiently(async || client.hub().post_stream("/v1/executions", body.clone()).await).await;
        let refused = match posted {
            Ok(mut lines) => return Ok(printed(&mut lines).await),
            Err(HubError::Refused(refusal)) => refusal,
            Err(other) => panic!("{other:?}"),
        };
        progress(format!("protocol {stated}: {refused}"));
        let lower = |protocol: &u32| *protocol < stated && range.accepts(*protocol);
        match refused.protocol.filter(lower) {
            Some(protocol) => stated = protocol,
            None => return Err(refused),
        }
    }
}

/// Whether a gateway that speaks `range` follows the catalog, by the hub's greeting.
async fn follows(installation: &Installation, client: &HubClient, range: ProtocolRange) -> bool {
    let mut lines = patiently(async || client.hub().watch(&installation.catalog()).await)
        .await
        .unwrap();
    let Some(CatalogLine::Hello(hello)) = lines.next_value::<CatalogLine>().await.unwrap() else {
        panic!("a catalog begins with a greeting");
    };
    range.meets(ProtocolRange::new(
        hello.protocol_min.unwrap_or(hello.protocol),
        hello.protocol,
    ))
}

#[test]
fn gateways_of_several_protocols_are_served_at_once() {
    run("gateways_of_several_protocols_are_served_at_once", async |cluster| {
        let installation = Installation::start(cluster, 1, json!({})).await;
        let client = installation.tenant(0).await;
        apply(&installation).await;
        let skill = installation.served(&client, "steady").await;
        let gets = |range| told(&installation, &client, &skill, range);
        let (older, same, newer, too_new) = tokio::join!(gets(OLDER), gets(SAME), gets(NEWER), gets(TOO_NEW));
        for (range, got) in [(OLDER, older), (SAME, same), (NEWER, newer)] {
            assert_eq!(
                got.unwrap_or_else(|refused| panic!("{range}: {refused}")),
                "told\n",
                "{range}"
            );
            assert!(follows(&installation, &client, range).await, "{range}");
        }
        let refused = too_new.unwrap_err();
        assert_eq!((refused.code, refused.protocol), (RefusalCode::Invalid, Some(PROTOCOL)));
        let said = format!(
            "understands protocol {SAME}, the request is of protocol {}; upgrade the older one",
            TOO_NEW.max
        );
        assert!(refused.message.contains(&said), "{refused}");
        assert!(!follows(&installation, &client, TOO_NEW).await);
    });
}
