//! Loads of documents that were made to cost much or to end the process.

use proptest::prelude::*;

use super::SpecOverrides;
use super::tests::{load_files, load_text};
use crate::problem::{Profile, Severity};

#[test]
fn work_on_hostile_documents_is_bounded() {
    let many = |count: usize, line: fn(usize) -> String| (0..count).map(line).collect::<Vec<_>>().concat();
    let keys = many(60_000, |index| format!("k{index}: 1\n"));
    let inputs = many(20_000, |index| format!("  - name: i{index}\n"));
    let places = many(60_000, |index| format!("{{{{p{index}}}}}"));
    let tools = many(12_000, |index| format!("  - {{name: t{index}}}\n"));
    for text in [
        format!("---\n{keys}---\n"),
        format!("---\ninputs:\n{inputs}---\n{places}"),
        format!("---\ntools:\n{tools}---\n"),
        format!("---\na: {}\n---\n", "{".repeat(1_000_000)),
        format!("---\n{}\n---\n", "? ".repeat(500_000)),
        format!("---\na: &a [{}]\n---\n", "*a,".repeat(300_000)),
        "{{".repeat(500_000),
        format!("---\ninputs:\n- name: a\n---\n{{{{a}}}}{}", "${a}".repeat(250_000)),
        format!("---\ninputs:\n- name: a\n---\n{}", "${b}".repeat(250_000)),
        "---\n".repeat(200_000),
    ] {
        for profile in [Profile::Load, Profile::Strict] {
            let started = std::time::Instant::now();
            let loaded = load_text(&text, profile);
            assert!(loaded.problems.len() <= 202);
            // Far above what an unoptimised build needs; a quadratic step takes minutes.
            assert!(
                started.elapsed().as_secs() < 20,
                "{:.40} took {:?}",
                text,
                started.elapsed()
            );
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), strict in any::<bool>()) {
        let profile = if strict { Profile::Strict } else { Profile::Load };
        let loaded = load_files(&[("SKILL.md", &bytes)], profile, SpecOverrides::default());
        let refused = loaded.problems.iter().any(|problem| problem.severity == Severity::Error);
        prop_assert_eq!(loaded.skill.is_none(), refused);
    }

    #[test]
    fn no_frontmatter_panics(
        lines in proptest::collection::vec(
            "(name|description|inputs|tools|model|mode|activation|tags|version|metadata|tool_env|a): ?[-\\[\\]{}:,'\"&*!|>#a-z0-9. ]{0,24}",
            0..12,
        ),
        body in "[a-z{}\\- \n]{0,60}",
        strict in any::<bool>(),
    ) {
        let text = format!("---\n{}\n---\n{body}", lines.join("\n"));
        let profile = if strict { Profile::Strict } else { Profile::Load };
        let loaded = load_text(&text, profile);
        let refused = loaded.problems.iter().any(|problem| problem.severity == Severity::Error);
        prop_assert_eq!(loaded.skill.is_none(), refused, "{:?}", loaded.problems);
    }
}
