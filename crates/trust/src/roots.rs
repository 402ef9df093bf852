//! The authorities of a file, beside those of the system.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Certificate, ClientBuilder};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

/// Largest file: the authorities of all browsers are 250 KB.
pub const CA_FILE_MAX_BYTES: u64 = 4 << 20;

/// Characters in a line of PEM (RFC 7468 section 2).
const PEM_LINE: usize = 64;

/// Why authorities cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{from}: {why}")]
pub struct CaError {
    /// The flag, with the file that it names.
    from: String,
    why: String,
}

/// Authorities that are trusted besides those of the system. The default has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roots(Arc<[CertificateDer<'static>]>);

impl Roots {
    /// Adds the authorities of a PEM file. Errors: it is not there, has no certificate in it, or one that is not an
    /// authority.
    pub fn with_file(self, file: &Path) -> Result<Self, CaError> {
        let found = read(file).and_then(|text| certificates(&text));
        self.with(found, || format!("--ca-file {}", file.display()))
    }

    /// Adds the authorities of a PEM text. Errors: as for a file.
    pub fn with_pem(self, text: &str) -> Result<Self, CaError> {
        self.with(certificates(text.as_bytes()), || "--ca-pem".to_owned())
    }

    fn with(
        self,
        found: Result<Vec<CertificateDer<'static>>, String>,
        from: impl Fn() -> String,
    ) -> Result<Self, CaError> {
        let found = found.map_err(|why| CaError { from: from(), why })?;
        Ok(Self(self.0.iter().cloned().chain(found).collect()))
    }

    /// A client that trusts the system's authorities and these. What the system has is read when the client is built.
    pub fn http(&self) -> ClientBuilder {
        let client = reqwest::Client::builder();
        if self.0.is_empty() {
            return client;
        }
        // Each was tried when it was read, so none is left out.
        let added = self
            .0
            .iter()
            .filter_map(|certificate| Certificate::from_der(certificate).ok());
        client.tls_certs_merge(added)
    }

    /// These alone as PEM, without what else their file holds; `None`: there are none.
    pub fn pem(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| pem(self.0.iter()))
    }

    /// The system's authorities and these as one PEM text, for a program that trusts one file alone; `None`: nothing was added,
    /// and such a program needs no file.
    ///
    /// The system's are those that clients of this program trust, so `SSL_CERT_FILE` and `SSL_CERT_DIR` name them here too.
    pub fn with_system(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        // What cannot be read of them is not trusted by this program's clients either.
        let system = rustls_native_certs::load_native_certs().certs;
        Some(pem(system.iter().chain(self.0.iter())))
    }
}

/// Whether the system has authorities, where `SSL_CERT_FILE` and `SSL_CERT_DIR` say that they are. Without one no client can be
/// built.
pub fn has_system_authorities() -> bool {
    !rustls_native_certs::load_native_certs().certs.is_empty()
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let opened = std::fs::File::open(file).map_err(|error| error.to_string())?;
    if opened.metadata().is_ok_and(|about| !about.is_file()) {
        return Err("it is not a file".to_owned());
    }
    let mut text = Vec::new();
    let mut bounded = opened.take(CA_FILE_MAX_BYTES + 1);
    bounded.read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > CA_FILE_MAX_BYTES {
        return Err(format!("it has more than {} MiB", CA_FILE_MAX_BYTES >> 20));
    }
    Ok(text)
}

/// The certificates of a text, each of which can be an authority.
fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    if text.trim_ascii().is_empty() {
        return Err("it is empty".to_owned());
    }
    let mut found = Vec::new();
    let mut store = RootCertStore::empty();
    for read in CertificateDer::pem_slice_iter(text) {
        let number = found.len() + 1;
        let certificate = read.map_err(|error| format!("certificate {number} in it is not valid PEM: {error}"))?;
        store
            .add(certificate.clone())
            .map_err(|error| format!("certificate {number} in it is not usable as an authority: {error}"))?;
        found.push(certificate);
    }
    if found.is_empty() {
        return Err("it contains no certificate; it must be PEM, with lines -----BEGIN CERTIFICATE-----".to_owned());
    }
    Ok(found)
}

fn pem<'a>(certificates: impl Iterator<Item = &'a CertificateDer<'static>>) -> String {
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(certificate);
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(PEM_LINE));
            // Writing to a string does not fail.
            let _ = writeln!(text, "{line}");
            rest = after;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    fn authority() -> String {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn a_file_that_cannot_be_used_is_refused_with_its_name_and_why() {
        let folder = tempfile::tempdir().unwrap();
        let (good, key) = (authority(), KeyPair::generate().unwrap().serialize_pem());
        let no_end = good.replace("-----END CERTIFICATE-----", "");
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let large = "#".repeat(usize::try_from(CA_FILE_MAX_BYTES).unwrap() + 1);
        for (what, text, why) in [
            ("empty", "", "it is empty"),
            ("blank", " \n\t\n", "it is empty"),
            ("text", "hello\n", "it contains no certificate"),
            ("der", "0\u{82}\u{1}\n", "it contains no certificate"),
            ("key", &key, "it contains no certificate"),
            ("no-end", &no_end, "certificate 1 in it is not valid PEM"),
            ("garbage", garbage, "certificate 1 in it is not usable as an authority"),
            (
                "second",
                &format!("{good}{garbage}"),
                "certificate 2 in it is not usable as an authority",
            ),
            ("large", &large, "more than 4 MiB"),
        ] {
            let file = folder.path().join(what);
            std::fs::write(&file, text).unwrap();
            let message = Roots::default().with_file(&file).unwrap_err().to_string();
            let named = format!("--ca-file {}: ", file.display());
            assert!(
                message.starts_with(&named) && message.contains(why),
                "{what}: {message}"
            );
        }
        for (what, file, why) in [
            ("missing", folder.path().join("none"), "No such file"),
            ("folder", folder.path().to_owned(), "it is not a file"),
        ] {
            let message = Roots::default().with_file(&file).unwrap_err().to_string();
            assert!(message.contains(why), "{what}: {message}");
        }
    }

    #[test]
    fn the_authorities_of_a_file_stand_beside_those_of_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let (one, two) = (authority(), authority());
        // With what tools write between certificates.
        std::fs::write(&file, format!("# Corp\n{one}\nsubject=CN\n{two}")).unwrap();
        let roots = Roots::default().with_file(&file).unwrap();
        let text = roots.with_system().unwrap();
        let system = rustls_native_certs::load_native_certs().certs.len();
        let all = certificates(text.as_bytes()).unwrap();
        assert_eq!(all.len(), system + 2);
        assert_eq!(all[system..], certificates(format!("{one}{two}").as_bytes()).unwrap());
        assert_eq!(Roots::default().with_system(), None);
        // The text alone, and beside the file.
        assert_eq!(Roots::default().with_pem(&roots.pem().unwrap()).unwrap(), roots);
        let third = authority();
        assert_eq!(
            roots.with_pem(&third).unwrap().pem().unwrap().matches("BEGIN").count(),
            3
        );
        let message = Roots::default().with_pem(" ").unwrap_err().to_string();
        assert_eq!(message, "--ca-pem: it is empty");
    }
}
