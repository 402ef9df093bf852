//! The ServiceAccount of this process: what the objects go with that belong to the release as a whole.

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, UserInfo};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PostParams;
use kube::{Api, Client};
use tracing::warn;

use crate::api_call::{CALL_TIMEOUT, within};

/// The account as an owner, if this process has one in `namespace`. A release makes its account and deletes it, and with it
/// go Lease, Secret and ConfigMap of the installation, which no chart could delete since no chart made them.
pub(super) async fn owner(client: &Client, namespace: &str) -> Option<OwnerReference> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let (params, review) = (PostParams::default(), SelfSubjectReview::default());
    let asked = api.create(&params, &review);
    match within(CALL_TIMEOUT, asked).await {
        Ok(review) => reference(&review.status?.user_info?, namespace),
        Err(error) => {
            warn!(%error, "the controller's ServiceAccount cannot be determined: the Lease, Secrets and ConfigMaps of the installation get no owner and remain after it is uninstalled");
            None
        }
    }
}

fn reference(user: &UserInfo, namespace: &str) -> Option<OwnerReference> {
    let account = user.username.as_deref()?.strip_prefix("system:serviceaccount:")?;
    let (own, name) = account.split_once(':')?;
    (own == namespace).then(|| {
        Some(OwnerReference {
            api_version: "v1".to_owned(),
            kind: "ServiceAccount".to_owned(),
            name: name.to_owned(),
            uid: user.uid.clone().filter(|uid| !uid.is_empty())?,
            controller: None,
            block_owner_deletion: None,
        })
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_of_the_own_namespace_is_an_owner() {
        for (username, uid, expected) in [
            (
                "system:serviceaccount:home:knack-controller",
                Some("u"),
                Some("knack-controller"),
            ),
            ("system:serviceaccount:elsewhere:knack-controller", Some("u"), None),
            ("system:serviceaccount:home:knack-controller", None, None),
            ("admin", Some("u"), None),
        ] {
            let user = UserInfo {
                username: Some(username.to_owned()),
                uid: uid.map(str::to_owned),
                ..UserInfo::default()
            };
            let owner = reference(&user, "home");
            assert_eq!(owner.map(|owner| owner.name).as_deref(), expected, "{username} {uid:?}");
        }
    }
}
