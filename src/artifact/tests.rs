//! There and back again, and what a damaged artifact says.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::SkillOverrides;
use knack_skill::model::{SkillFile, SkillRef};

use super::*;

/// The longest body that the API server reads.
const BODY_MAX_BYTES: usize = 3 << 20;

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
    let (zeros, quotes) = (vec![0; 1 << 20], vec![b'"'; 1 << 20]);
    let half = [vec![b'a'; 1 << 20], vec![0x1b; 1 << 20]].concat();
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
        // Valid UTF-8, of which each byte takes six in JSON; a part of a text, whose other parts stay text.
        (vec![("SKILL.md", b"x", false), ("archive.tar", &zeros, false)], 2),
        (vec![("SKILL.md", b"x", false), ("log.txt", &half, false)], 3),
        (vec![("SKILL.md", b"x", false), ("quotes.txt", &quotes, false)], 2),
    ] {
        let files = files(&list);
        let artifact = build(&skill(), &files, &SkillOverrides::default());
        assert!(artifact.shards.len() >= shards, "{} shards", artifact.shards.len());
        for shard in &artifact.shards {
            assert!(value_bytes(shard) <= 1_048_576);
            assert!(serde_json::to_vec(shard).unwrap().len() < BODY_MAX_BYTES);
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
fn content_stays_text_for_people_unless_it_is_mostly_control_characters() {
    let coloured = "\x1b[31mred\x1b[0m text\n";
    for (content, is_text) in [
        ("a\tb\r\nc\n", true),
        ("\n\n\n", true),
        ("{\"a\": \"b\"}", true),
        (coloured, true),
        ("", true),
        ("\0", false),
        ("a\0\0\0", false),
    ] {
        let files = files(&[("SKILL.md", b"x", false), ("f", content.as_bytes(), false)]);
        let artifact = build(&skill(), &files, &SkillOverrides::default());
        let data = artifact.shards[0].data.as_ref().unwrap();
        assert_eq!(data.contains_key("f1-f"), is_text, "{content:?}");
        assert_eq!(read(&artifact.shards).unwrap().files, files, "{content:?}");
    }
}

/// What an earlier version packed as text is read, too.
#[test]
fn control_characters_that_are_stored_as_text_are_read() {
    let files = files(&[("SKILL.md", b"x", false), ("f", b"a\0\0\0", false)]);
    let mut shards = build(&skill(), &files, &SkillOverrides::default()).shards;
    let bytes = shards[0].binary_data.take().unwrap().remove("f1-f").unwrap();
    let data = shards[0].data.as_mut().unwrap();
    data.insert("f1-f".to_owned(), String::from_utf8(bytes.0).unwrap());
    assert_eq!(read(&shards).unwrap().files, files);
}

/// 2,000 files with long paths: the index is compact where it would not fit otherwise, and says its size where it does not fit at all.
#[test]
fn an_index_is_indented_where_it_fits() {
    for (path_length, is_indented, fits) in [(40, true, true), (300, false, true), (800, false, false)] {
        let names: Vec<String> = (0..2_000)
            .map(|number| format!("{}/{number}", "d".repeat(path_length)))
            .collect();
        let list: Vec<(&str, &[u8], bool)> = names.iter().map(|name| (name.as_str(), &b"x"[..], false)).collect();
        let files = files(&list);
        let artifact = build(&skill(), &files, &SkillOverrides::default());
        let index = &artifact.shards[0].data.as_ref().unwrap()["index.json"];
        assert_eq!(index.contains('\n'), is_indented, "{path_length}: {}", index.len());
        assert_eq!(artifact.index_bytes, index.len());
        assert_eq!(index.len() <= INDEX_MAX_BYTES, fits, "{path_length}: {}", index.len());
        assert_eq!(read(&artifact.shards).unwrap().files, files);
    }
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

/// What an index of somebody else says must not decide how much memory its reader needs.
#[test]
fn an_index_that_uses_a_value_again_is_refused_before_anything_is_copied() {
    let large = noise(100 << 10);
    let files = files(&[("SKILL.md", b"hi", false), ("large", &large, false)]);
    let whole = build(&skill(), &files, &SkillOverrides::default());
    let edited = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut shards = whole.shards.clone();
        let text = shards[0].data.as_mut().unwrap().get_mut(INDEX_KEY).unwrap();
        let mut index: serde_json::Value = serde_json::from_str(text).unwrap();
        change(&mut index["files"]);
        *text = index.to_string();
        read(&shards).unwrap_err().to_string()
    };
    // 1 GiB if it was believed.
    let many = edited(&|files| {
        let piece = files[1]["pieces"][0].clone();
        files[1]["pieces"] = vec![piece; 10_000].into();
    });
    assert_eq!(
        many,
        "artifact: index.json uses key f1-large of shard 0 twice, the second time for large"
    );
    let of_two_files = edited(&|files| files[0]["pieces"] = files[1]["pieces"].clone());
    assert!(
        of_two_files.contains("SKILL.md has 102400 bytes, index.json says 2"),
        "{of_two_files}"
    );
    let of_two_files = edited(&|files| {
        files[0]["path"] = "copy".into();
        files[0]["size"] = files[1]["size"].clone();
        files[0]["sha256"] = files[1]["sha256"].clone();
        files[0]["pieces"] = files[1]["pieces"].clone();
    });
    assert!(
        of_two_files.contains("twice, the second time for large"),
        "{of_two_files}"
    );
}
