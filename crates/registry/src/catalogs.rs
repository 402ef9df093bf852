//! Catalogs of skills on the web that OmniRoute's API searches and installs from: SkillsMP, skills.sh, and an index at any address.
//!
//! This crate does not connect: [`Web`] does, and decides which addresses may be reached.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use knack_skill::tree::{MAX_FOLDER_BYTES, MAX_SKILL_MD_BYTES};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

/// A catalog of skills.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Catalog {
    /// skillsmp.com, which asks for a key.
    #[default]
    SkillsMp,
    /// skills.sh, which needs none.
    SkillsSh,
    /// An index in the format of [`crate::index`], at the address that is configured.
    Index,
}

impl Catalog {
    /// Every catalog.
    pub const ALL: [Self; 3] = [Self::SkillsMp, Self::SkillsSh, Self::Index];

    /// The word of the API and of the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::SkillsMp => "skillsmp",
            Self::SkillsSh => "skillssh",
            Self::Index => "index",
        }
    }

    /// The catalog of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|catalog| catalog.word() == word)
    }

    /// Where its API is; `None`: where the configuration says.
    pub const fn api(self) -> Option<&'static str> {
        match self {
            Self::SkillsMp => Some("https://skillsmp.com/api/v1/skills"),
            Self::SkillsSh => Some("https://skills.sh/api"),
            Self::Index => None,
        }
    }

    /// Bytes of a list at most.
    pub const fn list_max_bytes(self) -> usize {
        match self {
            Self::SkillsMp | Self::SkillsSh => CATALOG_FETCH_MAX_BYTES,
            Self::Index => INDEX_MAX_BYTES,
        }
    }

    /// Bytes of anything that is fetched from it at most.
    pub const fn fetch_max_bytes(self) -> usize {
        match self {
            Self::SkillsMp | Self::SkillsSh => CATALOG_FETCH_MAX_BYTES,
            Self::Index => INDEX_ARCHIVE_MAX_BYTES,
        }
    }
}

/// Where the SKILL.md files are that skills.sh names: repositories of GitHub.
pub const CATALOG_FILES: &str = "https://raw.githubusercontent.com";

/// Bytes that are fetched at once: a SKILL.md at its largest, or a list of a hundred skills with long descriptions.
pub(crate) const CATALOG_FETCH_MAX_BYTES: usize = MAX_SKILL_MD_BYTES;
/// Bytes of an index: 1,000 entries with descriptions of 1,024 characters, each of up to three bytes.
pub(crate) const INDEX_MAX_BYTES: usize = 4 << 20;
/// Bytes of an archive of an index: files of one skill that cannot be compressed, and room for the headers of its entries.
pub(crate) const INDEX_ARCHIVE_MAX_BYTES: usize = MAX_FOLDER_BYTES + (1 << 20);

/// The catalogs of a registry.
#[derive(Debug, Clone)]
pub struct Catalogs {
    /// The one that is installed from.
    pub active: Catalog,
    /// Where the API of the active one is, without a slash at its end; the address of an index.
    pub api: String,
    /// Where the files of skills.sh's repositories are, without a slash at its end.
    pub files: String,
    /// Whether [`Web`] has a key for the catalog.
    pub has_key: bool,
    /// The client for fetches.
    pub web: Arc<dyn Web>,
}

/// Fetches from catalogs.
#[async_trait]
pub trait Web: Debug + Send + Sync {
    /// What is behind an address. Bounded in time and bytes; the key of the catalog goes to its own site only.
    async fn get(&self, url: &str) -> Result<Bytes, WebError>;
}

/// Why nothing was fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebError {
    /// The server has nothing there.
    #[error("not found")]
    NotFound,
    /// Anything else; the text is for the log.
    #[error("{0}")]
    Failed(String),
}

/// Bytes that a query has unescaped.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

impl Catalogs {
    /// The address of a search. `limit` is of skills.sh; SkillsMP's search has pages of its own.
    pub(crate) fn search(&self, catalog: Catalog, text: &str, limit: usize) -> String {
        let other = catalog.api().filter(|_| catalog != self.active);
        let api = other.unwrap_or(&self.api);
        let text = utf8_percent_encode(text, QUERY);
        match catalog {
            Catalog::SkillsMp => format!("{api}/search?q={text}"),
            Catalog::SkillsSh => format!("{api}/search?q={text}&limit={limit}"),
            Catalog::Index => api.to_owned(),
        }
    }

    /// The address of a skill's SKILL.md. Errors name the member that is wrong.
    pub(crate) fn skill_md(&self, source: &str, skill_id: &str) -> Result<String, (&'static str, &'static str)> {
        let parts: Vec<&str> = source.split('/').collect();
        if parts.len() != 2 || !parts.iter().all(|part| is_segment(part)) {
            return Err(("source", "must be a repository: owner/name"));
        }
        if !is_segment(skill_id) {
            return Err(("skillId", "must be the name of a folder: letters, digits, and . _ - :"));
        }
        Ok(format!("{}/{source}/main/skills/{skill_id}/SKILL.md", self.files))
    }
}

/// Longest part of a path that is taken: names of repositories have 100 characters at most.
const SEGMENT_MAX: usize = 128;

/// Whether a text is one part of a path, which leads nowhere else.
fn is_segment(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
    (1..=SEGMENT_MAX).contains(&text.len()) && text.bytes().all(legal) && !text.bytes().all(|byte| byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct NoWeb;

    #[async_trait]
    impl Web for NoWeb {
        async fn get(&self, _: &str) -> Result<Bytes, WebError> {
            Err(WebError::NotFound)
        }
    }

    #[test]
    fn a_source_and_an_id_lead_to_one_file_of_one_repository() {
        let catalogs = Catalogs {
            active: Catalog::SkillsSh,
            api: "http://mirror/api".to_owned(),
            files: CATALOG_FILES.to_owned(),
            has_key: false,
            web: Arc::new(NoWeb),
        };
        let whole = "https://raw.githubusercontent.com/acme/agent-skills/main/skills/postgres-1.0/SKILL.md";
        assert_eq!(
            catalogs.skill_md("acme/agent-skills", "postgres-1.0"),
            Ok(whole.to_owned())
        );
        for (source, id, field) in [
            ("acme", "x", "source"),
            ("acme/skills/tree", "x", "source"),
            ("../skills", "x", "source"),
            ("acme/..", "x", "source"),
            ("acme/", "x", "source"),
            ("acme/s?ref", "x", "source"),
            ("acme/s", "", "skillId"),
            ("acme/s", "..", "skillId"),
            ("acme/s", "a/b", "skillId"),
            ("acme/s", "a%2fb", "skillId"),
            ("acme/s", "a b", "skillId"),
            ("acme/s", &"x".repeat(129), "skillId"),
        ] {
            assert_eq!(
                catalogs.skill_md(source, id).map_err(|wrong| wrong.0),
                Err(field),
                "{source} {id}"
            );
        }
        assert_eq!(
            catalogs.search(Catalog::SkillsSh, "two wörds&limit=1", 7),
            "http://mirror/api/search?q=two%20w%C3%B6rds%26limit%3D1&limit=7"
        );
        assert_eq!(
            catalogs.search(Catalog::SkillsMp, "x", 7),
            "https://skillsmp.com/api/v1/skills/search?q=x",
            "the mirror is one of the active catalog"
        );
    }
}
