//! Keys and certificates.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::root::{ROOT_VALIDITY, Root};
use super::state::{BACKDATE, Pair, VALIDITY};

/// Why no certificate was made.
#[derive(Debug, thiserror::Error)]
#[error("cannot create a certificate: {0}")]
pub struct IssueError(#[from] rcgen::Error);

/// Makes a root, valid from [`BACKDATE`] before `now` (seconds since the Unix epoch) for [`ROOT_VALIDITY`].
pub fn issue_root(now: u64) -> Result<Root, IssueError> {
    let not_before = now.saturating_sub(BACKDATE.as_secs());
    let not_after = not_before + ROOT_VALIDITY.as_secs();
    let key = KeyPair::generate()?;
    let certificate = authority(not_before, not_after).self_signed(&key)?;
    Ok(Root {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        not_before,
        not_after,
    })
}

/// The content of a root's certificate. It is a function of its times, so an issuer needs only them and the key.
fn authority(not_before: u64, not_after: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    // The time is part of the name: during an overlap two authorities must not look like one.
    params.distinguished_name = common_name(&format!("knack authority {not_before}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    set_times(&mut params, not_before, not_after);
    params
}

/// Makes a serving certificate by `root` for `names` (sorted), valid from [`BACKDATE`] before `now` (seconds since the Unix
/// epoch) for [`VALIDITY`].
pub fn issue(now: u64, names: &[String], root: &Root) -> Result<Pair, IssueError> {
    let not_before = now.saturating_sub(BACKDATE.as_secs());
    let not_after = not_before + VALIDITY.as_secs();
    let issuer = Issuer::new(
        authority(root.not_before, root.not_after),
        KeyPair::from_pem(&root.key)?,
    );
    let key = KeyPair::generate()?;
    let mut serving = CertificateParams::new(names)?;
    serving.distinguished_name = common_name("knack");
    serving.use_authority_key_identifier_extension = true;
    serving.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    set_times(&mut serving, not_before, not_after);
    let certificate = serving.signed_by(&key, &issuer)?;
    Ok(Pair {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        authority: root.certificate.clone(),
        not_before,
        not_after,
        names: names.to_vec(),
    })
}

fn common_name(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}

fn set_times(params: &mut CertificateParams, not_before: u64, not_after: u64) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + std::time::Duration::from_secs(not_before);
    params.not_after = epoch + std::time::Duration::from_secs(not_after);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls_pki_types::pem::PemObject as _;
    use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

    use super::*;
    use crate::certificates::state::service_names;

    /// Whether a client that trusts `authority` accepts `pair` as `name` at `now`.
    fn accepted(authority: &Pair, pair: &Pair, name: &str, now: u64) -> bool {
        let mut roots = rustls::RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(authority.authority.as_bytes()).unwrap();
        roots.add(root).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .unwrap();
        let leaf = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now));
        verifier.verify_server_cert(&leaf, &[], &name, &[], time).is_ok()
    }

    #[test]
    fn clients_accept_the_names_in_its_time_and_by_its_root_only() {
        const NOW: u64 = 1_800_000_000;
        const DAY: u64 = 24 * 3600;
        let names = service_names("knack-hub", "knack-system");
        let (root, other) = (issue_root(NOW).unwrap(), issue_root(NOW).unwrap());
        let of = |root, now| issue(now, &names, root).unwrap();
        let (a, foreign) = (of(&root, NOW), of(&other, NOW));
        for (authority, name, now, good) in [
            (&a, "knack-hub.knack-system.svc", NOW, true),
            (&a, "knack-hub.knack-system.svc", NOW - 200, true),
            (&a, "10-1-2-3.knack-hub.knack-system.svc", NOW, true),
            (&a, "knack-hub.other.svc", NOW, false),
            (&a, "knack-hub.knack-system.svc", NOW + 91 * DAY, false),
            (&foreign, "knack-hub.knack-system.svc", NOW, false),
        ] {
            assert_eq!(accepted(authority, &a, name, now), good, "{name} {now}");
        }
        // A client that trusts the authorities published with the first certificate accepts every later one.
        for years in [1, 5, 9] {
            let later = NOW + years * 365 * DAY;
            assert!(
                accepted(&a, &of(&root, later), "knack-hub.knack-system.svc", later),
                "{years} years"
            );
        }
    }
}
