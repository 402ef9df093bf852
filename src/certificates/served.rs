//! The certificate that a listener shows, replaced while it serves.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The certificate in use. Without one handshakes fail.
#[derive(Debug, Default)]
pub(crate) struct ServedCertificate {
    current: ArcSwapOption<CertifiedKey>,
}

impl ServedCertificate {
    /// Shows this one from now on. Whether it differs from the last one.
    pub(crate) fn replace(&self, key: CertifiedKey) -> bool {
        let current = self.current.load_full();
        let is_other = current.is_none_or(|current| current.cert != key.cert);
        if is_other {
            self.current.store(Some(Arc::new(key)));
        }
        is_other
    }

    /// The configuration of a TLS listener that speaks these protocols, the preferred one first.
    pub(crate) fn server_config(self: &Arc<Self>, protocols: &[&str]) -> ServerConfig {
        let resolver = Arc::clone(self);
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }
}

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::{certified_key, issue, issue_root};

    #[test]
    fn only_another_certificate_replaces_the_one_in_use() {
        let root = issue_root(1_800_000_000).unwrap();
        let pair = || issue(1_800_000_000, &["hub".to_owned()], &root).unwrap();
        let key =
            |pair: &crate::certificates::Pair| certified_key(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap();
        let served = ServedCertificate::default();
        let (one, other) = (pair(), pair());
        for (pair, is_other) in [(&one, true), (&one, false), (&other, true), (&one, true)] {
            assert_eq!(served.replace(key(pair)), is_other);
            let current = served.current.load_full().unwrap();
            assert_eq!(current.cert, key(pair).cert, "it is shown");
        }
    }
}
