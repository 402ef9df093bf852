//! The isolation probe: no code of anybody, no locks; does the network let a sandbox pod out?

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A policy that drops packets is seen by silence; a listener in the same cluster answers within milliseconds.
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);

/// What `knack-runner --probe` prints, as one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Whom it dialled.
    pub target: SocketAddr,
    /// What came of it.
    pub outcome: ProbeOutcome,
}

/// What came of a dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeOutcome {
    /// Connected: nothing stands between a sandbox pod and the network.
    Connected,
    /// No answer in time.
    Silence,
    /// Refused: by the policy, or by the target itself. Only a dial of the owner tells which.
    Refused,
    /// No way there.
    Unreachable,
    /// Something else.
    Failed,
}

impl Probe {
    /// Dials.
    pub fn dial(target: SocketAddr) -> Self {
        let outcome = match TcpStream::connect_timeout(&target, DIAL_TIMEOUT) {
            Ok(_) => ProbeOutcome::Connected,
            Err(error) => match error.kind() {
                ErrorKind::TimedOut | ErrorKind::WouldBlock => ProbeOutcome::Silence,
                ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => ProbeOutcome::Refused,
                ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => ProbeOutcome::Unreachable,
                _ => ProbeOutcome::Failed,
            },
        };
        Self { target, outcome }
    }
}
