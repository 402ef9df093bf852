//! The certificate of a listener from the files of a mounted Secret, read again when they are replaced: that of the hub and of the registry.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::sign::CertifiedKey;
use tokio_util::sync::CancellationToken;

use super::key::{KeyError, certified_key};
use super::served::ServedCertificate;

/// How often the files are read: a certificate is replaced an hour after its authority was published.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Why a certificate cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}", path = path.display())]
pub struct TlsError {
    path: PathBuf,
    reason: String,
}

/// A certificate and its key, from `tls.crt` and `tls.key` of a folder.
#[derive(Debug)]
pub struct Certificate {
    folder: PathBuf,
    served: Arc<ServedCertificate>,
}

impl Certificate {
    /// Reads the files.
    pub async fn read(folder: &Path) -> Result<Arc<Self>, TlsError> {
        let served = ServedCertificate::default();
        served.replace(load(folder).await?);
        Ok(Arc::new(Self {
            folder: folder.to_owned(),
            served: Arc::new(served),
        }))
    }

    /// Reads the files repeatedly until `stop`; files that do not match (during a replacement) are skipped.
    pub async fn follow(self: Arc<Self>, stop: CancellationToken) {
        loop {
            tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(CHECK_INTERVAL) => {} }
            match load(&self.folder).await {
                Ok(key) => {
                    if self.served.replace(key) {
                        tracing::info!("the certificate was replaced");
                    }
                }
                Err(error) => tracing::warn!(%error, "the certificate cannot be reloaded; the last one stays in use"),
            }
        }
    }

    /// The configuration of a TLS listener. HTTP/1.1 only: each stream has a connection, so a slow reader delays no other.
    pub fn server_config(&self) -> ServerConfig {
        self.served.server_config(&["http/1.1"])
    }
}

async fn load(folder: &Path) -> Result<CertifiedKey, TlsError> {
    let (certificate_path, key_path) = (folder.join("tls.crt"), folder.join("tls.key"));
    let fail = |path: &Path, reason: String| TlsError {
        path: path.to_owned(),
        reason,
    };
    let read = |path: PathBuf| async move {
        let bytes = tokio::fs::read(&path).await;
        bytes.map_err(|error| fail(&path, error.to_string()))
    };
    let certificate = read(certificate_path.clone()).await?;
    let key = read(key_path.clone()).await?;
    certified_key(&certificate, &key).map_err(|error| match &error {
        KeyError::Certificate(reason) => fail(&certificate_path, reason.clone()),
        KeyError::Key(reason) => fail(&key_path, reason.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::{issue, issue_root};

    #[tokio::test]
    async fn a_certificate_without_its_key_is_refused_and_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["hub".to_owned()];
        let root = issue_root(1_800_000_000).unwrap();
        let (one, other) = (
            issue(1_800_000_000, &names, &root).unwrap(),
            issue(1_800_000_000, &names, &root).unwrap(),
        );
        std::fs::write(folder.path().join("tls.crt"), &one.certificate).unwrap();
        assert!(
            Certificate::read(folder.path())
                .await
                .unwrap_err()
                .to_string()
                .contains("tls.key")
        );
        std::fs::write(folder.path().join("tls.key"), &other.key).unwrap();
        assert!(Certificate::read(folder.path()).await.is_err());
        std::fs::write(folder.path().join("tls.key"), &one.key).unwrap();
        Certificate::read(folder.path()).await.unwrap();
    }
}
