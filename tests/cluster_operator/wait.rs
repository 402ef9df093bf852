//! Waiting for what a watch will bring, within a bound.

use std::fmt::Debug;
use std::time::Duration;

use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// A reconcile takes milliseconds; a busy machine of two cores takes its time.
pub(crate) const BOUND: Duration = cluster_support::STILL;
/// Between two watches.
const AGAIN: Duration = Duration::from_millis(500);

/// The object once a condition holds; fails with the object as it is after the bound.
pub(crate) async fn until<K>(api: &Api<K>, name: &str, what: &str, condition: impl Condition<K>) -> Option<K>
where
    K: Resource + Clone + Debug + Send + DeserializeOwned + serde::Serialize + 'static,
{
    let matches = |object: Option<&K>| condition.matches_object(object);
    let watched = async {
        loop {
            match await_condition(api.clone(), name, matches).await {
                Ok(object) => return object,
                // A watch that is too old, a list that a busy API server gives up: the next one begins with what is there.
                Err(error) => cluster_support::progress(format!("{name}: {error}")),
            }
            tokio::time::sleep(AGAIN).await;
        }
    };
    if let Ok(object) = tokio::time::timeout(BOUND, watched).await {
        cluster_support::progress(format!("{name}: {what}"));
        return object;
    }
    let now = api.get_opt(name).await.unwrap();
    panic!(
        "{name}: {what} did not come; it is {}",
        serde_json::to_string_pretty(&now).unwrap()
    );
}
