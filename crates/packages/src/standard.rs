//! The standard environment: the packages of hosted sandboxes, for skills that declare nothing.
//!
//! Source of the list: the imports of the public skills, and what their texts expect. No HTTP clients, and nothing that
//! brings one: a run has no network.

use std::sync::LazyLock;

use crate::lock::Lock;

/// The required names, one a line.
const NAMES: &str = include_str!("data/standard.in");

/// Made from it: `uv pip compile --universal --python-version 3.10 --generate-hashes --only-binary :all:`.
const LOCK: &[u8] = include_bytes!("data/standard.lock");

static READ: LazyLock<Option<Lock>> = LazyLock::new(|| Lock::read("standard.lock", LOCK).ok());

/// The lock of the standard environment. `None` never happens: a test reads it.
pub fn lock() -> Option<&'static Lock> {
    READ.as_ref()
}

/// The required packages by name, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    NAMES.lines().map(str::trim).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What public skills import, and what their texts expect of a machine.
    #[test]
    fn each_package_that_public_skills_use_is_there_or_left_out_for_a_reason() {
        const USED: [&str; 20] = [
            "defusedxml",
            "lxml",
            "openpyxl",
            "pypdf",
            "pdfplumber",
            "pdf2image",
            "pillow",
            "imageio",
            "numpy",
            "pyyaml",
            "mcp",
            "playwright",
            "markitdown",
            "pandas",
            "reportlab",
            "pytesseract",
            "matplotlib",
            "python-docx",
            "python-pptx",
            "xlsxwriter",
        ];
        /// With the reason (docs/packages.md#the-standard-environment).
        const LEFT_OUT: [(&str, &str); 3] = [
            ("mcp", "brings httpx"),
            ("markitdown", "brings requests"),
            ("playwright", "needs a browser and sockets"),
        ];
        for name in USED {
            let is_left_out = LEFT_OUT.iter().any(|(left_out, _)| *left_out == name);
            assert_ne!(lock().unwrap().has(name), is_left_out, "{name}");
        }
    }

    #[test]
    fn the_lock_has_what_is_asked_for_and_no_http_client() {
        let lock = lock().unwrap();
        for name in names() {
            assert!(lock.has(name), "{name}");
        }
        for client in ["requests", "httpx", "aiohttp", "urllib3", "boto3"] {
            assert!(!lock.has(client), "{client}");
        }
        assert!(lock.packages().len() <= crate::MAX_PACKAGES);
        assert!(names().is_sorted());
    }
}
