//! Tokens of ServiceAccounts.

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};

/// A token of a ServiceAccount, valid for 10 minutes.
pub async fn token(client: &Client, namespace: &str, account: &str, audience: &str) -> String {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec![audience.to_owned()],
            expiration_seconds: Some(600),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let parameters = PostParams::default();
    let answer = api.create_token_request(account, &parameters, &request);
    answer.await.unwrap().status.unwrap().token
}
