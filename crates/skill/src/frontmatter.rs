//! Splits SKILL.md into YAML frontmatter and body, at whole `---` lines.
//!
//! One byte order mark and CRLF line ends are tolerated. A `---` inside a value or in the body ends nothing.

/// What a text is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split<'a> {
    /// No opening line: everything is body.
    Absent {
        /// The text, trimmed.
        body: &'a str,
    },
    /// An opening line without a closing one.
    Unclosed {
        /// The text, opening line included, trimmed.
        body: &'a str,
    },
    /// Both lines.
    Found {
        /// Between the lines; may be empty.
        yaml: &'a str,
        /// The text after them, trimmed.
        body: &'a str,
    },
}

/// How exact the delimiter lines must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delimiters {
    /// Blanks after `---` are tolerated.
    Lenient,
    /// Nothing after the opening `---` (HUSK). Blanks after the closing one are tolerated.
    Exact,
}

/// Number of lines before the YAML text: add it to a YAML line to get the line of the file.
pub const YAML_LINE_OFFSET: u32 = 1;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// Splits a whole SKILL.md.
pub fn split(text: &str, delimiters: Delimiters) -> Split<'_> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let (first, rest) = cut_line(text);
    if !is_delimiter(first, delimiters) {
        return Split::Absent { body: text.trim() };
    }
    let mut end = 0;
    while end < rest.len() {
        let (line, after) = cut_line(&rest[end..]);
        if is_delimiter(line, Delimiters::Lenient) {
            return Split::Found {
                yaml: &rest[..end],
                body: after.trim(),
            };
        }
        end = rest.len() - after.len();
    }
    Split::Unclosed { body: text.trim() }
}

/// The first line without its end, and what follows it.
fn cut_line(text: &str) -> (&str, &str) {
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    (line.strip_suffix('\r').unwrap_or(line), rest)
}

fn is_delimiter(line: &str, delimiters: Delimiters) -> bool {
    match delimiters {
        Delimiters::Exact => line == "---",
        Delimiters::Lenient => line.trim_end_matches([' ', '\t']) == "---",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Split<'_>) {
        assert_eq!(split(text, Delimiters::Lenient), expected);
    }

    #[test]
    fn splits_at_whole_lines() {
        check(
            "---\na: x---y\n--- z\n---\nb\n---\nc\n",
            Split::Found {
                yaml: "a: x---y\n--- z\n",
                body: "b\n---\nc",
            },
        );
    }

    #[test]
    fn tolerates_mark_crlf_and_no_final_newline() {
        check(
            "\u{feff}---\r\na: 1\r\n---\r\nb\r\n",
            Split::Found {
                yaml: "a: 1\r\n",
                body: "b",
            },
        );
        check("---\n---", Split::Found { yaml: "", body: "" });
    }

    #[test]
    fn text_without_an_opening_line_is_all_body() {
        check(" ---\na: 1\n---\n", Split::Absent { body: "---\na: 1\n---" });
        check(
            "---name: x\n---\nb",
            Split::Absent {
                body: "---name: x\n---\nb",
            },
        );
        check("", Split::Absent { body: "" });
    }

    #[test]
    fn a_missing_closing_line_is_an_error_of_its_own() {
        check("---", Split::Unclosed { body: "---" });
        check("---\na: 1\n", Split::Unclosed { body: "---\na: 1" });
    }

    #[test]
    fn an_exact_opening_line_has_no_trailing_blanks() {
        assert!(matches!(
            split("--- \na: 1\n---\n", Delimiters::Exact),
            Split::Absent { .. }
        ));
        assert!(matches!(
            split("--- \na: 1\n---\n", Delimiters::Lenient),
            Split::Found { .. }
        ));
    }
}
