//! Versions and constraints: the first line is a constraint or identifier, each further line a version.
#![no_main]

use knack_skill::semver;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.lines();
    let constraint = lines.next().unwrap_or_default();
    let mut versions: Vec<&str> = lines.collect();
    if let Some(found) = semver::resolve(versions.iter().copied(), constraint) {
        assert!(versions.contains(&found));
    }
    if let Some(found) = semver::choose(&versions, constraint) {
        assert!(found < versions.len());
    }
    semver::newest_first(&mut versions);
});
