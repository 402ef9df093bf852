//! Numbers of things in messages.

use std::fmt::Display;

/// `1 file`, `2 files`: a noun whose plural has an s.
pub(crate) fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_thing_is_named_in_the_singular() {
        let texts = [0_usize, 1, 2].map(|count| counted(count, "file"));
        assert_eq!(texts, ["0 files", "1 file", "2 files"]);
    }
}
