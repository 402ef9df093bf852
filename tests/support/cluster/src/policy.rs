//! The stand-in for a network that enforces policies.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// While it lives, the sandbox pods that it was given may not open a connection.
#[derive(Debug)]
pub struct PolicyStandIn {
    script: Child,
}

impl PolicyStandIn {
    /// Starts the script and waits for its word that the rules are loaded.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut script = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut word = String::new();
        BufReader::new(script.stdout.as_mut().unwrap())
            .read_line(&mut word)
            .unwrap();
        let stand_in = Self { script };
        assert_eq!(word.trim(), "enforcing", "netpol.sh did not start");
        stand_in
    }
}

// SIGTERM, so that the script takes its rules away.
impl Drop for PolicyStandIn {
    fn drop(&mut self) {
        let pid = i32::try_from(self.script.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.script.wait();
    }
}
