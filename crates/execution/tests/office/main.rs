//! The programs of the image `sandbox-office`, in a sandbox with every lock, on documents that are made here.
//!
//! ```text
//! make test-office     images/build.sh --roots sandbox-office ──▶ pod.sh: the root as a pod has it ──▶ knack-runner ──▶ programs
//! ```
//!
//! `KNACK_OFFICE_ROOT` is the image as a folder. The frames and paths are those of pods.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test program: a failure is a panic, and times are printed"
)]

mod document_skills;
#[path = "../../../../tests/attacks/program.rs"]
mod program;
mod sandbox;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use sandbox::{RunResult, command, python};

/// One step of the chain below, which ends well or says what was printed.
fn step(result: &RunResult, name: &str) {
    println!("office: {name}: {} ms", result.millis);
    assert_eq!(result.code, Some(0), "{name}: {} {}", result.stdout, result.stderr);
}

const MARKDOWN: &str =
    "# Quarterly report\n\nAll *figures* are in euros.\n\n| item | sum |\n|------|-----|\n| rent | 1200 |\n";

#[test]
#[ignore = "needs the image: make test-office"]
fn documents_are_converted_read_and_checked_inside_the_locks() {
    let begun = Instant::now();
    let made = command(
        &["pandoc", "report.md", "-o", "report.docx"],
        &[("report.md", MARKDOWN.as_bytes())],
    );
    step(&made, "markdown to docx by pandoc");
    let docx = made.file("report.docx");
    assert!(docx.starts_with(b"PK"));

    let made = command(
        &["soffice", "--headless", "--convert-to", "pdf", "report.docx"],
        &[("report.docx", docx)],
    );
    step(&made, "docx to pdf by soffice");
    let pdf = made.file("report.pdf");
    assert!(pdf.starts_with(b"%PDF"), "{}", made.stderr);

    let text = command(&["pdftotext", "-layout", "report.pdf", "-"], &[("report.pdf", pdf)]);
    step(&text, "text of the pdf by pdftotext");
    assert!(
        text.stdout.contains("Quarterly report") && text.stdout.contains("1200"),
        "{}",
        text.stdout
    );

    let checked = command(&["qpdf", "--check", "report.pdf"], &[("report.pdf", pdf)]);
    step(&checked, "check of the pdf by qpdf");
    assert!(
        checked.stdout.contains("No syntax or stream encoding errors"),
        "{}",
        checked.stdout
    );

    let page = command(
        &["pdftoppm", "-r", "150", "-png", "report.pdf", "page"],
        &[("report.pdf", pdf)],
    );
    step(&page, "page to png by pdftoppm");
    let png = page.file("page-1.png");

    let read = command(&["tesseract", "page.png", "-"], &[("page.png", png)]);
    step(&read, "text of the png by tesseract");
    assert!(read.stdout.contains("Quarterly report"), "{}", read.stdout);
    println!("office: the whole chain {} s", begun.elapsed().as_secs());
}

#[test]
#[ignore = "needs the image: make test-office"]
fn a_spreadsheet_is_calculated_and_slides_become_a_pdf() {
    let csv = b"a,b\n2,=A2*21\n";
    let made = command(
        &["soffice", "--headless", "--convert-to", "xlsx", "sheet.csv"],
        &[("sheet.csv", csv)],
    );
    step(&made, "csv to xlsx by soffice");
    let xlsx = made.file("sheet.xlsx");
    let back = command(
        &["soffice", "--headless", "--convert-to", "csv", "sheet.xlsx"],
        &[("sheet.xlsx", xlsx)],
    );
    step(&back, "xlsx to csv by soffice");
    assert_eq!(back.file("sheet.csv"), b"a,b\n2,42\n");

    let slides = command(
        &["pandoc", "slides.md", "-o", "slides.pptx"],
        &[("slides.md", b"# One\n\nx\n\n# Two\n\ny\n")],
    );
    step(&slides, "markdown to pptx by pandoc");
    let pptx = slides.file("slides.pptx");
    let made = command(
        &["soffice", "--headless", "--convert-to", "pdf", "slides.pptx"],
        &[("slides.pptx", pptx)],
    );
    step(&made, "pptx to pdf by soffice");
    assert!(made.file("slides.pdf").starts_with(b"%PDF"));
}

/// As scripts of public skills do: `python` by its name, a test whether unix sockets can be made, a fixed path below `/tmp`.
#[test]
#[ignore = "needs the image: make test-office"]
fn scripts_find_python_and_their_private_tmp_from_child_processes() {
    let result = python(include_str!("script.py"));
    step(&result, "a script that starts programs");
    assert_eq!(
        result
            .stdout
            .lines()
            .filter(|line| !line.starts_with("convert"))
            .collect::<Vec<_>>(),
        ["True True", "True", "42", "42", "42", "42"],
        "{}",
        result.stderr
    );
}

/// What attacks know of a pod; the tests of pods say the same. `/tmp` is the run's own here, so what is outside is `/usr`.
fn targets() -> serde_json::Value {
    serde_json::json!({
        "v4": "192.0.2.1", "v6": "2001:db8::1", "victim": 1, "runner": 1, "victim_address": 4096, "peer": 1,
        "unix_path": "/tmp/victim.sock", "unix_abstract": "knack-attack-victim", "outside": "/usr",
        "link_source": "/etc/group", "token": "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "setuid_id": "/usr/bin/id", "mounted": "/work", "readable": "/usr/bin/python3",
        "program": "/usr/bin/true", "statted": "/etc/passwd",
    })
}

/// Parts of the attacks: each has the time limit of one run.
const PARTS: usize = 4;

/// The attacks that neither end the run nor fill the machine.
fn gentle_attacks(script: &str) -> Vec<String> {
    let list = |word| {
        let output = Command::new("/usr/bin/python3")
            .args(["-c", script, word])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let bombs = list("--bombs");
    let all = list("--list");
    all.into_iter().filter(|name| !bombs.contains(name)).collect()
}

/// That each works unlocked is shown by the suites that the table is of.
#[test]
#[ignore = "needs the image: make test-office"]
fn no_attack_is_open_that_the_table_of_pods_has_closed() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/attacks");
    let table = std::fs::read_to_string(tests.join("expected/pod.json")).unwrap();
    let table: BTreeMap<String, String> = serde_json::from_str(&table).unwrap();
    let names = gentle_attacks(program::PROGRAM);
    let mut cells = BTreeMap::new();
    for part in names.chunks(names.len().div_ceil(PARTS)) {
        let words = serde_json::to_string(&[&["attacks.py".to_owned(), "--each".to_owned()], part].concat()).unwrap();
        let targets = serde_json::to_string(&targets().to_string()).unwrap();
        let result = python(&format!(
            "import os, sys\nos.environ['KNACK_TARGETS'] = {targets}\nsys.argv = {words}\n{}",
            program::PROGRAM
        ));
        let lines = result.stdout.lines().filter_map(|line| line.strip_prefix("EACH "));
        let lines = lines.filter_map(|line| line.split_once(' '));
        cells.extend(lines.map(|(name, outcome)| (name.to_owned(), outcome.to_owned())));
    }
    assert_eq!(cells.len(), names.len(), "not every attack was tried");
    let is_open = |outcome: &String| outcome.starts_with("OPEN");
    let newly: Vec<_> = cells
        .iter()
        .filter(|(name, outcome)| is_open(outcome) && !table.get(*name).is_some_and(is_open))
        .collect();
    println!(
        "office: {} attacks, open: {:?}",
        cells.len(),
        cells
            .iter()
            .filter(|(_, outcome)| is_open(outcome))
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
    );
    assert!(newly.is_empty(), "open here and closed in other images: {newly:?}");
}

/// The stand-in for a unix socket reaches nobody, and nobody reaches it.
#[test]
#[ignore = "needs the image: make test-office"]
fn a_unix_socket_can_be_made_and_neither_bound_nor_connected() {
    let result = python(include_str!("socket.py"));
    assert_eq!(
        result.stdout, "made\nbind EPERM\nconnect EPERM\nabstract EPERM\ninet EPERM\n",
        "{}",
        result.stderr
    );
}
