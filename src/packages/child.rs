//! Programs that a build needs, as bounded child processes.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use knack_packages::State;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::build_error::BuildError;

/// Most output that is read of it: a lock of 200 packages with all hashes is 2 MiB.
const MAX_OUTPUT: u64 = 8 << 20;

/// How often the size of what it writes is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A program on `PATH`, in folders that are named from the root.
pub(super) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&path).map(|directory| directory.join(name));
    candidates.find(|path| path.is_absolute() && path.is_file())
}

/// A folder that a program fills, and what it may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound<'a> {
    pub(super) folder: &'a Path,
    pub(super) bytes: u64,
    pub(super) files: u64,
}

/// The output of a program that ended.
#[derive(Debug)]
pub(super) struct ProgramOutput {
    pub(super) is_success: bool,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Runs a program once. `absent` is the state if it does not start.
///
/// Errors: it does not start, the time is over, or the bound is passed. It is ended with all its children in every case.
pub(super) async fn run(
    mut command: Command,
    name: &str,
    absent: State,
    time: Duration,
    bound: Bound<'_>,
) -> Result<ProgramOutput, BuildError> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    let started = command.spawn();
    let mut child = started.map_err(|error| BuildError::new(absent, format!("{name} does not start: {error}")))?;
    let group = Group(child.id());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let talk = async {
        let (stdout, stderr, status) = tokio::join!(read(stdout), read(stderr), child.wait());
        (stdout, stderr, status)
    };
    let ended = tokio::select! {
        ended = tokio::time::timeout(time, talk) => ended.map_err(|_| {
            BuildError::new(State::TimedOut, format!("{name} did not finish within {} s and was ended", time.as_secs()))
        }),
        error = watch(bound) => Err(error),
    };
    drop(group);
    let (stdout, stderr, status) = ended?;
    let status = status.map_err(|error| BuildError::new(State::Failed, format!("{name}: {error}")))?;
    Ok(ProgramOutput {
        is_success: status.success(),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    })
}

/// The process group of a child; ended when it is dropped.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let pid = self
            .0
            .and_then(|id| i32::try_from(id).ok())
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // It is gone already where everything went well.
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        // The part that was read counts even if the rest cannot be.
        let _ = (&mut stream).take(MAX_OUTPUT).read_to_end(&mut bytes).await;
        // Bytes over the bound are read and discarded, so that the program does not wait for a reader.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
    bytes
}

/// Ends when the folder holds more than it may.
async fn watch(bound: Bound<'_>) -> BuildError {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let folder = bound.folder.to_path_buf();
        let size = tokio::task::spawn_blocking(move || super::layout::measure(&folder)).await;
        if let Ok(size) = size
            && let Some(error) = size.over(bound.bytes, bound.files)
        {
            return error;
        }
    }
}
