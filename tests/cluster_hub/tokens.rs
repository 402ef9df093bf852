//! Who is let in.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cluster_support::run;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use knack_hub_api::client::HubError;
use knack_hub_api::{ClientAuthorization, ClientCheck, RefusalCode, Version};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::support::{Installation, SOON, patiently};

/// How often the API server is asked for what it tells nobody.
const POLL: Duration = Duration::from_millis(200);

/// A token with other claims: its signature no longer fits.
fn forged(token: &str, change: impl Fn(&mut Value)) -> String {
    let parts: Vec<&str> = token.split('.').collect();
    let mut claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
    change(&mut claims);
    format!(
        "{}.{}.{}",
        parts[0],
        URL_SAFE_NO_PAD.encode(claims.to_string()),
        parts[2]
    )
}

async fn refusal(installation: &Installation, token: &str) -> (RefusalCode, String) {
    let client = installation.hub_client(token);
    match patiently(async || client.hub().get::<Version>("/v1/version").await).await {
        Err(HubError::Refused(refusal)) => (refusal.code, refusal.message),
        other => panic!("{other:?}"),
    }
}

/// Waits until the API server, which answers from what its watches have told it, knows that the account of a token is gone.
async fn until_refused(installation: &Installation, token: &str) {
    let reviews: Api<TokenReview> = Api::all(installation.client.clone());
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: Some(token.to_owned()),
            audiences: Some(vec!["knack".to_owned()]),
        },
        ..TokenReview::default()
    };
    let refused = async {
        loop {
            let told = reviews.create(&PostParams::default(), &review).await.unwrap();
            if told.status.and_then(|status| status.authenticated) != Some(true) {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(SOON, refused)
        .await
        .expect("the API server refuses the token of a deleted account");
}

#[test]
fn only_a_genuine_token_for_the_hub_is_let_in_and_the_others_hear_why() {
    run(
        "only_a_genuine_token_for_the_hub_is_let_in_and_the_others_hear_why",
        async |cluster| {
            let installation = Installation::start(cluster, 1, json!({})).await;
            let tenant = installation.tenants[0].name().to_owned();
            let good = installation.token(&tenant, "default", "knack").await;
            let genuine = installation.hub_client(&good);
            let version = patiently(async || genuine.hub().get::<Version>("/v1/version").await).await;
            assert!(version.is_ok(), "{version:?}");

            let accounts: Api<ServiceAccount> = Api::namespaced(installation.client.clone(), &tenant);
            let mut gone = ServiceAccount::default();
            gone.metadata.name = Some("gone".to_owned());
            accounts.create(&PostParams::default(), &gone).await.unwrap();
            let of_gone = installation.token(&tenant, "gone", "knack").await;
            accounts
                .delete("gone", &kube::api::DeleteParams::default())
                .await
                .unwrap();
            until_refused(&installation, &of_gone).await;

            let other_audience = installation
                .token(&tenant, "default", "https://kubernetes.default.svc.cluster.local")
                .await;
            let of_client = installation.token(&tenant, "default", "knack-gateway").await;
            for (token, word) in [
                (other_audience, "audience"),
                (of_client.clone(), "audience"),
                (forged(&good, |claims| claims["exp"] = json!(1)), "expired"),
                (
                    forged(&good, |claims| {
                        claims["sub"] = json!("system:serviceaccount:kube-system:default");
                    }),
                    "not valid",
                ),
                (
                    forged(&of_client, |claims| claims["aud"] = json!(["knack"])),
                    "not valid",
                ),
                (of_gone, "not valid"),
                ("sk-not-a-token".to_owned(), "not a ServiceAccount token"),
            ] {
                let (code, message) = refusal(&installation, &token).await;
                assert_eq!(code, RefusalCode::Unauthenticated, "{message}");
                assert!(message.contains(word), "{message}");
                assert!(!message.contains(&token[token.len() - 12..]), "{message}");
            }

            // Who is known is not yet allowed: the release's own namespace is no tenant.
            let stranger = installation.hub_client(&installation.token(&installation.system, "default", "knack").await);
            match patiently(async || stranger.hub().watch(&installation.catalog()).await).await {
                Err(HubError::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::Forbidden),
                other => panic!("{other:?}"),
            }

            // A gateway asks the hub who its client is; a token for the hub itself is not one for gateways.
            let gateway = installation.hub_client(&good);
            let ask = async |token: String| {
                let check = ClientCheck {
                    runtime: installation.runtime(),
                    token,
                };
                patiently(async || {
                    gateway
                        .at(None)
                        .post::<ClientAuthorization>("/v1/clients", &check)
                        .await
                })
                .await
                .unwrap()
            };
            let authorization = ask(of_client).await;
            assert!(authorization.allowed && authorization.client.unwrap().starts_with(&format!("{tenant}/default/")));
            assert!(!ask(good.clone()).await.allowed);
            let stranger = ask(installation
                .token(&installation.system, "default", "knack-gateway")
                .await)
            .await;
            assert!(!stranger.allowed && stranger.reason.unwrap().contains("may not use"));
        },
    );
}
