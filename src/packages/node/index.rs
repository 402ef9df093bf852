//! The index of Node packages: one address, below which every file is found.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use knack_packages::State;
use knack_packages::node::NodePackage;
use knack_trust::{CertificateRefusal, Roots};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use sha2::{Digest as _, Sha512};
use tokio::io::AsyncWriteExt as _;

use super::npmrc::authorization;
use crate::packages::BuildError;
use crate::retry_after::retry_after;

/// Names the index, as npm's settings do.
pub(crate) const NPM_INDEX_VARIABLE: &str = "NPM_CONFIG_REGISTRY";
/// Names a file with credentials for it, in the form of npm's settings.
pub(crate) const NPMRC_VARIABLE: &str = "KNACK_NPMRC";

/// The variables that are read: the settings of npm that name an index, of which the first that is set counts, and the file.
const VARIABLES: [&str; 3] = [NPM_INDEX_VARIABLE, "npm_config_registry", NPMRC_VARIABLE];

/// The index where none is named.
pub(super) const DEFAULT: &str = "https://registry.npmjs.org/";

/// Largest file of a package, packed: four times the largest that holds a program (32 MiB).
const FILE_MAX_BYTES: u64 = 128 << 20;

/// A connection that is not there by then is not coming.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest pause within an answer; the whole has the time of a build.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Redirects that are followed: mirrors send to a store of files once.
const REDIRECTS_MAX: usize = 3;

/// How often a file is asked for where the index fails, and the pause between if its answer asks for none.
const ATTEMPTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(500);

/// Most bytes of an error that are shown.
const SAID_MAX: usize = 300;

/// An index.
#[derive(Debug, Clone)]
pub struct NpmIndex {
    base: Url,
    client: Client,
    roots: Roots,
    /// For each request; a redirect to another host goes without.
    authorization: Option<HeaderValue>,
}

/// Whether asking again may help.
enum Failure {
    /// With the pause that is asked for.
    Passing(BuildError, Option<Duration>),
    Lasting(BuildError),
}

impl NpmIndex {
    /// The index that these variables name, else npm's own, whose certificate is checked against these authorities. Reads a
    /// file, which blocks for a moment. Errors: it is no address, the file has no credential for it, or there is no client.
    pub fn of(variables: impl IntoIterator<Item = (OsString, OsString)>, roots: &Roots) -> Result<Self, BuildError> {
        let mut named: [Option<OsString>; VARIABLES.len()] = Default::default();
        for (name, value) in variables {
            if let Some(at) = VARIABLES.iter().position(|known| name == *known)
                && !value.is_empty()
            {
                named[at] = Some(value);
            }
        }
        let [first, second, npmrc] = named;
        let named = first.or(second);
        let off = |why: &str| BuildError::new(State::PackagesOff, format!("{NPM_INDEX_VARIABLE}: {why}"));
        let mut text = match named {
            None => DEFAULT.to_owned(),
            Some(value) => value.into_string().map_err(|_| off("it is not UTF-8"))?,
        };
        if !text.ends_with('/') {
            text.push('/');
        }
        let base = Url::parse(&text).ok();
        let base = base.filter(|base| matches!(base.scheme(), "https" | "http") && base.has_host());
        let base = base.ok_or_else(|| off("it must be the URL of an index (https://…)"))?;
        let authorization = npmrc.map(|file| read_npmrc(Path::new(&file), &base)).transpose()?;
        let client = roots
            .http()
            .redirect(Policy::limited(REDIRECTS_MAX))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .user_agent(concat!("knack/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| BuildError::new(State::PackagesOff, format!("no HTTP client: {error}")))?;
        Ok(Self {
            base,
            client,
            roots: roots.clone(),
            authorization,
        })
    }

    /// The index's address.
    pub(in crate::packages) fn address(&self) -> &str {
        self.base.as_str()
    }

    /// The authorities that its certificate is checked against, besides those of the system.
    pub(in crate::packages) const fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Writes the file of a package, which has the hash of the lock.
    pub(super) async fn fetch(&self, package: &NodePackage, to: &Path) -> Result<(), BuildError> {
        let mut attempt = 1;
        loop {
            match self.fetch_once(package, to).await {
                Ok(()) => return Ok(()),
                Err(Failure::Passing(_, asked)) if attempt < ATTEMPTS => {
                    attempt += 1;
                    tokio::time::sleep(asked.unwrap_or(PAUSE)).await;
                }
                Err(Failure::Passing(error, _) | Failure::Lasting(error)) => return Err(error),
            }
        }
    }

    async fn fetch_once(&self, package: &NodePackage, to: &Path) -> Result<(), Failure> {
        let disk = |error: std::io::Error| Failure::Lasting(BuildError::of_disk("the store", &error));
        let mut response = self.ask(package).await?;
        let mut file = tokio::fs::File::create(to).await.map_err(disk)?;
        let (mut hash, mut length) = (Sha512::new(), 0_u64);
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(error))? {
            length += chunk.len() as u64;
            if length > FILE_MAX_BYTES {
                let why = format!("its file has more than {} MiB", FILE_MAX_BYTES >> 20);
                return Err(Failure::Lasting(of(package, State::TooLarge, &why)));
            }
            hash.update(&chunk);
            file.write_all(&chunk).await.map_err(disk)?;
        }
        file.flush().await.map_err(disk)?;
        if STANDARD.encode(hash.finalize()) == package.sha512 {
            return Ok(());
        }
        let why = format!("the file of {} is not the one of package-lock.json", self.shown());
        Err(Failure::Lasting(of(package, State::HashMismatch, &why)))
    }

    async fn ask(&self, package: &NodePackage) -> Result<Response, Failure> {
        let url = self.base.join(&package.file).map_err(|error| {
            Failure::Lasting(of(
                package,
                State::Failed,
                &format!("its file has no valid URL: {error}"),
            ))
        })?;
        let mut request = self.client.get(url);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let response = request.send().await;
        let response = response.map_err(|error| self.unreachable(error))?;
        let status = response.status();
        let index = self.shown();
        match status {
            StatusCode::OK => Ok(response),
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                let why = format!(
                    "{index} has no file {}; {} names the index to ask",
                    package.file, NPM_INDEX_VARIABLE
                );
                Err(Failure::Lasting(of(package, State::PackageNotFound, &why)))
            }
            _ if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => Err(Failure::Passing(
                of(package, State::IndexUnreachable, &format!("{index} answers {status}")),
                retry_after(response.headers()),
            )),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let why = format!(
                    "{index} answers {status}; give it credentials by {NPMRC_VARIABLE}, on a cluster by the chart value packages.npmIndexSecret"
                );
                Err(Failure::Lasting(of(package, State::IndexUnreachable, &why)))
            }
            _ => Err(Failure::Lasting(of(
                package,
                State::IndexUnreachable,
                &format!("{index} answers {status}"),
            ))),
        }
    }

    /// The address may hold a credential, so only its host is shown.
    fn unreachable(&self, error: reqwest::Error) -> Failure {
        if let Some(refusal) = CertificateRefusal::of(&error) {
            let text = format!("{}: its certificate {refusal}", self.shown());
            return Failure::Lasting(BuildError::new(State::IndexUnreachable, text));
        }
        let error = error.without_url();
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            text = format!("{text}: {inner}");
            cause = inner.source();
        }
        text.truncate(text.floor_char_boundary(SAID_MAX));
        let text = format!("{}: {text}", self.shown());
        Failure::Passing(BuildError::new(State::IndexUnreachable, text), None)
    }

    fn shown(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        self.base
            .port()
            .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }
}

fn read_npmrc(file: &Path, index: &Url) -> Result<HeaderValue, BuildError> {
    let wrong = |why: String| BuildError::new(State::IndexUnreachable, format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    authorization(&text, index).map_err(wrong)
}

/// The error of a package.
pub(super) fn of(package: &NodePackage, state: State, why: &str) -> BuildError {
    BuildError::new(state, format!("{} {}: {why}", package.name, package.version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_the_one_that_npm_would_ask() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let of = |variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
            NpmIndex::of(variables.collect::<Vec<_>>(), &Roots::default()).map(|index| index.base.to_string())
        };
        for (variables, address) in [
            (&[][..], DEFAULT),
            (&[("NPM_CONFIG_REGISTRY", "")], DEFAULT),
            (
                &[("npm_config_registry", "http://127.0.0.1:1/npm")],
                "http://127.0.0.1:1/npm/",
            ),
            (
                &[
                    ("npm_config_registry", "https://two.example"),
                    ("NPM_CONFIG_REGISTRY", "https://one.example/x/"),
                ],
                "https://one.example/x/",
            ),
        ] {
            assert_eq!(of(variables).unwrap(), address);
        }
        for address in ["file:///etc", "one.example", "data:x"] {
            let error = of(&[("NPM_CONFIG_REGISTRY", address)]).unwrap_err();
            assert_eq!(error.state, State::PackagesOff, "{address}: {error}");
        }
    }

    #[test]
    fn a_credential_of_the_index_is_not_shown() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let named = (
            "NPM_CONFIG_REGISTRY".into(),
            "https://me:secret@one.example:8443/npm".into(),
        );
        assert_eq!(
            NpmIndex::of([named], &Roots::default()).unwrap().shown(),
            "one.example:8443"
        );
    }
}
