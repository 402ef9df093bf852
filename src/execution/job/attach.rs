//! Frames over a pod's attach stream.

use k8s_openapi::api::core::v1::Pod;
use knack_runner::protocol::{Decoder, FromRunner, open};
use kube::Api;
use kube::api::{AttachParams, AttachedProcess};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::names::CONTAINER;
use crate::execution::ExecutionError;
use crate::execution::conversation::Transport;

/// What waits on its way into the pod: one small request as a whole, so that a warm call is one write.
const STDIN_BYTES: usize = 256 << 10;

/// What waits on its way out: a few frames. The reader never waits for a caller, so more would be idle memory.
const STDOUT_BYTES: usize = 64 << 10;

/// One read.
const READ_BYTES: usize = 32 << 10;

/// The one attacher of a pod. Dropping it ends the stream, never the run.
pub(super) struct Attached {
    stdin: Box<dyn AsyncWrite + Send + Unpin>,
    stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Aborts the stream when dropped.
    _process: AttachedProcess,
    decoder: Decoder,
    scratch: Box<[u8]>,
    nonce: String,
    key: [u8; 32],
    /// The bound nonce was echoed: from now on a line that is no frame is an error.
    is_bound: bool,
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Attached")
            .field("is_bound", &self.is_bound)
            .finish_non_exhaustive()
    }
}

impl Attached {
    /// Attaches. Errors: the container does not run, or the API server refuses.
    pub(super) async fn open(api: &Api<Pod>, pod: &str, nonce: String, key: [u8; 32]) -> kube::Result<Self> {
        let parameters = AttachParams::default()
            .container(CONTAINER)
            .stdin(true)
            .stdout(true)
            .stderr(false)
            .max_stdin_buf_size(STDIN_BYTES)
            .max_stdout_buf_size(STDOUT_BYTES);
        let mut process = api.attach(pod, &parameters).await?;
        let (Some(stdin), Some(stdout)) = (process.stdin(), process.stdout()) else {
            return Err(kube::Error::Service("the attach stream has no channels".into()));
        };
        Ok(Self {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            _process: process,
            decoder: Decoder::new(),
            scratch: vec![0; READ_BYTES].into(),
            nonce,
            key,
            is_bound: false,
        })
    }

    /// Reads on until the pod ends the stream.
    pub(super) async fn drain(&mut self) {
        while !matches!(self.stdout.read(&mut self.scratch).await, Ok(0) | Err(_)) {}
    }
}

impl Transport for Attached {
    fn nonce(&self) -> String {
        self.nonce.clone()
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), ExecutionError> {
        self.stdin.write_all(bytes).await.map_err(|_| detached())
    }

    async fn next(&mut self) -> Result<FromRunner, ExecutionError> {
        loop {
            match self.decoder.next_frame() {
                Some(Ok(FromRunner::Sealed(sealed))) if sealed.nonce == self.nonce => {
                    return open(&self.key, &sealed)
                        .ok_or_else(|| ExecutionError::Internal("a sealed frame does not open".into()));
                }
                Some(Ok(FromRunner::Sealed(_))) => {}
                Some(Ok(frame)) => {
                    self.is_bound |= matches!(&frame, FromRunner::Claimed(claimed) if claimed.nonce == self.nonce);
                    return Ok(frame);
                }
                // The stream may begin in the middle of a line.
                Some(Err(_)) if !self.is_bound => {}
                Some(Err(error)) => return Err(ExecutionError::Internal(error.to_string())),
                None => match self.stdout.read(&mut self.scratch).await {
                    Ok(0) | Err(_) => return Err(detached()),
                    Ok(count) => self.decoder.push(&self.scratch[..count]),
                },
            }
        }
    }
}

/// The stream has ended. Never the end of a run: the pod tells that.
fn detached() -> ExecutionError {
    ExecutionError::Internal("the attach stream ended".into())
}
