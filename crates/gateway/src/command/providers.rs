//! The providers of `knack gateway`, and the operator's keys for them.

use std::collections::BTreeMap;

use anyhow::bail;
use tokio_util::task::AbortOnDropHandle;

use super::args::{ClientAuthMode, ServeArgs};
use crate::provider::Api;
use crate::provider_keys;
use crate::upstream::{Base, BaseUrl, Upstreams};

/// Follows the folder of provider keys, if there is one, until it is dropped.
pub(super) fn rekey(args: &ServeArgs, upstreams: &Upstreams) -> Option<AbortOnDropHandle<()>> {
    let folder = args.provider_keys_dir.clone()?;
    let following = provider_keys::follow(folder, upstreams.clone());
    Some(AbortOnDropHandle::new(tokio::spawn(following)))
}

/// Keys of the operator are for known callers only (docs/design/decisions.md#keys-of-the-operator).
pub(super) fn check_exposure(args: &ServeArgs, bases: &BTreeMap<Api, Base>) -> anyhow::Result<()> {
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

/// The base URL and the key of each API that is configured. Errors: a URL or a key that cannot be used.
pub(super) async fn bases(args: &ServeArgs) -> anyhow::Result<BTreeMap<Api, Base>> {
    let mut keys = match &args.provider_keys_dir {
        Some(folder) => provider_keys::read(folder).await?,
        None => BTreeMap::new(),
    };
    let mut bases = BTreeMap::new();
    for (api, flag) in [
        (Api::OpenAi, &args.upstream_openai),
        (Api::Anthropic, &args.upstream_anthropic),
        (Api::Gemini, &args.upstream_gemini),
    ] {
        let key = keys.remove(&api);
        if flag.is_none() && key.is_none() {
            continue;
        }
        let url = BaseUrl::parse(flag.as_deref().unwrap_or(api.default_url()))
            .map_err(|error| anyhow::anyhow!("--upstream-{}: {error}", api.as_str()))?;
        bases.insert(api, Base { url, key });
    }
    Ok(bases)
}
