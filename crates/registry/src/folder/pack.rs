//! The files of a version as one file: a line of JSON that names them, then their bytes in that order.

use std::io;

use knack_skill::model::SkillFile;
use serde::{Deserialize, Serialize};

use crate::Files;

#[derive(Serialize, Deserialize)]
struct Head {
    path: String,
    executable: bool,
    bytes: usize,
}

pub(super) fn pack(files: &Files) -> io::Result<Vec<u8>> {
    let heads: Vec<Head> = files
        .iter()
        .map(|(path, file)| Head {
            path: path.clone(),
            executable: file.executable,
            bytes: file.bytes.len(),
        })
        .collect();
    let mut packed = serde_json::to_vec(&heads)?;
    packed.push(b'\n');
    for file in files.values() {
        packed.extend_from_slice(&file.bytes);
    }
    Ok(packed)
}

/// `None`: not what [`pack`] writes.
pub(super) fn unpack(packed: &[u8]) -> Option<Files> {
    let end = packed.iter().position(|byte| *byte == b'\n')?;
    let (heads, rest) = packed.split_at(end);
    let heads: Vec<Head> = serde_json::from_slice(heads).ok()?;
    let mut rest = rest.get(1..)?;
    let mut files = Files::new();
    for head in heads {
        let (bytes, behind) = rest.split_at_checked(head.bytes)?;
        rest = behind;
        let file = SkillFile {
            bytes: bytes.into(),
            executable: head.executable,
        };
        files.insert(head.path, file);
    }
    rest.is_empty().then_some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_back_as_they_went_and_a_part_of_them_does_not() {
        let file = |bytes: &[u8], executable| SkillFile {
            bytes: bytes.into(),
            executable,
        };
        let files = Files::from([
            ("SKILL.md".to_owned(), file(b"---\nname: a\n", false)),
            ("b/\u{fc}.bin".to_owned(), file(&[0, 10, 255], true)),
            ("empty".to_owned(), file(b"", false)),
        ]);
        let packed = pack(&files).unwrap();
        assert_eq!(unpack(&packed), Some(files));
        for length in 0..packed.len() {
            assert_eq!(unpack(&packed[..length]), None, "{length}");
        }
    }
}
