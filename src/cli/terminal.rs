//! All output to the terminal; no other module writes to it.
//!
//! Names of files and models, and what programs write, come from others: control characters in them would move the
//! cursor, change the title, or pretend to be another line. They are shown as escapes.

use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;

use knack_gateway::telemetry::log::RequestLog;
use knack_gateway::telemetry::observe::Console;
use knack_telemetry::{LineWriter, LineWriterGuard};

/// Standard output of a process that serves: written by a thread of its own, so that no request waits for a terminal that is stopped.
static SERVED: OnceLock<LineWriter> = OnceLock::new();

/// From now on [`line`] waits for no reader. What is not written yet is written when the result is dropped.
///
/// Errors: the system gives no thread for it.
pub fn serve_lines() -> std::io::Result<LineWriterGuard> {
    let left_out = |count| format!("({count} lines were dropped: the terminal or pipe did not read them fast enough)");
    let (lines, guard) = LineWriter::start(std::io::stdout(), left_out)?;
    // A second call changes nothing.
    let _ = SERVED.set(lines);
    Ok(guard)
}

/// Why something that was written to standard output is missing there.
static NOT_WRITTEN: OnceLock<std::io::Error> = OnceLock::new();

/// The first error of standard output. `None`: everything was written, or nobody reads it any more.
pub fn not_written() -> Option<&'static std::io::Error> {
    NOT_WRITTEN.get()
}

/// A closed pipe (`knack … | head`) is the reader's choice; anything else, such as a full disk, is an error of the command.
fn remember(written: std::io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        // The first is the cause.
        let _ = NOT_WRITTEN.set(error);
    }
}

/// A line for the person or program that asked: standard output.
pub fn line(text: &str) {
    write_line(visible(text, true));
}

fn write_line(text: Cow<'_, str>) {
    if let Some(lines) = SERVED.get() {
        let mut line = text.into_owned();
        line.push('\n');
        lines.send(line.into_bytes());
    } else {
        let mut out = std::io::stdout().lock();
        remember(writeln!(out, "{text}").and_then(|()| out.flush()));
    }
}

/// The output of a program: standard output, byte for byte unless a person reads it.
pub fn raw(bytes: &[u8]) {
    remember(write_raw(&mut std::io::stdout().lock(), bytes));
}

/// The output of a program: standard error, byte for byte unless a person reads it.
pub fn raw_error(bytes: &[u8]) {
    let _ = write_raw(&mut std::io::stderr().lock(), bytes);
}

fn write_raw(out: &mut (impl Write + IsTerminal), bytes: &[u8]) -> std::io::Result<()> {
    let written = if out.is_terminal() {
        out.write_all(visible(&String::from_utf8_lossy(bytes), true).as_bytes())
    } else {
        out.write_all(bytes)
    };
    written.and_then(|()| out.flush())
}

/// Progress and remarks: standard error, so that output stays clean.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", visible(text, true));
}

/// A name that others chose, as a part of a line: a line feed in it does not begin another one.
pub fn name(text: &str) -> Cow<'_, str> {
    visible(text, false)
}

/// A failure: standard error.
pub fn error(text: &str) {
    note(&format!("error: {text}"));
}

/// The text with characters that steer a terminal shown as escapes; line feeds and tabs stay in a text of several lines.
fn visible(text: &str, several_lines: bool) -> Cow<'_, str> {
    let steers = |c: char| match c {
        '\n' | '\t' => !several_lines,
        // Separators of lines, and what turns the direction of writing.
        '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => c.is_control(),
    };
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_plain || !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if steers(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// The terminal as a gateway's console.
#[derive(Debug, Clone, Copy)]
pub struct Terminal;

impl Console for Terminal {
    fn show(&self, request: &RequestLog) {
        write_line(visible(&request.line(), false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown_as_escapes() {
        for (text, one_line, several_lines) in [
            ("plain ä 日本", "plain ä 日本", "plain ä 日本"),
            ("a\u{1b}[2Jb", "a\\u{1b}[2Jb", "a\\u{1b}[2Jb"),
            ("a\nb\tc", "a\\nb\\tc", "a\nb\tc"),
            ("a\rb\u{7}", "a\\rb\\u{7}", "a\\rb\\u{7}"),
            ("\u{9b}31m", "\\u{9b}31m", "\\u{9b}31m"),
            ("x\u{202e}gpj.exe", "x\\u{202e}gpj.exe", "x\\u{202e}gpj.exe"),
        ] {
            assert_eq!(visible(text, false), one_line);
            assert_eq!(visible(text, true), several_lines);
        }
    }
}
