//! Connections to registries: to those that an administrator names wherever they are, and to those that a SkillRuntime names by its
//! image at public addresses alone, as archives of Skills are fetched.

use std::time::Duration;

use knack_egress::{AddressRefusal, Guard};
use knack_trust::Roots;
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};

use super::credentials::RegistryError;
use super::image::Reference;
use crate::sources::fetch::{GuardedResolver, NoPublicAddress};

/// Time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest pause within a transfer.
const READ_TIMEOUT: Duration = Duration::from_mins(1);
/// Redirects that are followed behind a guard: to an object store, and within it.
const REDIRECTS_MAX: usize = 5;

/// The address of a registry.
pub(super) fn address(of: &Reference, plain_http: bool) -> Result<Url, RegistryError> {
    let scheme = if plain_http { "http" } else { "https" };
    let address = Url::parse(&format!("{scheme}://{}/", of.registry));
    address.map_err(|_| RegistryError(format!("{} is not the name of a registry", of.registry)))
}

/// What may be connected to for an image that no administrator has named: public addresses, and the registries of these repositories,
/// which one has, with port 443 of their hosts, where the token server of a registry at another port usually is. Names that cannot be
/// read name nothing.
pub(super) fn guard_of<'n>(named: impl IntoIterator<Item = &'n str>, plain_http: bool) -> Guard {
    let named = named.into_iter().filter_map(Reference::parse);
    let named = named
        .filter_map(|of| address(&of, plain_http).ok())
        .flat_map(|registry| {
            let tokens = Url::parse(&format!("https://{}/", registry.host_str().unwrap_or_default())).ok();
            [Some(registry), tokens].into_iter().flatten()
        });
    let named: Vec<Url> = named.collect();
    Guard::new(Vec::new()).with_hosts_of(&named)
}

/// Connections to registries.
pub(super) fn client(roots: &Roots) -> ClientBuilder {
    let client = roots.http();
    client
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .user_agent(concat!("knack/", env!("CARGO_PKG_VERSION")))
}

/// The client. Errors: there is none.
pub(super) fn built(client: ClientBuilder) -> Result<Client, RegistryError> {
    client
        .build()
        .map_err(|error| RegistryError(format!("no HTTP client: {error}")))
}

/// Connections to what the guard lets through alone, also after redirects.
pub(super) fn guarded(client: ClientBuilder, guard: &Guard) -> ClientBuilder {
    let resolver = GuardedResolver::new(guard.clone());
    // A proxy would connect to what is not seen here.
    client
        .no_proxy()
        .redirect(redirects(guard.clone()))
        .dns_resolver(resolver)
}

/// Follows redirects that the guard lets through.
fn redirects(guard: Guard) -> Policy {
    Policy::custom(move |attempt| {
        if attempt.previous().len() > REDIRECTS_MAX {
            return attempt.error("too many redirects");
        }
        match guard.check(attempt.url()) {
            Ok(()) => attempt.follow(),
            Err(refusal) => attempt.error(refusal),
        }
    })
}

/// The refusal of the guard that an error is, of an address or of a redirect.
pub(super) fn refused_by_guard(error: &reqwest::Error) -> Option<AddressRefusal> {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(inner) = cause {
        if inner.is::<NoPublicAddress>() {
            return Some(AddressRefusal::NotPublic);
        }
        if let Some(refusal) = inner.downcast_ref::<AddressRefusal>() {
            return Some(*refusal);
        }
        cause = inner.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_that_is_named_is_reached_at_its_port_and_its_token_server_at_443() {
        let guard = guard_of(["registry.internal:5050/knack/environments"], false);
        for (url, expected) in [
            ("https://registry.internal:5050/v2/", Ok(())),
            ("https://registry.internal/jwt/auth", Ok(())),
            ("https://registry.internal:8443/", Err(AddressRefusal::OtherPort)),
            ("http://registry.internal/", Err(AddressRefusal::OtherPort)),
            ("https://other.internal/", Err(AddressRefusal::NotPublic)),
            ("https://registry.example.org:5050/v2/", Ok(())),
        ] {
            assert_eq!(guard.check(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }
}
