//! The providers of `knack gateway`, and the operator's keys for them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use knack_serving::tasks::Tasks;

use super::args::{ClientAuthMode, ServeArgs};
use super::sidecar::{is_sidecar, or_ignored};
use crate::providers::base_url::BaseUrl;
use crate::providers::provider::Api;
use crate::providers::provider_keys;
use crate::providers::upstream::{ProviderEndpoint, Upstreams};

/// What an address is that leads to this gateway: each call would come back to it until a bound ends it.
const OWN_ADDRESS: &str = "the address of this gateway itself; name the provider's";

/// Follows the folder of provider keys, if there is one, until it is dropped.
pub(super) fn rekey(args: &ServeArgs, upstreams: &Upstreams) -> Tasks {
    let mut tasks = Tasks::default();
    if let Some(folder) = args.provider_keys_dir.clone() {
        tasks.spawn("keys of providers", provider_keys::follow(folder, upstreams.clone()));
    }
    tasks
}

/// Keys of the operator are for known callers only (docs/design/decisions.md#keys-of-the-operator).
pub(super) fn check_exposure(args: &ServeArgs, bases: &BTreeMap<Api, ProviderEndpoint>) -> anyhow::Result<()> {
    let keyed: Vec<&str> = bases
        .iter()
        .filter(|(_, base)| base.key.is_some())
        .map(|(api, _)| api.as_str())
        .collect();
    if !keyed.is_empty() && args.client_auth == ClientAuthMode::None && !args.listen.ip().is_loopback() {
        bail!(
            "--provider-keys-dir holds a key for {}, and --listen {} is open to the network: anyone who reaches it could use the key; \
             set --client-auth token-review, or listen on loopback",
            keyed.join(", "),
            args.listen
        );
    }
    Ok(())
}

/// The addresses that are configured.
pub(super) struct ProviderAddresses {
    /// The base URL and the key of each API that has one.
    pub(super) bases: BTreeMap<Api, ProviderEndpoint>,
    /// APIs of a sidecar whose base URL cannot be read. What an application sends goes nowhere rather than to an address that
    /// nobody named.
    pub(super) unreadable: BTreeSet<Api>,
}

/// Reads the addresses and keys. Errors: a URL or a key that cannot be used.
pub(super) async fn configured(args: &ServeArgs) -> anyhow::Result<ProviderAddresses> {
    let mut keys = match &args.provider_keys_dir {
        Some(folder) => {
            let keys = provider_keys::read(folder).await;
            or_ignored("KNACK_PROVIDER_KEYS_DIR", keys, BTreeMap::new)?
        }
        None => BTreeMap::new(),
    };
    let (mut bases, mut unreadable) = (BTreeMap::new(), BTreeSet::new());
    for (api, flag) in [
        (Api::OpenAi, &args.upstream_openai),
        (Api::Anthropic, &args.upstream_anthropic),
        (Api::Gemini, &args.upstream_gemini),
    ] {
        let key = keys.remove(&api);
        if flag.is_none() && key.is_none() {
            continue;
        }
        let read = BaseUrl::parse(flag.as_deref().unwrap_or(api.default_url()));
        let elsewhere = read.and_then(|url| {
            if url.leads_to(args.listen) {
                Err(OWN_ADDRESS)
            } else {
                Ok(url)
            }
        });
        match elsewhere {
            Ok(url) => drop(bases.insert(api, ProviderEndpoint { url, key })),
            Err(error) if is_sidecar() => {
                let variable = api.as_str().to_uppercase();
                tracing::warn!("KNACK_UPSTREAM_{variable} is {error}: calls of that API are answered with 502");
                unreadable.insert(api);
            }
            Err(error) => bail!("--upstream-{}: {error}", api.as_str()),
        }
    }
    Ok(ProviderAddresses { bases, unreadable })
}
