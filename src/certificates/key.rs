//! A certificate and its key, as a TLS listener takes them.

use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Why a certificate cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// The certificate is not PEM, or does not belong to the key.
    #[error("tls.crt: {0}")]
    Certificate(String),
    /// The key is not PEM.
    #[error("tls.key: {0}")]
    Key(String),
}

/// Reads PEM of a certificate chain and of its key.
pub(crate) fn certified_key(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, KeyError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| KeyError::Certificate(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| KeyError::Key(error.to_string()))?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map_err(|error| KeyError::Certificate(error.to_string()))
}
