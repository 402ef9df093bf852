//! How much memory and address space a run may have.

use super::Language;

/// Address space of runs other than node's, bytes: a stop for allocations between two checks of the runner's memory
/// watch; thread stacks and arenas of CPython reserve far less.
const ADDRESS_SPACE_BYTES: u64 = 4 << 30;

/// Address space of a run whose program is not node, bytes.
pub const fn address_space(language: Option<Language>, asked: Option<u64>) -> Option<u64> {
    match (language, asked) {
        (Some(Language::Node), _) => None,
        (_, Some(asked)) => Some(asked),
        (_, None) => Some(ADDRESS_SPACE_BYTES),
    }
}

/// The address space to ask for in a sandbox with more memory than runs have address space without asking: else nothing could use it.
pub const fn address_space_for_sandbox(bytes: u64) -> Option<u64> {
    if bytes > ADDRESS_SPACE_BYTES { Some(bytes) } else { None }
}

/// What a run asks for in a sandbox whose memory is watched: at that limit the watch is enough, and an address space of the same
/// size would only break programs that map much.
pub fn below_watch(asked: Option<u64>, watched: u64) -> Option<u64> {
    asked
        .filter(|asked| *asked < watched)
        .or(address_space_for_sandbox(watched))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_may_have_all_memory_is_limited_by_the_watch_alone() {
        for (asked, watched, expected) in [
            (None, 1 << 29, None),
            (Some(1 << 28), 1 << 29, Some(1 << 28)),
            (Some(1 << 29), 1 << 29, None),
            (Some(1 << 33), 1 << 33, Some(1 << 33)),
            (None, 1 << 33, Some(1 << 33)),
        ] {
            assert_eq!(below_watch(asked, watched), expected, "{asked:?} {watched}");
        }
    }

    #[test]
    fn a_run_has_the_address_space_that_is_asked_for() {
        let python = Some(Language::Python);
        for (language, asked, expected) in [
            (python, None, Some(ADDRESS_SPACE_BYTES)),
            (None, Some(1 << 28), Some(1 << 28)),
            (python, Some(8 << 30), Some(8 << 30)),
            (Some(Language::Node), Some(1 << 28), None),
        ] {
            assert_eq!(address_space(language, asked), expected, "{language:?} {asked:?}");
        }
        assert_eq!(address_space_for_sandbox(8 << 30), Some(8 << 30));
        assert_eq!(address_space_for_sandbox(512 << 20), None);
    }
}
