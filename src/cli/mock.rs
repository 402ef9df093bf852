//! `knack mock`: the scripted model as a process of its own, for demonstrations and tests in a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use knack_mock_provider::{Script, serve};
use tokio::net::TcpListener;

use super::listen_address::listen_address;
use super::terminal;

/// Arguments of `knack mock`.
#[derive(Debug, Args)]
pub struct MockArgs {
    /// Address to serve on
    #[arg(long, default_value = "127.0.0.1:4142", value_parser = listen_address)]
    listen: SocketAddr,
    /// Script of the model's answers; the built-in script when absent
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
}

/// Serves until Ctrl-C or SIGTERM.
pub async fn mock(args: MockArgs) -> anyhow::Result<ExitCode> {
    let script = match &args.script {
        Some(path) => {
            let text = tokio::fs::read_to_string(path)
                .await
                .with_context(|| format!("--script {}: the script cannot be read", path.display()))?;
            Script::parse(&text).map_err(|error| anyhow::anyhow!("--script {}: {error}", path.display()))?
        }
        None => Script::built_in(),
    };
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("--listen {}: cannot listen on this address", args.listen))?;
    terminal::line(&format!(
        "a scripted model answers on http://{}",
        listener.local_addr()?
    ));
    tokio::select! {
        result = serve(Arc::new(script), listener) => result?,
        () = knack_serving::signals::stop() => {}
    }
    Ok(ExitCode::SUCCESS)
}
