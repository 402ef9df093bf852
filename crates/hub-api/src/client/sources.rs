//! Inputs of a client that may change while it runs: authorities and tokens.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// How old a file's content may be: kubelets replace tokens at 80 % of their life and ConfigMaps within two minutes, so
/// seconds are soon enough, and a busy gateway reads a file a few times a minute at most.
const FILE_MAX_AGE: Duration = Duration::from_secs(5);

/// Where the authorities of the hub's certificate come from.
#[derive(Debug, Clone)]
pub enum Authorities {
    /// PEM in a file that is replaced when they change.
    File(PathBuf),
    /// PEM as it is.
    Pem(String),
}

/// Where the bearer token comes from.
#[derive(Clone)]
pub enum Token {
    /// A projected ServiceAccount token, replaced in time by the kubelet.
    File(PathBuf),
    /// A token as it is.
    Fixed(String),
}

impl std::fmt::Debug for Token {
    /// A token is a credential: it is never shown.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => formatter.debug_tuple("File").field(path).finish(),
            Self::Fixed(_) => formatter.write_str("Fixed"),
        }
    }
}

/// A file's text, read again when it is older than [`FILE_MAX_AGE`].
#[derive(Debug)]
pub(super) struct CachedFile {
    pub(super) path: PathBuf,
    cached: Mutex<Option<(Instant, String)>>,
}

impl CachedFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            cached: Mutex::default(),
        }
    }

    /// The text. While the file cannot be read (a kubelet is replacing it), the last text is used.
    ///
    /// Errors: the path and the cause, if it was never read.
    pub(super) async fn text(&self) -> Result<String, String> {
        let last = {
            let cached = self.cached.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            cached.clone()
        };
        if let Some((at, text)) = &last
            && at.elapsed() < FILE_MAX_AGE
        {
            return Ok(text.clone());
        }
        match tokio::fs::read_to_string(&self.path).await {
            Ok(text) => {
                let mut cached = self.cached.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                *cached = Some((Instant::now(), text.clone()));
                Ok(text)
            }
            Err(error) => last
                .map(|(_, text)| text)
                .ok_or_else(|| format!("{}: {error}", self.path.display())),
        }
    }
}
