//! Artifacts: ConfigMaps of any content are read or refused, and what was built is read back as it was.
#![no_main]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::SkillOverrides;
use knack::artifact::{build, read};
use knack_skill::model::{SkillFile, SkillRef};
use libfuzzer_sys::fuzz_target;

fn built(data: &[u8]) -> Vec<ConfigMap> {
    let skill = SkillRef { namespace: "n".to_owned(), name: "s".to_owned() };
    // Each line is a path and, behind a tab, a content.
    let files: BTreeMap<String, SkillFile> = data
        .split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let at = line.iter().position(|byte| *byte == b'\t')?;
            let path = std::str::from_utf8(&line[..at]).ok()?;
            knack_skill::tree::check_path(path).ok()?;
            let file = SkillFile { bytes: line[at + 1..].into(), executable: at % 2 == 0 };
            Some((path.to_owned(), file))
        })
        .collect();
    let shards = build(&skill, &files, &SkillOverrides::default()).shards;
    let content = read(&shards).expect("what was built is read");
    assert_eq!(content.files, files);
    shards
}

fuzz_target!(|data: &[u8]| {
    if let Ok(given) = serde_json::from_slice::<Vec<ConfigMap>>(data) {
        // What is read is consistent in itself: it is built and read again.
        if let Ok(content) = read(&given) {
            assert!(content.files.keys().all(|path| knack_skill::tree::check_path(path).is_ok()));
        }
        return;
    }
    let mut shards = built(data);
    // One byte changed anywhere in the values is noticed.
    let Some(shard) = shards.first_mut() else { return };
    let Some(values) = &mut shard.binary_data else { return };
    if let Some((_, value)) = values.iter_mut().find(|(_, value)| !value.0.is_empty()) {
        value.0[0] ^= 1;
        assert!(read(&shards).is_err(), "a damaged artifact");
    }
});
