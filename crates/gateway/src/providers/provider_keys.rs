//! Provider keys from a mounted Secret: read at start, and again whenever the Secret is changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use http::HeaderValue;

use super::provider::Api;
use super::upstream::Upstreams;

/// How often the files are read: the kubelet itself needs up to a minute to bring a changed Secret into the pod.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The keys of a folder, one file per API. An API without a file has none.
///
/// Errors: a file cannot be read, or holds no key.
pub(crate) async fn read(folder: &Path) -> anyhow::Result<BTreeMap<Api, HeaderValue>> {
    let mut keys = BTreeMap::new();
    for api in Api::ALL {
        let path = folder.join(api.as_str());
        let text = match tokio::fs::read_to_string(&path).await {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let mut key = HeaderValue::from_str(text.trim())
            .ok()
            .filter(|key| !key.is_empty())
            .with_context(|| format!("{}: not a key", path.display()))?;
        key.set_sensitive(true);
        keys.insert(api, key);
    }
    Ok(keys)
}

/// Gives changed keys to the upstreams, until dropped. What cannot be read leaves the last keys in use.
pub(crate) async fn follow(folder: PathBuf, upstreams: Upstreams) {
    let mut logged = None;
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        match read(&folder).await {
            Ok(keys) => {
                logged = None;
                for api in upstreams.rekey(&keys) {
                    tracing::info!(
                        api = api.as_str(),
                        "the provider key was changed; the next request has it"
                    );
                }
            }
            Err(error) => {
                let error = format!("{error:#}");
                if logged.as_ref() != Some(&error) {
                    tracing::warn!(%error, "provider keys cannot be read; the last ones stay in use");
                    logged = Some(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keys_are_files_by_api_and_a_bad_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert!(read(path).await.unwrap().is_empty());
        std::fs::write(path.join("openai"), "sk-1\n").unwrap();
        std::fs::write(path.join("other"), "ignored").unwrap();
        let keys = read(path).await.unwrap();
        assert_eq!(keys.len(), 1);
        assert_eq!(keys[&Api::OpenAi], "sk-1");
        assert!(!format!("{keys:?}").contains("sk-1"), "never printed");
        for bad in ["", "a\nb"] {
            std::fs::write(path.join("anthropic"), bad).unwrap();
            let error = format!("{:#}", read(path).await.unwrap_err());
            assert!(
                error.contains("anthropic: not a key") && !error.contains("sk-1"),
                "{error}"
            );
        }
    }
}
