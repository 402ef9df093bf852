//! Programs of the host that a skill's texts and scripts name: document converters and the like.
//!
//! A skill does not declare programs, so texts are searched for names of a list of programs whose names have no other meaning.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use knack_skill::model::SkillFile;

use crate::finding::{Finding, FindingKind};
use crate::imports::{MAX_SCRIPT_BYTES, MAX_SCRIPTS};

const TABLE: &str = include_str!("data/programs.txt");

static PROGRAMS: LazyLock<BTreeMap<&'static str, Program>> = LazyLock::new(|| {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let read = lines.filter_map(|line| {
        let (line, unusable) = line
            .split_once(" | ")
            .map_or((line, None), |(line, why)| (line, Some(why)));
        let mut words = line.split(' ');
        let (name, debian, homebrew) = (words.next()?, words.next()?, words.next()?);
        Some(Program {
            name,
            unusable,
            debian,
            homebrew,
        })
    });
    read.map(|program| (program.name, program)).collect()
});

/// Files in which names count: instructions and scripts.
const ENDINGS: [&str; 7] = [".md", ".py", ".sh", ".bash", ".js", ".mjs", ".ts"];

/// A program that is known by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// The name of its command.
    pub name: &'static str,
    /// Why runs on a machine that has it cannot use it all the same, as a clause.
    pub unusable: Option<&'static str>,
    /// The Debian package that has it.
    debian: &'static str,
    /// The Homebrew formula that has it.
    homebrew: &'static str,
}

impl Program {
    /// How to install it: one clause.
    pub fn help(&self) -> String {
        format!(
            "get it with: apt-get install {}, or brew install {}",
            self.debian, self.homebrew
        )
    }
}

/// The first place at which a skill names a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    /// The program.
    pub program: Program,
    /// The file, relative to the skill's folder.
    pub file: String,
    /// Line from 1.
    pub line: usize,
}

/// Whether runs on this machine can start a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramState {
    /// Runs can start it.
    Here,
    /// Present, but runs cannot start it; the reason as a clause.
    Closed(String),
    /// Absent.
    Absent,
}

/// All programs of the list, by name.
pub fn known() -> impl Iterator<Item = Program> {
    PROGRAMS.values().copied()
}

/// The programs that a skill names, by name. No input panics; the work is bounded by the size of the files.
pub fn named(files: &BTreeMap<String, SkillFile>) -> Vec<Mention> {
    let is_read = |path: &str, file: &SkillFile| {
        file.bytes.len() <= MAX_SCRIPT_BYTES && ENDINGS.iter().any(|ending| path.ends_with(ending))
    };
    let read = files
        .iter()
        .filter(|(path, file)| is_read(path, file))
        .take(MAX_SCRIPTS);
    let mut found: BTreeMap<&str, Mention> = BTreeMap::new();
    for (path, file) in read {
        for (index, line) in String::from_utf8_lossy(&file.bytes).lines().enumerate() {
            for program in words(line).filter_map(|word| PROGRAMS.get(word)) {
                found.entry(program.name).or_insert_with(|| Mention {
                    program: *program,
                    file: path.clone(),
                    line: index + 1,
                });
            }
        }
    }
    found.into_values().collect()
}

/// Words of letters, digits and `-`, apart from parts of a dotted name: `soffice.py` is a module, `pandoc.org` a host, and
/// a full stop ends a sentence.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.');
    line.split(move |letter| !is_part(letter))
        .map(|word| word.trim_end_matches('.'))
}

/// Findings about the programs that a machine misses, at the places that name them.
pub fn missing(mentions: &[Mention], state: &dyn Fn(&str) -> ProgramState) -> Vec<Finding> {
    let findings = mentions.iter().filter_map(|mention| {
        let name = mention.program.name;
        let (text, help) = match state(name) {
            ProgramState::Here => (
                format!(
                    "the program {name} is named, but runs on this machine cannot use it: {}",
                    mention.program.unusable?
                ),
                "on a cluster the image sandbox-office has it".to_owned(),
            ),
            ProgramState::Absent => (
                format!("the program {name} is named but not installed on this machine"),
                mention.program.help(),
            ),
            ProgramState::Closed(why) => (
                format!("the program {name} is named, but runs cannot start it: {why}"),
                "install it under /usr".to_owned(),
            ),
        };
        Some(Finding::new(
            FindingKind::ProgramMissing,
            &mention.file,
            mention.line,
            text,
            help,
        ))
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::files;

    #[test]
    fn every_line_of_the_table_is_read_and_sorted() {
        let lines: Vec<&str> = TABLE.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(known().count(), lines.len());
        assert!(lines.is_sorted());
        let unusable: Vec<&str> = known()
            .filter(|program| program.unusable.is_some())
            .map(|program| program.name)
            .collect();
        assert_eq!(unusable, ["libreoffice", "soffice"]);
    }

    #[test]
    fn names_count_as_words_of_their_own() {
        for (line, expected) in [
            ("Run `pdftotext -layout a.pdf -`.", Some("pdftotext")),
            ("subprocess.run([\"soffice\", \"--headless\"])", Some("soffice")),
            ("/usr/bin/pandoc a.md", Some("pandoc")),
            ("then use qpdf.", Some("qpdf")),
            ("out=$(tesseract a.png -)", Some("tesseract")),
            ("rsvg-convert a.svg", Some("rsvg-convert")),
            ("import pytesseract", None),
            ("from office.soffice import run", None),
            ("python scripts/office/soffice.py", None),
            ("see https://pandoc.org", None),
            ("LibreOffice is a suite", None),
            ("my_qpdf = 1; qpdf-like", None),
        ] {
            let found = named(&files(&[("SKILL.md", line)]));
            let names: Vec<&str> = found.iter().map(|mention| mention.program.name).collect();
            assert_eq!(names, expected.as_slice(), "{line}");
        }
    }

    #[test]
    fn the_first_place_is_reported_with_what_to_do() {
        let skill = files(&[
            ("SKILL.md", "x\nqpdf and pandoc\n"),
            ("scripts/a.py", "'qpdf'\n'soffice'\n"),
            ("data.csv", "pdftotext"),
            ("scripts/b.py", "'libreoffice'\n"),
        ]);
        let state = |name: &str| match name {
            "pandoc" | "libreoffice" => ProgramState::Here,
            "soffice" => ProgramState::Closed("it is in /opt/office".to_owned()),
            _ => ProgramState::Absent,
        };
        let findings: Vec<String> = missing(&named(&skill), &state)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            findings,
            [
                "scripts/b.py:1: the program libreoffice is named, but runs on this machine cannot use it: it opens a socket, and runs have none: it does not start inside the sandbox (on a cluster the image sandbox-office has it)",
                "SKILL.md:2: the program qpdf is named but not installed on this machine (get it with: apt-get install qpdf, or brew install qpdf)",
                "scripts/a.py:2: the program soffice is named, but runs cannot start it: it is in /opt/office (install it under /usr)",
            ]
        );
    }

    #[test]
    fn large_and_binary_files_end() {
        let large = "qpdf ".repeat(MAX_SCRIPT_BYTES);
        assert_eq!(named(&files(&[("a.md", &large)])), []);
        let mut skill = files(&[]);
        let noise: Vec<u8> = (0..=255).cycle().take(4096).collect();
        skill.insert(
            "a.py".to_owned(),
            SkillFile {
                bytes: noise.into(),
                executable: false,
            },
        );
        assert_eq!(named(&skill), []);
    }
}
