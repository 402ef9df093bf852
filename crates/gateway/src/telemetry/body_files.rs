//! `--record DIR`: the bodies of every model request, before and after the gateway, as files that a person can diff.
//!
//! Credentials are headers and are not written. Bodies are: the folder is for debugging on one's own machine.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::files::private;

/// Bodies that wait to be written. A slow disk loses recordings, never requests.
const QUEUE: usize = 256;

#[derive(Debug)]
enum RecorderMessage {
    Body(String, Bytes),
    /// Everything before this is written.
    Written(oneshot::Sender<()>),
}

/// Writes bodies in the background.
#[derive(Debug, Clone)]
pub struct BodyRecorder {
    queue: mpsc::Sender<RecorderMessage>,
    counter: std::sync::Arc<AtomicU64>,
}

/// The recording of one request: names its files by number and request id.
#[derive(Debug, Clone)]
pub struct Recording {
    recorder: BodyRecorder,
    prefix: String,
}

impl BodyRecorder {
    /// Records into `folder`, which is created. Must be called within a tokio runtime.
    pub fn start(folder: PathBuf) -> std::io::Result<Self> {
        private::create_folder(&folder)?;
        let (queue, mut waiting) = mpsc::channel(QUEUE);
        tokio::spawn(async move {
            while let Some(item) = waiting.recv().await {
                let (name, body) = match item {
                    RecorderMessage::Body(name, body) => (name, body),
                    RecorderMessage::Written(done) => {
                        let _ = done.send(());
                        continue;
                    }
                };
                if let Err(error) = private::write(&folder.join(&name), &body).await {
                    tracing::warn!(%error, name, "recording a body failed");
                }
            }
        });
        Ok(Self {
            queue,
            counter: std::sync::Arc::default(),
        })
    }

    /// Waits until everything so far is written.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        // An error means that the writing task has ended.
        if self.queue.send(RecorderMessage::Written(done)).await.is_ok() {
            let _ = written.await;
        }
    }

    /// Begins the recording of one request.
    pub fn request(&self, request_id: &str) -> Recording {
        let number = self.counter.fetch_add(1, Ordering::Relaxed) + 1;
        Recording {
            recorder: self.clone(),
            prefix: format!("{number:04}-{request_id}"),
        }
    }
}

impl Recording {
    /// Writes one body; `what` is for example `request.json` or `upstream-2.json`.
    pub fn write(&self, what: &str, body: Bytes) {
        if self
            .recorder
            .queue
            .try_send(RecorderMessage::Body(format!("{}.{what}", self.prefix), body))
            .is_err()
        {
            tracing::warn!(what, "recording skipped: the disk is slower than the traffic");
        }
    }
}
