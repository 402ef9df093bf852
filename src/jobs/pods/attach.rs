//! Frames over a pod's attach stream.

use k8s_openapi::api::core::v1::Pod;
use knack_execution::ExecutionError;
use knack_execution::conversation::Transport;
use knack_runner::protocol::{Decoder, FromRunner, Incoming, Key, OwnerLink, ToRunner};
use kube::Api;
use kube::api::AttachParams;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::jobs::names::CONTAINER;

/// Bytes that wait on their way into the pod: one small request as a whole, so that a warm call is one write.
const STDIN_BYTES: usize = 256 << 10;

/// Bytes that wait on their way out: a few frames. The reader never waits for a caller, so more would be idle memory.
const STDOUT_BYTES: usize = 64 << 10;

/// One read.
const READ_BYTES: usize = 32 << 10;

/// The one attacher of a pod. Dropping it ends the stream, never the run.
pub(in crate::jobs) struct Attachment {
    stdin: Box<dyn AsyncWrite + Send + Unpin>,
    stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Aborts the stream when dropped.
    _guard: Box<dyn Send + Sync>,
    decoder: Decoder,
    scratch: Box<[u8]>,
    link: OwnerLink,
    /// The runner has shown that it has this hub's key: from now on a line that it has not made is an error.
    is_bound: bool,
}

impl std::fmt::Debug for Attachment {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Attachment")
            .field("is_bound", &self.is_bound)
            .finish_non_exhaustive()
    }
}

impl Attachment {
    /// Attaches. Errors: the container does not run, or the API server refuses.
    pub(super) async fn open(api: &Api<Pod>, pod: &str, key: Key) -> kube::Result<Self> {
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
        Ok(Self::over(stdin, stdout, process, key))
    }

    /// Over the streams of a container's stdin and stdout, which end with `guard`.
    pub(super) fn over(
        stdin: impl AsyncWrite + Send + Unpin + 'static,
        stdout: impl AsyncRead + Send + Unpin + 'static,
        guard: impl Send + Sync + 'static,
        key: Key,
    ) -> Self {
        Self {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            _guard: Box::new(guard),
            decoder: Decoder::new(),
            scratch: vec![0; READ_BYTES].into(),
            link: OwnerLink::new(key),
            is_bound: false,
        }
    }

    /// Claims the runner.
    pub(super) async fn bind(&mut self) -> Result<(), ExecutionError> {
        let line = self.link.bind();
        self.send(&line).await
    }

    /// Sends a frame.
    pub(in crate::jobs) async fn send_frame(&mut self, frame: &ToRunner) -> Result<(), ExecutionError> {
        let line = self.encode(frame);
        self.send(&line).await
    }

    /// The next message of any kind. Cancel-safe.
    pub(super) async fn receive(&mut self) -> Result<Incoming, ExecutionError> {
        loop {
            match self.decoder.next_line() {
                Some(Ok(line)) => {
                    let received = self.link.read(line);
                    self.is_bound |= matches!(received, Incoming::Frame(_));
                    return Ok(received);
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

    /// Reads on until the pod ends the stream.
    pub(in crate::jobs) async fn drain(&mut self) {
        while !matches!(self.stdout.read(&mut self.scratch).await, Ok(0) | Err(_)) {}
    }
}

impl Transport for Attachment {
    fn encode(&mut self, frame: &ToRunner) -> Vec<u8> {
        self.link.encode(frame)
    }

    fn request_digest(&self) -> String {
        self.link.request_digest()
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), ExecutionError> {
        self.stdin.write_all(bytes).await.map_err(|_| detached())
    }

    async fn next(&mut self) -> Result<FromRunner, ExecutionError> {
        loop {
            let is_bound = self.is_bound;
            match self.receive().await? {
                Incoming::Frame(frame) => return Ok(frame),
                Incoming::Gap { due, came } => {
                    return Err(ExecutionError::Internal(format!(
                        "frames {due} to {came} of the runner are missing"
                    )));
                }
                // Only the runner writes to its stdout.
                Incoming::Unproven(_) | Incoming::Nothing if is_bound => {
                    return Err(ExecutionError::Internal(
                        "a frame without the runner's authentication".into(),
                    ));
                }
                Incoming::Unproven(_) | Incoming::Nothing => {}
            }
        }
    }
}

/// The stream has ended. This is never the end of a run: the pod's state decides that.
fn detached() -> ExecutionError {
    ExecutionError::Internal("the attach stream ended".into())
}
