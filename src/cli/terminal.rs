//! The one place that writes to the terminal.

use std::io::Write;

use crate::gateway::observe::Console;

/// A line for the person or program that asked: standard output.
pub fn line(text: &str) {
    // A closed pipe (`knack … | head`) ends nothing that matters.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Bytes as they are: standard output.
pub fn raw(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

/// Bytes as they are: standard error.
pub fn raw_error(bytes: &[u8]) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

/// Progress and remarks: standard error, so that output stays clean.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// A failure: standard error.
pub fn error(text: &str) {
    note(&format!("error: {text}"));
}

/// The terminal as a gateway's console.
#[derive(Debug, Clone, Copy)]
pub struct Terminal;

impl Console for Terminal {
    fn line(&self, text: &str) {
        line(text);
    }
}
