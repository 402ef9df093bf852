//! The errors of a server's certificate.

use std::error::Error;
use std::fmt;
use std::io;

use rustls::CertificateError;

/// Why the certificate of a server is not accepted. Its text names no address, so clients may see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateRefusal {
    /// No authority that is trusted has signed it.
    Untrusted,
    /// Expired, or not yet valid.
    Time,
    /// It is for another name.
    Name,
    /// It is the certificate of an authority, which no server may use.
    Authority,
    /// Anything else.
    Other,
}

impl CertificateRefusal {
    /// The refusal behind an error of a client; `None`: it is about something else.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(inner) = cause {
            if let Some(rustls::Error::InvalidCertificate(kind)) = inner.downcast_ref() {
                return Some(Self::of_kind(kind));
            }
            // An I/O error is no source of the one in it.
            cause = match inner.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
                Some(held) => Some(held as &(dyn Error + 'static)),
                None => inner.source(),
            };
        }
        None
    }

    fn of_kind(kind: &CertificateError) -> Self {
        match kind {
            // A signature that does not fit is that of another authority of the same name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::Untrusted,
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => Self::Time,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Self::Name,
            // The verifier's own error, which has no kind here; its text is the name of the variant.
            CertificateError::Other(other) if other.to_string() == "CaUsedAsEndEntity" => Self::Authority,
            _ => Self::Other,
        }
    }

    /// The problem, as the end of "its certificate …", for the person who may change what is trusted.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Untrusted => {
                "is signed by an authority that is not trusted here; name a file with that authority by --ca-file (KNACK_CA_FILE; chart: caBundle)"
            }
            Self::Time => "is not valid at this time; it has expired, or the clock is wrong",
            Self::Name => "is for another host name",
            Self::Authority => {
                "is that of an authority (CA:TRUE, as openssl req -x509 makes it), which a server may not use; sign another one with it for the server"
            }
            Self::Other => "is malformed or revoked, or has a use or a signature that is not accepted",
        }
    }
}

impl fmt::Display for CertificateRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
