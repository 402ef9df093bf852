//! A bench that shows that it runs.

/// With `--once` a bench measures nothing: one pair of each row that is there soon, and no outcome.
pub(crate) fn is_once() -> bool {
    std::env::args().any(|argument| argument == "--once")
}
