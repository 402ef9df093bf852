//! The configuration of the clients of the API server in programs that watch it for as long as they run.

use std::time::Duration;

use anyhow::Context as _;
use kube::{Client, Config};

/// Server-side end of every watch, seconds. Load balancers drop idle ones, one at 240 s; a new request after 200 s notices it.
pub(crate) const WATCH_SECONDS: u32 = 200;

/// How long a connection with a request may bring nothing. It ends a list, or the head of a watch, that is never answered: that of
/// an API server whose machine is gone, after it has acknowledged the request. Nothing else would, since nothing is sent that could
/// fail. Longer than a watch without events, which the server ends, and than the watcher's own patience with its stream (5 s more).
/// The log of a run that writes nothing for so long is read again.
const READ_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 40);

/// What is wrong where no client can be made of a configuration.
pub(crate) const UNUSABLE: &str = "the cluster's address or credentials cannot be used";

/// The cluster of this process: a kubeconfig, or the ServiceAccount of its pod.
///
/// Errors: there is neither.
pub(crate) async fn configuration() -> anyhow::Result<Config> {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    let config = Config::infer()
        .await
        .context("no access to a cluster: neither a kubeconfig nor a pod's ServiceAccount")?;
    Ok(bounded(config))
}

/// A client of it. Errors: there is none, or it cannot be used.
pub(crate) async fn client() -> anyhow::Result<Client> {
    Client::try_from(configuration().await?).context(UNUSABLE)
}

/// A configuration by which no request waits for ever.
pub(crate) fn bounded(mut config: Config) -> Config {
    config.read_timeout = Some(READ_TIMEOUT);
    // From the request on: a connection may have been idle before it.
    config.reset_reader_on_write = true;
    config
}
