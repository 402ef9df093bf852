//! Archives of any bytes: what is unpacked has paths that stay inside, and stays within the bounds.
#![no_main]

use knack::sources::{archive, below};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(files) = archive::unpack(data) else { return };
    assert!(files.len() <= 10_000);
    let bytes: usize = files.values().map(|file| file.bytes.len()).sum();
    assert!(bytes <= 64 << 20);
    for path in files.keys() {
        assert!(knack_skill::tree::check_path(path).is_ok(), "{path:?}");
    }
    for place in [None, Some("a"), Some("skill/")] {
        if let Ok(inside) = below(files.clone(), place) {
            assert!(inside.len() <= files.len());
        }
    }
});
