//! The scripts of the public document skills, each on a small file, with its result decoded (`document_skills.py` has the rows).
//!
//! ```text
//! make ROW ──▶ inputs/… ──▶ python3 skills/docx/scripts/… ──▶ what it left, stdout.txt ──▶ check ROW      each a run of its own
//! ```
//!
//! The skills are not in the repository: `KNACK_DOCUMENT_SKILLS` is their folder, and `KNACK_DOCUMENT_PACKAGES` the environment
//! that `knack skill packages --build` made for them (`make test-document-skills`).

use std::collections::BTreeMap;
use std::path::Path;

use crate::sandbox::{RunResult, SandboxContent, command_in};

const WORK: &str = include_str!("document_skills.py");

/// One row: its name, the script, the words after it, how it ends.
type Row = (String, String, Vec<String>, i32);

/// The files of a folder, by their path from the folder above.
fn files_below(folder: &Path, path: &str, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{path}/{}", entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            files_below(&entry.path(), &path, found);
        } else {
            found.push((path, std::fs::read(entry.path()).unwrap()));
        }
    }
}

/// The program beside this file, with the packages of the skills.
fn work(packages: &str, words: &[&str], inputs: &BTreeMap<String, Vec<u8>>) -> RunResult {
    let around = SandboxContent {
        packages: Some(packages),
        ..SandboxContent::default()
    };
    let argv = [&["python3", "document_skills.py"], words].concat();
    let mut files = borrowed(inputs);
    files.push(("document_skills.py", WORK.as_bytes()));
    command_in(&around, &argv, &files)
}

fn borrowed(files: &BTreeMap<String, Vec<u8>>) -> Vec<(&str, &[u8])> {
    let files = files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice()));
    files.collect()
}

/// The last line of what a run printed, which is where Python has its error.
fn last_line(result: &RunResult) -> String {
    let all = format!("{}\n{}", result.stdout.trim(), result.stderr.trim());
    all.trim().lines().last().unwrap_or_default().to_owned()
}

/// Does one row. Errors: what was wrong, in one line.
fn outcome(row: &Row, around: &SandboxContent<'_>, packages: &str) -> Result<u64, String> {
    let (name, script, words, ends) = row;
    let made = work(packages, &["make", name], &BTreeMap::new());
    if made.code != Some(0) {
        return Err(format!("its inputs were not made: {}", last_line(&made)));
    }
    let mut files = made.files;
    let script = format!("skills/{script}");
    let mut argv = vec!["python3", &script];
    argv.extend(words.iter().map(String::as_str));
    let result = command_in(around, &argv, &borrowed(&files));
    if result.code != Some(*ends) {
        return Err(format!("it ended with {:?}: {}", result.code, last_line(&result)));
    }
    files.extend(result.files);
    files.insert("stdout.txt".to_owned(), result.stdout.into_bytes());
    let checked = work(packages, &["check", name], &files);
    if checked.code != Some(0) {
        return Err(last_line(&checked));
    }
    Ok(result.millis)
}

#[test]
#[ignore = "needs the image and the skills: make test-document-skills"]
fn scripts_of_the_document_skills_do_their_work_inside_the_locks() {
    let variable = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name}"));
    let (folder, packages) = (variable("KNACK_DOCUMENT_SKILLS"), variable("KNACK_DOCUMENT_PACKAGES"));
    let rows = work(&packages, &["rows"], &BTreeMap::new());
    assert_eq!(rows.code, Some(0), "{}", rows.stderr);
    let rows: Vec<Row> = serde_json::from_str(&rows.stdout).unwrap();
    let (mut failed, mut skill, mut around) = (Vec::new(), "", SandboxContent::default());
    println!("{:24} {:44} {:>6}", "what is decoded", "script", "ms");
    for row in &rows {
        let of = row.1.split('/').next().unwrap_or_default();
        if of != skill {
            skill = of;
            around.skills.clear();
            around.packages = Some(&packages);
            files_below(&Path::new(&folder).join(skill), skill, &mut around.skills);
        }
        let (name, script) = (&row.0, &row.1);
        match outcome(row, &around, &packages) {
            Ok(millis) => println!("{name:24} {script:44} {millis:>6}"),
            Err(why) => {
                println!("{name:24} {script:44} {:>6} {why}", "FAILS");
                failed.push(name);
            }
        }
    }
    println!("{} of {} rows work", rows.len() - failed.len(), rows.len());
    assert!(failed.is_empty(), "{failed:?}");
}
