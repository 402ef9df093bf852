//! The beacon that the isolation probe dials: it answers open questions, on a port that others use for TLS.
//!
//! Each probe has its own question, so that the answer to an older one, or to another program, does not count.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use knack_vocabulary::probe::{PROBE_GREETING, PROBE_WORD_BYTES};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use uuid::Uuid;

/// How long a connection may take: both lines are one packet each.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Answers the questions of probes; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Beacon(Arc<Mutex<HashMap<String, Open>>>);

/// A listener of this process, as pods reach it.
#[derive(Debug, Clone)]
pub struct ProbeTarget {
    /// The address that a probe connects to.
    pub address: SocketAddr,
    /// The beacon that answers there.
    pub beacon: Beacon,
}

#[derive(Debug)]
struct Open {
    answer: String,
    is_asked: bool,
}

/// A question that is answered while this lives.
#[derive(Debug)]
pub struct Question {
    beacon: Beacon,
    /// The probe's question.
    pub word: String,
    /// The answer that the probe must get.
    pub answer: String,
}

impl Beacon {
    /// Whether a connection is a probe's, from its first byte: no TLS record begins so.
    #[must_use]
    pub(crate) fn is_probe(first: u8) -> bool {
        PROBE_GREETING.as_bytes().first() == Some(&first)
    }

    /// Answers one probe. An unknown question gets no answer.
    pub async fn answer(&self, stream: TcpStream) {
        // A probe that disconnects has no result; its pod reports that.
        let _ = tokio::time::timeout(ANSWER_TIMEOUT, self.converse(stream)).await;
    }

    async fn converse(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let (reading, mut writing) = stream.split();
        let mut line = String::new();
        let longest = PROBE_GREETING.len() + PROBE_WORD_BYTES + 1;
        BufReader::new(reading.take(longest as u64))
            .read_line(&mut line)
            .await?;
        let Some(question) = line.strip_prefix(PROBE_GREETING) else {
            return Ok(());
        };
        let answer = self.lock().get_mut(question.trim_end()).map(|open| {
            open.is_asked = true;
            format!("{}\n", open.answer)
        });
        if let Some(answer) = answer {
            writing.write_all(answer.as_bytes()).await?;
        }
        writing.shutdown().await
    }

    /// Opens a question.
    pub fn ask(&self) -> Question {
        let word = || Uuid::new_v4().simple().to_string();
        let (question, answer) = (word(), word());
        let open = Open {
            answer: answer.clone(),
            is_asked: false,
        };
        self.lock().insert(question.clone(), open);
        Question {
            beacon: self.clone(),
            word: question,
            answer,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Open>> {
        // The map is valid between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question {
    /// Whether it was asked, whether or not the answer arrived.
    pub fn is_asked(&self) -> bool {
        self.beacon.lock().get(&self.word).is_some_and(|open| open.is_asked)
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.beacon.lock().remove(&self.word);
    }
}

impl ProbeTarget {
    /// Whether this process reaches its own listener: without that, silence in a pod proves nothing.
    pub async fn answers(&self) -> bool {
        let question = self.beacon.ask();
        let dial = async {
            let mut stream = TcpStream::connect(self.address).await?;
            let line = format!("{PROBE_GREETING}{}\n", question.word);
            stream.write_all(line.as_bytes()).await?;
            let mut answer = String::new();
            stream.take(PROBE_WORD_BYTES as u64).read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        matches!(tokio::time::timeout(ANSWER_TIMEOUT, dial).await, Ok(Ok(answer)) if answer.trim() == question.answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn target(beacon: &Beacon) -> ProbeTarget {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answering = beacon.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                answering.answer(stream).await;
            }
        });
        ProbeTarget {
            address,
            beacon: beacon.clone(),
        }
    }

    #[tokio::test]
    async fn a_question_is_answered_while_it_is_open_and_by_its_own_listener_only() {
        let beacon = Beacon::default();
        let target = target(&beacon).await;
        assert!(target.answers().await);
        assert!(beacon.lock().is_empty(), "an answered question is closed");
        let stranger = ProbeTarget {
            beacon: Beacon::default(),
            ..target.clone()
        };
        assert!(!stranger.answers().await, "another process's listener");
        let question = beacon.ask();
        assert!(!question.is_asked());
        let mut stream = TcpStream::connect(target.address).await.unwrap();
        let line = format!("{PROBE_GREETING}{}\n", question.word);
        stream.write_all(line.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer.trim(), question.answer);
        assert!(question.is_asked());
    }

    #[tokio::test]
    async fn a_listener_that_is_away_answers_nothing() {
        let beacon = Beacon::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert!(!ProbeTarget { address, beacon }.answers().await);
    }
}
