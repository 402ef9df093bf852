//! `knack gateway health`: a probe of the gateway in the same pod.
//!
//! A sidecar listens on loopback addresses, which a kubelet's httpGet cannot reach; an exec probe can.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Time for the whole question: the answer needs no work, and a kubelet gives up on a probe soon.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of the answer that are read: its status line is at the front.
const ANSWER_MAX_BYTES: u64 = 64;

/// Arguments of `knack gateway health`.
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Where the gateway answers /healthz
    #[arg(long, env = "KNACK_METRICS_LISTEN", default_value = "127.0.0.1:9090")]
    metrics_listen: SocketAddr,
}

/// Success if the gateway answers; else an error that says why not.
pub(crate) async fn health(args: &HealthArgs) -> anyhow::Result<ExitCode> {
    let address = reachable(args.metrics_listen);
    match tokio::time::timeout(ANSWER_TIMEOUT, ask(address)).await {
        Ok(Ok(())) => Ok(ExitCode::SUCCESS),
        Ok(Err(error)) => Err(error).with_context(|| format!("the gateway at {address}")),
        Err(_) => bail!(
            "the gateway at {address}: no answer within {} s",
            ANSWER_TIMEOUT.as_secs()
        ),
    }
}

/// A server that listens on every address is asked on the loopback one.
const fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

async fn ask(address: SocketAddr) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX_BYTES).read_to_end(&mut answer).await?;
    let line = String::from_utf8_lossy(&answer);
    let line = line.lines().next().unwrap_or_default();
    if line.split(' ').nth(1) != Some("200") {
        bail!("answers {line:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_asked_on_a_loopback_one() {
        for (listen, asked) in [
            ("0.0.0.0:9090", "127.0.0.1:9090"),
            ("[::]:1", "[::1]:1"),
            ("10.0.0.7:1", "10.0.0.7:1"),
            ("127.0.0.1:2", "127.0.0.1:2"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()), asked.parse().unwrap());
        }
    }
}
