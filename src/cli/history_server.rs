//! The history of a cluster, page by page: the newest come first, and are written with the oldest first.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::Args;
use http::{HeaderMap, Method, StatusCode};
use knack_hub_api::client::{Authorities, HubClient, HubClientSettings, HubError, Token};
use knack_trust::read_answer;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::history_rows::{Filter, Row, created, created_beside, print};
use super::terminal;

/// Executions of a page: the most that the API gives.
const PAGE: usize = 100;
/// Executions that are read at most: twice what a registry keeps, so that one that grows meanwhile is read to its end.
const EXECUTIONS_MAX: usize = 100_000;
/// Bytes of a page: of each execution input, output and error of 52 KiB, each JSON in JSON at worst.
const PAGE_MAX_BYTES: usize = 16 << 20;
/// Time for a page.
const PAGE_TIMEOUT: Duration = Duration::from_mins(1);
/// How often a long read says how far it is.
const PROGRESS: Duration = Duration::from_secs(5);

/// The registry of a cluster.
#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// Read the history of a cluster's registry instead, at https://host:port: runs of the gateways of one ServiceAccount
    #[arg(long, value_name = "URL", requires_all = ["token_file", "ca_file"])]
    pub(super) server: Option<String>,
    /// File with a token of that ServiceAccount for the audience "knack": kubectl create token NAME --audience knack
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(super) token_file: Option<PathBuf>,
    /// File with the authorities of the registry's certificate: ca.crt of the ConfigMap knack-registry-ca
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(super) ca_file: Option<PathBuf>,
    /// Connect to this address instead of resolving the name in the URL: 127.0.0.1 with kubectl port-forward
    #[arg(long, value_name = "IP", requires = "server")]
    pub(super) address: Option<IpAddr>,
}

/// A page of the API.
#[derive(Debug, Deserialize)]
struct Page {
    data: Vec<Box<RawValue>>,
    total: usize,
}

/// An answer that is no page.
#[derive(Debug, Deserialize)]
struct ErrorAnswer {
    error: String,
}

/// Prints or exports the executions of a cluster.
pub(super) async fn history(args: &ServerArgs, filter: &Filter, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let client = client(args).await?;
    let Some(file) = file else {
        let mut rows = Vec::new();
        read(&client, filter, |row, _| {
            rows.push(row);
            Ok(())
        })
        .await?;
        rows.reverse();
        print(&rows);
        return Ok(ExitCode::SUCCESS);
    };
    let failed = || format!("--export {}", file.display());
    let mut export = Export::begin(file).with_context(failed)?;
    read(&client, filter, |_, line| export.add(line).with_context(failed)).await?;
    let count = tokio::task::spawn_blocking(move || export.end()).await?;
    let count = count.with_context(failed)?;
    terminal::note(&format!("{count} executions are in {}", file.display()));
    Ok(ExitCode::SUCCESS)
}

async fn client(args: &ServerArgs) -> anyhow::Result<HubClient> {
    // Read once: it may be what a command printed into a pipe.
    let text = async |flag: &str, path: &Option<PathBuf>| {
        let path = path.as_ref().with_context(|| format!("{flag}: name a file"))?;
        let text = tokio::fs::read_to_string(path).await;
        text.with_context(|| format!("{flag} {}", path.display()))
    };
    HubClient::new(HubClientSettings {
        url: args.server.clone().unwrap_or_default(),
        authorities: Authorities::Pem(text("--ca-file", &args.ca_file).await?),
        token: Token::Fixed(text("--token-file", &args.token_file).await?),
        address: args.address,
    })
    .map_err(|error| anyhow::anyhow!("--server: {error}"))
}

/// Reads the rows of the filter, the newest first. Rows that come meanwhile move others to later pages, so one may come twice.
async fn read(
    client: &HubClient,
    filter: &Filter,
    mut take: impl FnMut(Row, &str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut known = HashSet::new();
    let mut reported = Instant::now();
    for number in 1..=EXECUTIONS_MAX / PAGE {
        let page = page(client, filter, number).await?;
        let mut is_last = page.data.len() < PAGE;
        for shown in &page.data {
            let row = Row::of_json(shown.get())
                .context("--server: an execution cannot be read; is it of another version?")?;
            // Sorted by time: what follows is older still.
            is_last |= filter.since.is_some_and(|since| row.created < since);
            if filter.takes(&row) && known.insert(row.id.clone()) {
                take(row, shown.get())?;
            }
        }
        if is_last {
            return Ok(());
        }
        if reported.elapsed() >= PROGRESS {
            terminal::note(&format!(
                "{} of at most {} executions are read",
                number * PAGE,
                page.total
            ));
            reported = Instant::now();
        }
    }
    bail!("--server: it has more than {EXECUTIONS_MAX} executions; name a later --since")
}

async fn page(client: &HubClient, filter: &Filter, number: usize) -> anyhow::Result<Page> {
    let mut path = format!("/api/skills/executions?limit={PAGE}&page={number}");
    if let Some(skill) = &filter.skill {
        // A version is searched for here.
        let name = skill.split_once('@').map_or(skill.as_str(), |(name, _)| name);
        path.push_str("&skillId=");
        path.extend(utf8_percent_encode(name, NON_ALPHANUMERIC));
    }
    if let Some(status) = filter.status {
        path.push_str("&status=");
        path.push_str(status.word());
    }
    let (status, body) = tokio::time::timeout(PAGE_TIMEOUT, answer(client, &path))
        .await
        .with_context(|| format!("--server: no answer within {} s", PAGE_TIMEOUT.as_secs()))??;
    if status.is_success() {
        return serde_json::from_slice(&body).context("--server: the response is not a list of executions");
    }
    let message =
        serde_json::from_slice::<ErrorAnswer>(&body).map_or_else(|_| status.to_string(), |refused| refused.error);
    if status == StatusCode::UNAUTHORIZED {
        bail!("--token-file: {message}; create one with: kubectl create token NAME --audience knack");
    }
    bail!("--server: {message}")
}

async fn answer(client: &HubClient, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
    let sent = client.relay(Method::GET, path, HeaderMap::new(), Bytes::new()).await;
    let mut response = sent.map_err(|error| anyhow::anyhow!("--server: no answer: {}", cause(error)))?;
    let read = read_answer(&mut response, PAGE_MAX_BYTES).await;
    let read = read.map_err(|error| anyhow::anyhow!("--server: {error}"))?;
    Ok((response.status(), read))
}

/// Why there is no answer: the client's own words are of a hub.
fn cause(error: HubError) -> String {
    match error {
        HubError::Unreachable(cause) | HubError::Broken(cause) | HubError::Protocol(cause) => cause,
        error @ (HubError::Configuration(_) | HubError::Refused(_)) => error.to_string(),
    }
}

/// Reverses JSON lines: spools them to a temporary file, then copies them in reverse, one line in memory at a time.
struct Export {
    file: PathBuf,
    beside: BufWriter<File>,
    path: PathBuf,
    /// Where each line begins, and its bytes.
    lines: Vec<(u64, usize)>,
    bytes: u64,
}

impl Export {
    fn begin(file: &Path) -> std::io::Result<Self> {
        let mut name = file.as_os_str().to_owned();
        name.push(".part");
        let path = PathBuf::from(name);
        Ok(Self {
            file: file.to_owned(),
            beside: BufWriter::new(created_beside(&path)?),
            path,
            lines: Vec::new(),
            bytes: 0,
        })
    }

    fn add(&mut self, line: &str) -> std::io::Result<()> {
        self.beside.write_all(line.as_bytes())?;
        self.lines.push((self.bytes, line.len()));
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Writes the file; the answer is how many there are.
    fn end(mut self) -> std::io::Result<usize> {
        self.beside.flush()?;
        let from = self.beside.get_ref();
        let mut out = BufWriter::new(created(&self.file)?);
        for (begin, length) in self.lines.iter().rev() {
            let mut line = vec![0; *length];
            from.read_exact_at(&mut line, *begin)?;
            out.write_all(&line)?;
            out.write_all(b"\n")?;
        }
        out.flush()?;
        Ok(self.lines.len())
    }
}

/// Also where the read fails: what is beside the file is of no use alone.
impl Drop for Export {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_has_the_oldest_first_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("all.jsonl");
        let mut export = Export::begin(&file).unwrap();
        for line in ["{\"id\":3}", "{\"id\":22}", "{\"id\":1}"] {
            export.add(line).unwrap();
        }
        assert_eq!(export.end().unwrap(), 3);
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text, "{\"id\":1}\n{\"id\":22}\n{\"id\":3}\n");
        drop(Export::begin(&file).unwrap());
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "one that fails leaves nothing"
        );
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            text,
            "and what was there before"
        );
        // The folder may be a checkout of somebody else's.
        std::os::unix::fs::symlink(&file, folder.path().join("all.jsonl.part")).unwrap();
        Export::begin(&file).map(drop).unwrap_err();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
}
