//! There and back again, and what a damaged artifact says.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::SkillOverrides;
use knack_skill::model::{SkillFile, SkillRef};

use super::*;

fn skill() -> SkillRef {
    SkillRef {
        namespace: "team".to_owned(),
        name: "pdf".to_owned(),
    }
}

fn files(list: &[(&str, &[u8], bool)]) -> BTreeMap<String, SkillFile> {
    list.iter()
        .map(|(path, bytes, executable)| {
            let file = SkillFile {
                bytes: (*bytes).into(),
                executable: *executable,
            };
            ((*path).to_owned(), file)
        })
        .collect()
}

fn noise(length: usize) -> Vec<u8> {
    // A linear congruence is noise enough: no byte run that an encoder could shorten.
    let mut state = 1_u32;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .collect()
}

fn value_bytes(config_map: &ConfigMap) -> usize {
    let text: usize = config_map.data.iter().flatten().map(|(_, value)| value.len()).sum();
    let binary: usize = config_map
        .binary_data
        .iter()
        .flatten()
        .map(|(_, value)| value.0.len())
        .sum();
    text + binary
}

#[test]
fn what_is_packed_is_read_back() {
    let big_text = "äöü\n".repeat(400_000);
    let big_noise = noise(2_500_000);
    for (list, shards) in [
        (vec![("SKILL.md", b"hello".as_slice(), false)], 1),
        (
            vec![
                ("SKILL.md", b"", false),
                ("a b/ü.sh", b"x", true),
                ("logo.png", &[0, 159, 146], false),
            ],
            1,
        ),
        (
            vec![("SKILL.md", b"x", false), ("big.txt", big_text.as_bytes(), false)],
            4,
        ),
        (vec![("SKILL.md", b"x", false), ("big.bin", &big_noise, false)], 3),
    ] {
        let files = files(&list);
        let artifact = build(&skill(), &files, &SkillOverrides::default());
        assert!(artifact.shards.len() >= shards, "{} shards", artifact.shards.len());
        for shard in &artifact.shards {
            assert!(value_bytes(shard) <= 1_048_576);
            assert_eq!(shard.immutable, Some(true));
            let legal =
                |key: &String| key.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) && key.len() <= 253;
            assert!(shard.data.iter().flatten().all(|(key, _)| legal(key)));
            assert!(shard.binary_data.iter().flatten().all(|(key, _)| legal(key)));
        }
        let mut shuffled = artifact.shards.clone();
        shuffled.reverse();
        let content = read(&shuffled).unwrap();
        assert_eq!(content.files, files);
        assert_eq!(content.digest, artifact.digest);
    }
}

#[test]
fn a_person_finds_the_file_by_its_name() {
    let artifact = build(
        &skill(),
        &files(&[("SKILL.md", b"hi", false), ("scripts/ex tract.py", b"1", true)]),
        &SkillOverrides::default(),
    );
    let data = artifact.shards[0].data.as_ref().unwrap();
    assert_eq!(data.get("f0-SKILL.md").map(String::as_str), Some("hi"));
    assert_eq!(data.get("f1-ex_tract.py").map(String::as_str), Some("1"));
    assert!(data.contains_key("index.json"));
    assert_eq!(
        artifact.shards[0].metadata.name,
        Some(format!("pdf-{}", artifact.revision))
    );
    assert_eq!(artifact.revision, artifact.digest[..10]);
}

#[test]
fn settings_make_another_revision_of_the_same_content() {
    let files = files(&[("SKILL.md", b"hi", false)]);
    let set = SkillOverrides {
        version: Some("1.0.0".to_owned()),
        ..SkillOverrides::default()
    };
    let (plain, versioned) = (
        build(&skill(), &files, &SkillOverrides::default()),
        build(&skill(), &files, &set),
    );
    assert_eq!(plain.digest, versioned.digest);
    assert_ne!(plain.revision, versioned.revision);
    assert_eq!(read(&versioned.shards).unwrap().overrides, set);
}

#[test]
fn names_fit_whatever_the_skill_is_called() {
    let long = SkillRef {
        namespace: "n".repeat(63),
        name: "s".repeat(63),
    };
    assert!(name(&long, "0123456789", 31).len() <= 253);
}

#[test]
fn damage_is_reported() {
    let big = noise(2_000_000);
    let whole = build(
        &skill(),
        &files(&[("SKILL.md", b"hi", false), ("big", &big, false)]),
        &SkillOverrides::default(),
    );
    assert!(whole.shards.len() > 1);
    let edit = |change: &dyn Fn(&mut Vec<ConfigMap>)| {
        let mut shards = whole.shards.clone();
        change(&mut shards);
        read(&shards)
            .map(|content| content.files.len())
            .unwrap_err()
            .to_string()
    };
    for (message, part) in [
        (edit(&|shards| shards.truncate(1)), "shard 1 of SKILL.md is missing"),
        (
            edit(&|shards| {
                shards.remove(0);
            }),
            "no index.json",
        ),
        (
            edit(&|shards| {
                for data in shards.iter_mut().filter_map(|shard| shard.data.as_mut()) {
                    data.entry("f0-SKILL.md".to_owned())
                        .and_modify(|text| *text = "ho".to_owned());
                }
            }),
            "SKILL.md does not match the index",
        ),
        (
            edit(&|shards| {
                shards[0]
                    .data
                    .as_mut()
                    .unwrap()
                    .insert("index.json".to_owned(), "{".to_owned());
            }),
            "index.json is broken",
        ),
        (
            edit(&|shards| {
                shards[0].metadata.annotations = None;
            }),
            "has no annotation knack.dev/shard",
        ),
        (
            edit(&|shards| {
                let index = shards[0].data.as_mut().unwrap().get_mut("index.json").unwrap();
                *index = index.replace("\"format\": 1", "\"format\": 2");
            }),
            "upgrade it",
        ),
    ] {
        assert!(message.contains(part), "{message:?} should contain {part:?}");
    }
}
