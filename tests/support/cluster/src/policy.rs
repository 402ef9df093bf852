//! The stand-in for a network that enforces policies.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// The turn of one test: no other has a stand-in while it lives. Once told which, the sandbox pods of these namespaces may not open a
/// connection.
#[derive(Debug)]
pub struct PolicyStandIn {
    script: Child,
    said: BufReader<ChildStdout>,
}

impl PolicyStandIn {
    /// Starts the script and waits for its turn.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut script = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(script.stdout.take().unwrap());
        let mut stand_in = Self { script, said };
        stand_in.until_it_says("turn");
        stand_in
    }

    /// Enforces from now on: returns when the rules are loaded. Pods elsewhere pass once they were seen.
    pub fn enforce(&mut self, namespaces: &[&str]) {
        let mut input = self.script.stdin.take().unwrap();
        writeln!(input, "{}", namespaces.join(" ")).unwrap();
        drop(input);
        self.until_it_says("enforcing");
    }

    fn until_it_says(&mut self, expected: &str) {
        let mut word = String::new();
        self.said.read_line(&mut word).unwrap();
        assert_eq!(word.trim(), expected, "netpol.sh did not go on");
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
