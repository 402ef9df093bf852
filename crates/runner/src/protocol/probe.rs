//! The isolation probe, which runs no user code and sets no locks: does the network let a sandbox pod out, and for how long?
//!
//! A successful connect proves little: a mesh's proxy inside the pod accepts any. So the probe sends a question, and
//! only the intended listener has the answer.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use knack_vocabulary::probe::{PROBE_GREETING, PROBE_WORD_BYTES};
use serde::{Deserialize, Serialize};

/// A policy that drops packets is seen by silence; a listener in the same cluster answers within milliseconds. Long enough for
/// one packet that is lost by chance to be sent again (1 s).
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two dials.
const PAUSE: Duration = Duration::from_secs(1);
/// A network that blocks is probed at least for this long: some are not up yet at a pod's first packet.
const SHORTEST: Duration = Duration::from_secs(5);
/// A network that lets the pod out is probed for this long: plugins that apply policies after a pod's start take
/// seconds.
const LONGEST: Duration = Duration::from_secs(20);

/// The output of `knack-runner --probe`, as one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Whom it dialled.
    pub target: SocketAddr,
    /// The questions.
    pub question: String,
    /// The outcomes, in order.
    pub dials: Vec<Dial>,
}

/// One dial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dial {
    /// When it ended, milliseconds since the probe began.
    pub at_ms: u64,
    /// The outcome.
    pub outcome: DialOutcome,
}

/// The outcome of a dial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DialOutcome {
    /// There was an answer; only the sender of the question can judge whether it is right.
    Answered(String),
    /// Something took the connection and did not answer: a proxy, or another listener.
    Connected,
    /// Nothing came back in time.
    Silence,
    /// Refused: by the policy, or by the target itself. Only a connection by the owner shows which.
    Refused,
    /// No way there.
    Unreachable,
    /// Something else.
    Failed,
}

impl DialOutcome {
    /// Whether nothing answered although a listener was there to.
    #[must_use]
    pub const fn is_blocked(&self) -> bool {
        matches!(
            self,
            Self::Connected | Self::Silence | Self::Refused | Self::Unreachable
        )
    }
}

impl Probe {
    /// Dials again and again, 5 to 22 s long.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "one thread, which does nothing else")]
    pub fn run(target: SocketAddr, question: &str) -> Self {
        let began = Instant::now();
        let mut dials = Vec::new();
        loop {
            let outcome = dial(target, question);
            let at = began.elapsed();
            dials.push(Dial {
                at_ms: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
                outcome,
            });
            if is_enough(&dials, at) {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Self {
            target,
            question: question.to_owned(),
            dials,
        }
    }
}

/// Whether the network has been asked for long enough.
fn is_enough(dials: &[Dial], at: Duration) -> bool {
    let is_settled = matches!(dials, [.., one, other] if one.outcome.is_blocked() && other.outcome.is_blocked());
    at >= LONGEST || (is_settled && at >= SHORTEST)
}

fn dial(target: SocketAddr, question: &str) -> DialOutcome {
    let mut stream = match TcpStream::connect_timeout(&target, DIAL_TIMEOUT) {
        Ok(stream) => stream,
        Err(error) => return refusal(error.kind()),
    };
    let mut answer = Vec::new();
    let mut ask = || {
        stream.set_read_timeout(Some(DIAL_TIMEOUT))?;
        stream.set_write_timeout(Some(DIAL_TIMEOUT))?;
        stream.write_all(format!("{PROBE_GREETING}{question}\n").as_bytes())?;
        (&stream).take(PROBE_WORD_BYTES as u64).read_to_end(&mut answer)
    };
    // Bytes before a broken connection count.
    let _ = ask();
    let answer = String::from_utf8_lossy(&answer).trim().to_owned();
    if answer.is_empty() {
        DialOutcome::Connected
    } else {
        DialOutcome::Answered(answer)
    }
}

fn refusal(kind: ErrorKind) -> DialOutcome {
    match kind {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => DialOutcome::Silence,
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => DialOutcome::Refused,
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => DialOutcome::Unreachable,
        _ => DialOutcome::Failed,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_network_that_blocks_is_asked_twice_and_one_that_opens_until_it_would_have_closed() {
        let dial = |outcome: &DialOutcome| Dial {
            at_ms: 0,
            outcome: outcome.clone(),
        };
        let (open, shut) = (DialOutcome::Answered("a".to_owned()), DialOutcome::Silence);
        for (outcomes, seconds, enough) in [
            (vec![&shut], 2, false),
            (vec![&shut], 6, false),
            (vec![&shut, &shut], 4, false),
            (vec![&shut, &shut], 5, true),
            (vec![&open, &shut], 6, false),
            (vec![&open, &shut, &shut], 6, true),
            (vec![&shut, &open], 6, false),
            (vec![&open, &open, &open], 19, false),
            (vec![&open, &open, &open], 20, true),
            (vec![&DialOutcome::Failed, &DialOutcome::Failed], 6, false),
        ] {
            let dials: Vec<Dial> = outcomes.iter().map(|outcome| dial(outcome)).collect();
            let at = Duration::from_secs(seconds);
            assert_eq!(is_enough(&dials, at), enough, "{outcomes:?} after {seconds} s");
        }
    }

    #[test]
    fn only_an_answer_to_the_question_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            (&stream).write_all(b"the answer\n").unwrap();
            drop(stream);
            // Takes a connection and says nothing, as a proxy without a way on does.
            drop(listener.accept().unwrap());
            line
        });
        assert_eq!(dial(target, "why"), DialOutcome::Answered("the answer".to_owned()));
        assert_eq!(dial(target, "why"), DialOutcome::Connected);
        assert_eq!(serving.join().unwrap(), "knack-probe why\n");
        assert_eq!(dial(target, "why"), DialOutcome::Refused);
    }
}
