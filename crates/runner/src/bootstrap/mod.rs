//! The bootstraps: what an interpreter does between its start and the program.
//!
//! A bootstrap writes [`READY`] to stdout, reads its stdin to the end, replaces it by /dev/null, and runs the program
//! it found there ([`payload`]) as if it had been started with it.

use std::ffi::OsString;

use crate::protocol::{Interpreter, Language};

/// The bytes that a bootstrap writes to stdout when it waits for the program; no program can have written anything before.
pub(crate) const READY: &[u8] = b"\0knack-ready\n";

const PYTHON: &str = include_str!("python.py");
const NODE: &str = include_str!("node.js");

/// The arguments that make the interpreter wait for a program.
pub(crate) fn arguments(interpreter: &Interpreter) -> Vec<OsString> {
    let words: &[&str] = match interpreter.language {
        // Isolated: no user site, no PYTHON* variables, no script directory. UTF-8 in every locale.
        Language::Python => &["-I", "-B", "-X", "utf8", "-c", PYTHON],
        Language::Node => &["-e", NODE],
    };
    words.iter().map(OsString::from).collect()
}

/// The message on the bootstrap's stdin: a line with the length of every item, then the items.
///
/// Items: the working directory, the number of arguments, the arguments, `NAME=value` for each added variable, the
/// source.
pub(crate) fn payload(cwd: &[u8], arguments: &[String], environment: &[(String, String)], source: &str) -> Vec<u8> {
    let count = arguments.len().to_string();
    let pairs: Vec<String> = environment
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let mut items: Vec<&[u8]> = vec![cwd, count.as_bytes()];
    items.extend(arguments.iter().map(String::as_bytes));
    items.extend(pairs.iter().map(String::as_bytes));
    items.push(source.as_bytes());
    let lengths: Vec<String> = items.iter().map(|item| item.len().to_string()).collect();
    let mut message = lengths.join(" ").into_bytes();
    message.push(b'\n');
    for item in items {
        message.extend_from_slice(item);
    }
    message
}
