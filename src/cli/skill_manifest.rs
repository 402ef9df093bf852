//! A skill as manifests: from files to YAML. Pure.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use knack_api::schema::INLINE_MAX;
use knack_api::skill::ArchiveSource;
use knack_skill::model::SkillFile;
use knack_vocabulary::{API_VERSION, KIND_SKILL};
use serde_json::{Map, Value, json};

use crate::sources::Files;

/// Entries of each map of an inline source, and items of a ConfigMap source, as the schema has them.
const ENTRIES_MAX: usize = 256;
/// Bytes of a ConfigMap's values. The API server takes 1 MiB with the names of its keys.
const CONFIG_MAP_MAX_BYTES: usize = 1_000_000;
/// Execute and read for all, in decimal as Kubernetes writes modes: 0755.
const EXECUTABLE: i32 = 493;

/// How the files of a skill are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SkillForm {
    /// In the Skill itself.
    Inline,
    /// In a ConfigMap beside it: more than fits inline, or files that are executable, which inline files are not.
    ConfigMap,
}

/// The objects of a skill in the order in which they are applied. Errors: it does not fit into them, with what to do.
pub(super) fn objects(name: &str, namespace: Option<&str>, files: &Files) -> Result<Vec<Value>, String> {
    // Without a folder of its own the SKILL.md of a folder inside would be taken for the skill's, or be one of several.
    let folder = files.keys().any(|path| path.ends_with("/SKILL.md")).then_some(name);
    let files = &match folder {
        Some(folder) => files
            .iter()
            .map(|(path, file)| (format!("{folder}/{path}"), file.clone()))
            .collect(),
        None => files.clone(),
    };
    let (texts, binaries) = split(files);
    let mut metadata = metadata(name, namespace);
    metadata["annotations"] = json!({"kustomize.toolkit.fluxcd.io/substitute": "disabled"});
    let skill = |mut source: Value| {
        if let Some(folder) = folder {
            source["path"] = folder.into();
        }
        json!({"apiVersion": API_VERSION, "kind": KIND_SKILL, "metadata": metadata, "spec": {"source": source}})
    };
    match form(files, &texts, &binaries)? {
        SkillForm::Inline => {
            let binaries: BTreeMap<&str, String> =
                binaries.iter().map(|(path, bytes)| (*path, encoded(bytes))).collect();
            Ok(vec![skill(
                json!({"inline": maps("files", &texts, "binaryFiles", &binaries)}),
            )])
        }
        SkillForm::ConfigMap => {
            let keys = keys(files);
            let mut map_metadata = metadata.clone();
            let map_name = format!("{name}-files");
            map_metadata["name"] = map_name.as_str().into();
            let texts: BTreeMap<&str, &str> = texts.iter().map(|(path, text)| (keys[*path].as_str(), *text)).collect();
            let binaries: BTreeMap<&str, String> = binaries
                .iter()
                .map(|(path, bytes)| (keys[*path].as_str(), encoded(bytes)))
                .collect();
            let mut map = maps("data", &texts, "binaryData", &binaries);
            map.insert("apiVersion".to_owned(), "v1".into());
            map.insert("kind".to_owned(), "ConfigMap".into());
            map.insert("metadata".to_owned(), map_metadata);
            let items: Vec<Value> = files.iter().map(|(path, file)| item(&keys[path], path, file)).collect();
            let source = json!({"configMap": {"name": map_name, "items": items}});
            Ok(vec![Value::Object(map), skill(source)])
        }
    }
}

/// The Skill whose files the cluster fetches.
pub(super) fn archived(name: &str, namespace: Option<&str>, archive: &ArchiveSource) -> Value {
    let source = json!({"archive": {"url": archive.url, "digest": archive.digest}});
    json!({"apiVersion": API_VERSION, "kind": KIND_SKILL, "metadata": metadata(name, namespace), "spec": {"source": source}})
}

fn metadata(name: &str, namespace: Option<&str>) -> Value {
    match namespace {
        Some(namespace) => json!({"name": name, "namespace": namespace}),
        None => json!({"name": name}),
    }
}

/// The objects as YAML documents. `origin`: where the skill came from, for the comment at the beginning.
pub(super) fn yaml(origin: &str, objects: &[Value]) -> Result<String, String> {
    let mut text = format!("# Made by knack skill import {}.\n", origin.escape_debug());
    if objects
        .iter()
        .any(|object| object["metadata"]["annotations"].is_object())
    {
        text.push_str(
            "# Apply it with --server-side: without it kubectl keeps a second copy of all files in an annotation.\n\
             # The annotation keeps Flux from replacing ${...} inside scripts.\n",
        );
    }
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            text.push_str("---\n");
        }
        text.push_str(&serde_saphyr::to_string(object).map_err(|error| format!("cannot be written as YAML: {error}"))?);
    }
    Ok(text)
}

fn form(files: &Files, texts: &BTreeMap<&str, &str>, binaries: &BTreeMap<&str, &[u8]>) -> Result<SkillForm, String> {
    let raw: usize = files.values().map(|file| file.bytes.len()).sum();
    let written: usize = texts.values().map(|text| text.len()).sum::<usize>()
        + binaries
            .values()
            .map(|bytes| encoded_length(bytes.len()))
            .sum::<usize>();
    let is_executable = files.values().any(|file| file.executable);
    if !is_executable && written <= INLINE_MAX && texts.len() <= ENTRIES_MAX && binaries.len() <= ENTRIES_MAX {
        return Ok(SkillForm::Inline);
    }
    if files.len() <= ENTRIES_MAX && raw <= CONFIG_MAP_MAX_BYTES {
        return Ok(SkillForm::ConfigMap);
    }
    Err(format!(
        "{} files with {raw} bytes; a ConfigMap holds {ENTRIES_MAX} files with {CONFIG_MAP_MAX_BYTES} bytes. Publish the \
         folder as .tar.gz or .zip, and name it by spec.source.archive with its sha256 (kubectl explain skill.spec.source.archive)",
        files.len()
    ))
}

/// Text files and others. What YAML parsers would not give back byte for byte counts as other.
fn split(files: &Files) -> (BTreeMap<&str, &str>, BTreeMap<&str, &[u8]>) {
    let (mut texts, mut binaries) = (BTreeMap::new(), BTreeMap::new());
    for (path, file) in files {
        match std::str::from_utf8(&file.bytes) {
            Ok(text) if text.chars().all(is_plain) => {
                texts.insert(path.as_str(), text);
            }
            _ => {
                binaries.insert(path.as_str(), &*file.bytes);
            }
        }
    }
    (texts, binaries)
}

/// Whether every parser of YAML 1.1 and 1.2 reads a character in a block of text as what it is: printable, and no line break
/// but the line feed (the others are read as line feeds; YAML 1.1, section 4.2).
const fn is_plain(c: char) -> bool {
    matches!(c, '\t' | '\n' | ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..)
}

fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

const fn encoded_length(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

/// Two maps as members of an object, without empty ones.
fn maps(
    text_key: &str,
    texts: &BTreeMap<&str, &str>,
    binary_key: &str,
    binaries: &BTreeMap<&str, String>,
) -> Map<String, Value> {
    let mut out = Map::new();
    if !texts.is_empty() {
        out.insert(text_key.to_owned(), json!(texts));
    }
    if !binaries.is_empty() {
        out.insert(binary_key.to_owned(), json!(binaries));
    }
    out
}

fn item(key: &str, path: &str, file: &SkillFile) -> Value {
    if file.executable {
        json!({"key": key, "path": path, "mode": EXECUTABLE})
    } else {
        json!({"key": key, "path": path})
    }
}

/// A key for each path: the path with `_` for what a key may not have, and a number where that is taken.
fn keys(files: &Files) -> BTreeMap<String, String> {
    let legal = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') {
            c
        } else {
            '_'
        }
    };
    let mut taken = BTreeSet::new();
    let mut keys = BTreeMap::new();
    for path in files.keys() {
        // A key has at most 253 characters.
        let plain: String = path.chars().map(legal).take(240).collect();
        let mut key = plain.clone();
        let mut number = 2;
        // `.` and what begins with `..` are no keys.
        while key == "." || key.starts_with("..") || !taken.insert(key.clone()) {
            key = format!("f{number}-{}", plain.trim_start_matches('.'));
            number += 1;
        }
        keys.insert(path.clone(), key);
    }
    keys
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dev::discover_text;

    fn file(bytes: &[u8], executable: bool) -> SkillFile {
        SkillFile {
            bytes: bytes.into(),
            executable,
        }
    }

    fn files(of: &[(&str, &[u8], bool)]) -> Files {
        let of = of.iter();
        of.map(|(path, bytes, executable)| ((*path).to_owned(), file(bytes, *executable)))
            .collect()
    }

    fn read_back(text: &str) -> Files {
        let found = discover_text("test", text);
        assert_eq!(
            found.reports.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [""; 0],
            "{text}"
        );
        let [skill] = &found.skills[..] else {
            panic!("{} skills in {text}", found.skills.len())
        };
        skill.files.clone()
    }

    #[test]
    fn text_stays_text_and_the_rest_is_base64() {
        let of = files(&[
            ("SKILL.md", b"---\nname: a\n---\nSay \"hi\".\n", false),
            ("logo.png", &[0, 1, 2], false),
            ("dos.txt", b"a\r\n", false),
        ]);
        let objects = objects("a", Some("team"), &of).unwrap();
        let expected = json!([{
            "apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
            "metadata": {"name": "a", "namespace": "team", "annotations": {"kustomize.toolkit.fluxcd.io/substitute": "disabled"}},
            "spec": {"source": {"inline": {
                "files": {"SKILL.md": "---\nname: a\n---\nSay \"hi\".\n"}, "binaryFiles": {"dos.txt": "YQ0K", "logo.png": "AAEC"},
            }}},
        }]);
        assert_eq!(json!(objects), expected);
        let text = yaml("dir", &objects).unwrap();
        assert!(text.contains("SKILL.md: |\n"), "a person can read it: {text}");
    }

    #[test]
    fn a_skill_that_carries_another_one_stays_whole() {
        let of = files(&[("SKILL.md", b"a", false), ("template/SKILL.md", b"b", false)]);
        let objects = objects("a", None, &of).unwrap();
        assert_eq!(
            objects[0]["spec"]["source"]["path"], "a",
            "no rule of the definition takes the root"
        );
        assert_eq!(read_back(&yaml("dir", &objects).unwrap()), of);
    }

    #[test]
    fn what_inline_cannot_hold_is_in_a_config_map() {
        let large = "x".repeat(INLINE_MAX + 1);
        for (what, of) in [
            (
                "an executable",
                files(&[("SKILL.md", b"a", false), ("bin/go", b"#!/bin/sh\n", true)]),
            ),
            ("size", files(&[("SKILL.md", large.as_bytes(), false)])),
            (
                "names",
                files(&[
                    ("SKILL.md", b"a", true),
                    ("a/b", b"1", false),
                    ("a_b", b"2", false),
                    ("..c", b"3", false),
                    ("d e", b"4", false),
                ]),
            ),
        ] {
            let objects = objects("a", None, &of).unwrap();
            assert_eq!(
                objects
                    .iter()
                    .map(|object| object["kind"].as_str().unwrap())
                    .collect::<Vec<_>>(),
                ["ConfigMap", "Skill"],
                "{what}"
            );
            assert_eq!(read_back(&yaml("dir", &objects).unwrap()), of, "{what}");
        }
        let huge = vec![0; CONFIG_MAP_MAX_BYTES + 1];
        let refused = objects("a", None, &files(&[("SKILL.md", &huge, false)])).unwrap_err();
        assert!(refused.contains("spec.source.archive"), "{refused}");
        let many: Files = (0..=ENTRIES_MAX)
            .map(|number| (format!("f{number}"), file(b"", true)))
            .collect();
        assert!(objects("a", None, &many).is_err());
    }

    proptest! {
        #[test]
        fn every_folder_comes_back_byte_for_byte(
            of in proptest::collection::btree_map("[a-zA-Z0-9._ -]{0,7}[a-zA-Z0-9_ -](/[a-z.]{0,3}[a-z])?", (prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..40),
                "(\\PC|[ \t\n\r:#|>'\"{-])*".prop_map(String::into_bytes),
            ], any::<bool>()), 1..5),
        ) {
            let of: Files = of.into_iter().map(|(path, (bytes, executable))| (path, file(&bytes, executable))).collect();
            let text = yaml("dir", &objects("a", None, &of).unwrap()).unwrap();
            prop_assert_eq!(read_back(&text), of);
        }
    }
}
