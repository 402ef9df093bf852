//! Waiting for what a watch will bring, within a bound.

use std::fmt::Debug;
use std::time::Duration;

use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// A reconcile takes milliseconds; a busy machine of two cores takes its time.
pub(crate) const BOUND: Duration = cluster_support::STILL;

/// The object once a condition holds; fails with the object as it is after the bound.
pub(crate) async fn until<K>(api: &Api<K>, name: &str, what: &str, condition: impl Condition<K>) -> Option<K>
where
    K: Resource + Clone + Debug + Send + DeserializeOwned + serde::Serialize + 'static,
{
    let waited = tokio::time::timeout(BOUND, await_condition(api.clone(), name, condition)).await;
    if let Ok(result) = waited {
        cluster_support::progress(format!("{name}: {what}"));
        return result.unwrap();
    }
    let now = api.get_opt(name).await.unwrap();
    panic!(
        "{name}: {what} did not come; it is {}",
        serde_json::to_string_pretty(&now).unwrap()
    );
}
