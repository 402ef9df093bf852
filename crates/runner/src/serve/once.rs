//! Whether a pod has had a runner before.
//!
//! A pod runs once, but its container may not: kubelet starts one again that containerd made and lost, whatever
//! `restartPolicy` says, and its log is then another file. A runner that served a second time would hide from the owner
//! that the first one may have run something. The work volume outlives containers, so the first runner marks it.

use std::fs::{OpenOptions, metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::protocol::WORK_PATH;

/// The mark. Runs reach the folder of their run, beside it, and not the volume.
const MARK: &str = ".runner";

/// Whether this process is the first runner of its pod. True where it is not that of a pod: not process 1, or without a
/// volume at [`WORK_PATH`].
pub fn is_first_of_pod() -> bool {
    let device = |path: &str| metadata(path).ok().map(|metadata| metadata.dev());
    let is_in_pod = std::process::id() == 1 && device(WORK_PATH).is_some_and(|work| device("/") != Some(work));
    !is_in_pod || mark(Path::new(WORK_PATH))
}

/// Marks a volume; false if it has the mark. A volume that takes none takes no run either.
fn mark(volume: &Path) -> bool {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o400)
        .open(volume.join(MARK));
    !matches!(made, Err(error) if error.kind() == ErrorKind::AlreadyExists)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_one_first_runner() {
        let volume = std::env::temp_dir().join(format!("knack-once-{}", std::process::id()));
        assert!(mark(&volume), "no volume");
        std::fs::create_dir(&volume).unwrap();
        assert!(mark(&volume));
        assert!(!mark(&volume));
        std::fs::remove_dir_all(volume).unwrap();
    }
}
