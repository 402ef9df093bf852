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

mod sandbox;

use std::time::Instant;

use sandbox::{Told, command, python};

/// One step of the chain below, which ends well or says what was printed.
fn step(told: &Told, name: &str) {
    println!("office: {name}: {} ms", told.millis);
    assert_eq!(told.code, Some(0), "{name}: {} {}", told.stdout, told.stderr);
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
    let told = python(include_str!("script.py"));
    step(&told, "a script that starts programs");
    assert_eq!(
        told.stdout
            .lines()
            .filter(|line| !line.starts_with("convert"))
            .collect::<Vec<_>>(),
        ["True True", "True", "42", "42", "42", "42"],
        "{}",
        told.stderr
    );
}
