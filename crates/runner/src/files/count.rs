//! How much stands in the work directory: for hosts where no volume size bounds it.

use super::place::Place;
use super::walk::{Entry, Step, walk};

/// Entries and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Everything that is not a directory.
    pub(crate) files: u64,
    /// Blocks on disk, in bytes; holes in sparse files count nothing.
    pub(crate) bytes: u64,
}

/// Counts the work directory, until one of the limits is passed. What cannot be read counts as one file.
pub(crate) fn count(place: &Place, max_files: u64, max_bytes: u64) -> Count {
    let mut total = Count::default();
    let Ok(top) = place.open_work() else {
        return total;
    };
    // A directory that vanished under the walk is counted next time.
    let _ = walk(top, &[], &mut |_, entry| {
        total.files += 1;
        if let Entry::Leaf { stat, .. } = entry {
            total.bytes = total
                .bytes
                .saturating_add(u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512));
        }
        if total.files > max_files || total.bytes > max_bytes {
            Step::Stop
        } else {
            Step::Continue
        }
    });
    total
}
