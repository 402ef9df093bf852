//! Archives over HTTP, from public addresses only.
//!
//! A user who may write a Skill must not be able to make the controller connect to addresses that only the controller
//! can reach. So every address is checked where the connection is made (the resolver), literal ones before it, both
//! again after every redirect, and no proxy of the environment is used.

mod resolver;

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use knack_egress::{AddressRefusal, Guard, Network};
use knack_memory::{MemoryBudget, MemoryParts, MemoryShare};
use knack_trust::{AnswerError, CertificateRefusal, Roots, read_answer};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use tokio::time::{Instant, timeout, timeout_at};

pub(crate) use resolver::{GuardedResolver, NoPublicAddress};

use super::archive::ARCHIVE_MAX_BYTES;
use super::{Cause, SourceError, has_digest};
use knack_api::skill::ArchiveSource;

/// Redirects that are followed: release pages use two or three.
const REDIRECTS_MAX: usize = 5;
/// A connection that is not there by then is not coming.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The whole fetch, but for the wait for room: 32 MiB at 0.5 MiB/s.
const FETCH_TIMEOUT: Duration = Duration::from_secs(64);
/// Time to wait for room: as long as one before it may take.
const ROOM_PATIENCE: Duration = FETCH_TIMEOUT;

/// Bytes of archives that are held between arrival and use, for all fetches together: two of the largest. A user who may
/// write Skills can name any number of them at once.
const HELD_MAX_BYTES: usize = 2 * ARCHIVE_MAX_BYTES;
/// The most of it that archives of one namespace hold: their servers may send the head of an answer, and the rest of it never.
const HELD_OF_ONE_MAX_BYTES: usize = ARCHIVE_MAX_BYTES;

/// What is wrong with a server whose time is over.
const LATE: &str = "no answer in time";

/// Fetches archives.
#[derive(Debug, Clone)]
pub struct Fetcher {
    client: reqwest::Client,
    guard: Guard,
    room: MemoryBudget,
    namespaces: MemoryParts<String>,
    /// Bytes of one answer.
    most_bytes: usize,
    key: Option<SiteKey>,
}

/// A key for one site.
#[derive(Debug, Clone)]
struct SiteKey {
    /// Scheme, host and port.
    site: String,
    value: HeaderValue,
}

/// Bytes that were fetched, with their share of the room.
#[derive(Debug)]
pub struct FetchedBytes {
    /// The bytes of the answer.
    pub bytes: Bytes,
    _room: MemoryShare,
}

impl Fetcher {
    /// A fetcher that may also reach these networks, for example mirrors inside the company, and trusts these authorities.
    pub fn new(allowed: Vec<Network>, roots: &Roots) -> Result<Self, reqwest::Error> {
        Self::guarded(Guard::new(allowed), roots)
    }

    /// A fetcher that reaches what a guard lets through, and trusts these authorities.
    pub fn guarded(guard: Guard, roots: &Roots) -> Result<Self, reqwest::Error> {
        let client = roots
            .http()
            .no_proxy()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("knack/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(GuardedResolver::new(guard.clone()))
            .build()?;
        let room = MemoryBudget::new(HELD_MAX_BYTES);
        Ok(Self {
            client,
            guard,
            namespaces: MemoryParts::new(room.clone(), HELD_OF_ONE_MAX_BYTES),
            room,
            most_bytes: ARCHIVE_MAX_BYTES,
            key: None,
        })
    }

    /// This fetcher, which then takes no answer with more bytes than this.
    #[must_use]
    pub fn within(self, most_bytes: usize) -> Self {
        let most_bytes = most_bytes.min(ARCHIVE_MAX_BYTES);
        Self { most_bytes, ..self }
    }

    /// This fetcher for a Skill of a namespace, whose archives take a part of the room alone.
    #[must_use]
    pub fn of_namespace(&self, namespace: &str) -> Self {
        let room = self.namespaces.of(&namespace.to_owned());
        Self { room, ..self.clone() }
    }

    /// This fetcher with a key that goes to the site of `url` only, also after redirects.
    #[must_use]
    pub fn with_key(mut self, url: &Url, value: HeaderValue) -> Self {
        let site = site(url);
        self.key = Some(SiteKey { site, value });
        self
    }

    /// An archive, verified by its digest.
    pub async fn fetch(&self, source: &ArchiveSource) -> Result<FetchedBytes, SourceError> {
        let fetched = match self.get(&source.url).await {
            Ok(fetched) => verified(source, &fetched.bytes).map(|()| fetched),
            Err(error) => Err(error),
        };
        fetched.map_err(of_spec)
    }

    /// Fetches an address: at most [`ARCHIVE_MAX_BYTES`], or fewer by [`Self::within`]. Waits before the first byte while
    /// there is no room, and its time stands still meanwhile. Errors name no field: an address may be named by a person, too.
    pub async fn get(&self, url: &str) -> Result<FetchedBytes, SourceError> {
        let url = Url::parse(url).map_err(|error| invalid(format!("url {url:?} is not valid: {error}")))?;
        let begun = Instant::now();
        let (url, response) = self.answer(url, begun + FETCH_TIMEOUT).await?;
        let left = FETCH_TIMEOUT.saturating_sub(begun.elapsed());
        let length = checked(&url, &response, self.most_bytes)?;
        let Ok(held) = self.room.take(length, ROOM_PATIENCE).await else {
            return Err(failed_transfer(&url, "other archives take too long to arrive"));
        };
        let body = timeout(left, self.body(&url, response, length)).await;
        Ok(FetchedBytes {
            bytes: body.unwrap_or_else(|_| Err(failed_transfer(&url, LATE)))?,
            _room: held,
        })
    }

    /// The head of the answer behind redirects, and where it is from.
    async fn answer(&self, mut url: Url, until: Instant) -> Result<(Url, reqwest::Response), SourceError> {
        for _ in 0..=REDIRECTS_MAX {
            self.check(&url)?;
            let mut request = self.client.get(url.clone());
            if let Some(key) = self.key.as_ref().filter(|key| key.site == site(&url)) {
                request = request.header(AUTHORIZATION, key.value.clone());
            }
            let sent = timeout_at(until, request.send()).await;
            let response = sent
                .map_err(|_| failed_transfer(&url, LATE))?
                .map_err(|error| failed(&url, &error))?;
            if !response.status().is_redirection() {
                return Ok((url, response));
            }
            url = redirect(&url, &response)?;
        }
        Err(invalid(format!(
            "more than {REDIRECTS_MAX} redirects; specify the final URL"
        )))
    }

    /// The body, up to its announced length.
    async fn body(&self, url: &Url, mut response: reqwest::Response, length: usize) -> Result<Bytes, SourceError> {
        read_answer(&mut response, length).await.map_err(|error| match error {
            AnswerError::TooLarge { .. } => too_large(self.most_bytes),
            AnswerError::Broken(error) => failed(url, &error),
        })
    }

    /// The checks that need only the URL.
    fn check(&self, url: &Url) -> Result<(), SourceError> {
        self.guard.check(url).map_err(|refusal| match refusal {
            AddressRefusal::NotPublic => denied(&shown(url)),
            AddressRefusal::OtherPort => SourceError::new(Cause::AddressDenied, format!("{} {refusal}", shown(url))),
            AddressRefusal::Scheme => invalid(format!("{}: {refusal}", url.scheme())),
            AddressRefusal::NoHost | AddressRefusal::Credentials => invalid(refusal.to_string()),
        })
    }
}

/// The addresses of the host of a URL: who names a host on the command line wants it, wherever it is.
pub async fn networks_of(url: &Url) -> anyhow::Result<Vec<Network>> {
    let host = url.host_str().context("the URL has no host")?;
    let literal = host.trim_matches(|c| c == '[' || c == ']').parse::<IpAddr>();
    let found = match literal {
        Ok(address) => vec![address],
        Err(_) => tokio::net::lookup_host((host, 0))
            .await
            .with_context(|| host.to_owned())?
            .map(|address| address.ip())
            .collect(),
    };
    found
        .iter()
        .map(|address| address.to_string().parse().map_err(anyhow::Error::msg))
        .collect()
}

fn site(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The error as that of the field of a Skill, which a controller fetches again and again.
fn of_spec(error: SourceError) -> SourceError {
    let advice = match error.cause {
        Cause::AddressDenied => {
            ". An administrator can allow a network (value controller.allowedArchiveNetworks of the chart, --allow-archive-network of the controller)"
        }
        Cause::Unavailable => "; it is tried again",
        _ => "",
    };
    SourceError::new(error.cause, error.message + advice).of_field("spec.source.archive")
}

fn invalid(message: impl Into<String>) -> SourceError {
    SourceError::new(Cause::Invalid, message)
}

/// The same text for every denied address, so that answers reveal nothing about a network.
fn denied(host: &str) -> SourceError {
    SourceError::new(Cause::AddressDenied, format!("{host} {}", AddressRefusal::NotPublic))
}

/// Host and port of a URL; paths and queries may hold secrets.
fn shown(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port()
        .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn failed(url: &Url, error: &reqwest::Error) -> SourceError {
    let host = shown(url);
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(inner) = cause {
        if inner.is::<NoPublicAddress>() {
            return denied(&host);
        }
        cause = inner.source();
    }
    if let Some(refusal) = CertificateRefusal::of(error) {
        return failed_transfer(url, &format!("its certificate {refusal}"));
    }
    let what = if error.is_timeout() {
        LATE
    } else if error.is_connect() {
        "no connection"
    } else {
        "the transfer failed"
    };
    failed_transfer(url, what)
}

fn failed_transfer(url: &Url, what: &str) -> SourceError {
    SourceError::new(Cause::Unavailable, format!("{}: {what}", shown(url)))
}

fn redirect(url: &Url, response: &reqwest::Response) -> Result<Url, SourceError> {
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let next = location.and_then(|location| url.join(location).ok());
    next.ok_or_else(|| invalid(format!("{} redirects without a target", shown(url))))
}

/// How many bytes the body has at most, judged by the head.
fn checked(url: &Url, response: &reqwest::Response, most_bytes: usize) -> Result<usize, SourceError> {
    let (status, host) = (response.status(), shown(url));
    if !status.is_success() {
        let text = format!("{host} answers {status}");
        // "Not found" and "not allowed" stay until a person acts; a server's own errors pass.
        let cause = match status.as_u16() {
            404 | 410 => Cause::NotFound,
            408 | 425 | 429 | 500.. => Cause::Unavailable,
            _ => Cause::Invalid,
        };
        return Err(SourceError::new(cause, text));
    }
    let announced = response
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    match announced {
        Some(length) if length > most_bytes => Err(too_large(most_bytes)),
        Some(length) => Ok(length),
        None => Ok(most_bytes),
    }
}

fn too_large(most_bytes: usize) -> SourceError {
    SourceError::new(Cause::TooLarge, format!("more than {} MiB", most_bytes >> 20))
}

fn verified(source: &ArchiveSource, bytes: &[u8]) -> Result<(), SourceError> {
    has_digest(&source.digest, bytes).map_err(|digest| {
        SourceError::new(
            Cause::DigestMismatch,
            format!(
                "the archive has digest {digest}, the spec says {}; check what changed, then correct digest",
                source.digest
            ),
        )
    })
}

#[cfg(test)]
mod tests;
