//! Why Linux does not start a file as a program, by its first bytes: for those who check a skill, and for the runner.

use std::fmt;

/// The bytes of a file that decide: the kernel reads as many.
pub const PROGRAM_HEAD_BYTES: usize = 256;

/// How programs for Linux begin that need no interpreter.
const ELF: &[u8] = b"\x7fELF";
/// What some editors write before the first character.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A reason why a file is not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoProgram {
    /// It has no execute bit.
    NotExecutable,
    /// A mark of the encoding is before the `#!`.
    ByteOrderMark,
    /// The first line ends with CR LF, and the CR is part of the last word of the interpreter's command.
    CarriageReturn(String),
    /// Nothing is after the `#!`.
    NoInterpreter,
    /// It has no `#!`, and is no program for Linux.
    NoFirstLine,
}

impl NoProgram {
    /// All reasons of a file that begins with `head`, of which [`PROGRAM_HEAD_BYTES`] count.
    pub fn of(head: &[u8], is_executable: bool) -> Vec<Self> {
        let mode = (!is_executable).then_some(Self::NotExecutable);
        mode.into_iter().chain(Self::of_content(head)).collect()
    }

    /// The reason that is in the content.
    pub fn of_content(head: &[u8]) -> Option<Self> {
        if head.starts_with(ELF) {
            return None;
        }
        if let Some(rest) = head.strip_prefix(BYTE_ORDER_MARK) {
            return Some(if rest.starts_with(b"#!") {
                Self::ByteOrderMark
            } else {
                Self::NoFirstLine
            });
        }
        let Some(line) = interpreter_line(head) else {
            return Some(Self::NoFirstLine);
        };
        let command = String::from_utf8_lossy(line);
        match command.split_whitespace().next_back() {
            None => Some(Self::NoInterpreter),
            Some(last) if line.ends_with(b"\r") => Some(Self::CarriageReturn(last.to_owned())),
            Some(_) => None,
        }
    }

    /// What to do about it: one clause.
    pub const fn cure(&self) -> &'static str {
        match self {
            Self::NotExecutable => "set its execute bit (chmod +x), or name its interpreter before it in the command",
            Self::ByteOrderMark => "save it as UTF-8 without that mark",
            Self::CarriageReturn(_) => "save it with the line ends of Unix (LF)",
            Self::NoInterpreter | Self::NoFirstLine => {
                "begin it with a line such as #!/usr/bin/env python3, or name its interpreter before it in the command"
            }
        }
    }
}

impl fmt::Display for NoProgram {
    /// One clause about the file.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotExecutable => formatter.write_str("it is not executable"),
            Self::ByteOrderMark => formatter.write_str("a byte order mark is before its #!"),
            Self::CarriageReturn(word) => write!(
                formatter,
                "its first line ends with CR LF, so that {:?} is looked for",
                format!("{word}\r")
            ),
            Self::NoInterpreter => formatter.write_str("its first line has no interpreter after #!"),
            Self::NoFirstLine => {
                formatter.write_str("it has no line #! with an interpreter, and is no program for Linux")
            }
        }
    }
}

/// The interpreter that the first line of a file names.
pub fn interpreter(head: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(interpreter_line(head)?).into_owned();
    line.split_whitespace().next().map(str::to_owned)
}

/// The first line without `#!` and its end; a line that is longer counts as far as the kernel reads it.
fn interpreter_line(head: &[u8]) -> Option<&[u8]> {
    let head = head.get(..PROGRAM_HEAD_BYTES).unwrap_or(head);
    head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_why_it_is_no_program() {
        for (head, expected) in [
            (&b"#!/usr/bin/env python3\nprint(1)\r\n"[..], None),
            (b"#! /bin/sh", None),
            (b"#!/usr/bin/env -S python3 -u\n", None),
            (b"\x7fELF\x02\x01", None),
            (
                b"#!/usr/bin/env python3\r\nprint(1)\r\n",
                Some(NoProgram::CarriageReturn("python3".to_owned())),
            ),
            (b"#!/bin/sh\r\n", Some(NoProgram::CarriageReturn("/bin/sh".to_owned()))),
            (b"#!\r\n", Some(NoProgram::NoInterpreter)),
            (b"#! \n", Some(NoProgram::NoInterpreter)),
            (b"\xef\xbb\xbf#!/bin/sh\n", Some(NoProgram::ByteOrderMark)),
            (b"\xef\xbb\xbfecho\n", Some(NoProgram::NoFirstLine)),
            (b"import sys\n", Some(NoProgram::NoFirstLine)),
            (b"MZ\x90", Some(NoProgram::NoFirstLine)),
            (b"", Some(NoProgram::NoFirstLine)),
        ] {
            let shown = String::from_utf8_lossy(head);
            assert_eq!(NoProgram::of_content(head), expected, "{shown}");
            let both: Vec<NoProgram> = [NoProgram::NotExecutable].into_iter().chain(expected.clone()).collect();
            assert_eq!(NoProgram::of(head, false), both, "{shown}");
            assert_eq!(NoProgram::of(head, true), Vec::from_iter(expected), "{shown}");
        }
        // The kernel reads no CR there either.
        let long = format!("#!/bin/sh {}\r\n", "x".repeat(PROGRAM_HEAD_BYTES));
        assert_eq!(NoProgram::of_content(long.as_bytes()), None);
        assert_eq!(
            NoProgram::CarriageReturn("python3".to_owned()).to_string(),
            "its first line ends with CR LF, so that \"python3\\r\" is looked for"
        );
    }

    #[test]
    fn the_interpreter_is_the_first_word() {
        assert_eq!(interpreter(b"#! /usr/bin/env ruby\n").as_deref(), Some("/usr/bin/env"));
        assert_eq!(interpreter(b"#!\n"), None);
        assert_eq!(interpreter(b"echo\n"), None);
    }
}
