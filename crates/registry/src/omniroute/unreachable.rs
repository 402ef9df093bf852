//! The refusal of a request for which a catalog did not do what it should.

use url::Url;

use crate::answer::{Refusal, RefusalKind};
use crate::catalogs::{Catalog, WebError};

/// 502. Reason and address are in the log alone: they may be of the inside.
pub(super) fn unreachable(catalog: Catalog, address: &str, error: &WebError) -> Refusal {
    let url = shown(address);
    tracing::warn!(catalog = catalog.word(), %url, %error, "a catalog of skills did not answer");
    let text = format!(
        "The catalog {} did not answer as expected; the log of the registry has the cause.",
        catalog.word()
    );
    Refusal::new(RefusalKind::BadGateway, "", text)
}

/// An address without what may be secret or a caller's text: credentials, query and fragment.
fn shown(address: &str) -> String {
    let Ok(mut url) = Url::parse(address) else {
        return String::new();
    };
    url.set_query(None);
    url.set_fragment(None);
    // Addresses without a host have no credentials to remove.
    url.set_username("").ok();
    url.set_password(None).ok();
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_the_address_without_secrets() {
        for (address, expected) in [
            ("https://me:key@mirror/api/search?q=mine#x", "https://mirror/api/search"),
            ("http://mirror:8080/index.json", "http://mirror:8080/index.json"),
            ("no address", ""),
        ] {
            assert_eq!(shown(address), expected);
        }
    }
}
