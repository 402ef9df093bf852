//! The catalogs that skills are installed from, in `knack dev --registry` and `knack registry`: what fetches from them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use async_trait::async_trait;
use bytes::Bytes;
use clap::Args;
use knack_egress::Guard;
use knack_registry::index::INDEX_PATH;
use knack_registry::{CATALOG_FILES, Catalog, Catalogs, Web, WebError};
use knack_trust::Roots;
use reqwest::Url;
use reqwest::header::HeaderValue;

use crate::sources::Cause;
use crate::sources::fetch::Fetcher;

/// A search, a SKILL.md or an archive, from the request to its last byte: what OmniRoute gives them.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The variable with the key of SkillsMP unless a flag names another one.
const SKILLSMP_KEY_ENV: &str = "SKILLSMP_API_KEY";

/// The catalog that skills are installed from.
#[derive(Debug, Args)]
pub(crate) struct CatalogArgs {
    /// The catalog that clients of OmniRoute's API install skills from: skillsmp, skillssh, or index, which is the one at
    /// --catalog-url [default: in knack dev --registry skillsmp, in knack registry none]
    #[arg(long, value_name = "NAME", value_parser = catalog)]
    catalog: Option<Catalog>,
    /// Base URL of that catalog's API, such as a mirror's, to which /search is appended; of an index itself, or of the folder above its
    /// /.well-known, with a slash at the end [default: skillssh https://skills.sh/api, skillsmp https://skillsmp.com/api/v1/skills]
    #[arg(long, value_name = "URL")]
    catalog_url: Option<Url>,
    /// Base URL of the files of skills.sh's repositories, to which /OWNER/NAME/main/skills/ID/SKILL.md is appended [default: https://raw.githubusercontent.com]
    #[arg(long, value_name = "URL")]
    catalog_files_url: Option<Url>,
    /// Environment variable with the key of the catalog's API [default: SKILLSMP_API_KEY for skillsmp, else none]
    #[arg(long, value_name = "NAME")]
    catalog_key_env: Option<String>,
}

fn catalog(word: &str) -> Result<Catalog, String> {
    Catalog::of_word(word).ok_or_else(|| {
        let words: Vec<&str> = Catalog::ALL.into_iter().map(Catalog::word).collect();
        format!("there are {}", words.join(", "))
    })
}

impl CatalogArgs {
    /// The first flag that has a value.
    fn given(&self) -> Option<&'static str> {
        let given = [
            ("--catalog", self.catalog.is_some()),
            ("--catalog-url", self.catalog_url.is_some()),
            ("--catalog-files-url", self.catalog_files_url.is_some()),
            ("--catalog-key-env", self.catalog_key_env.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag)
    }

    /// Refuses flags of a catalog where nothing is installed: without a registry.
    pub(crate) fn refuse_without_registry(&self) -> anyhow::Result<()> {
        match self.given() {
            Some(flag) => bail!("{flag}: skills of a catalog are installed in a registry; set --registry too"),
            None => Ok(()),
        }
    }

    /// Whether a catalog is named.
    pub(crate) const fn is_named(&self) -> bool {
        self.catalog.is_some()
    }

    /// The catalogs where one is named. Errors: an address or a key cannot be used, or no catalog is named that they are of.
    pub(crate) fn named(&self, roots: &Roots) -> anyhow::Result<Option<Catalogs>> {
        match (self.catalog, self.given()) {
            (Some(catalog), _) => self.catalogs(catalog, roots).map(Some),
            (None, Some(flag)) => bail!("{flag}: no catalog is named; set --catalog too"),
            (None, None) => Ok(None),
        }
    }

    /// The catalogs, of which SkillsMP is installed from where none is named. Errors: an address or a key cannot be used.
    pub(crate) fn named_or_default(&self, roots: &Roots) -> anyhow::Result<Catalogs> {
        self.catalogs(self.catalog.unwrap_or_default(), roots)
    }

    /// The variable of the key. That of one catalog is no business of the other.
    fn key_variable(&self, active: Catalog) -> Option<&str> {
        let named = self.catalog_key_env.as_deref();
        named.or_else(|| (active == Catalog::SkillsMp).then_some(SKILLSMP_KEY_ENV))
    }

    /// Where the API of the catalog is, or the index.
    fn api(&self, active: Catalog) -> anyhow::Result<Url> {
        let named = self.catalog_url.clone();
        if active == Catalog::Index {
            let url = named.context("--catalog index: set --catalog-url to the address of the index")?;
            return Ok(if url.path().ends_with('/') {
                url.join(INDEX_PATH)?
            } else {
                url
            });
        }
        let own = active.api().unwrap_or_default();
        Ok(named.map_or_else(|| Url::parse(own), Ok)?)
    }

    fn catalogs(&self, active: Catalog, roots: &Roots) -> anyhow::Result<Catalogs> {
        if active != Catalog::SkillsSh && self.catalog_files_url.is_some() {
            bail!(
                "--catalog-files-url: only skills of skills.sh are files of a repository; use it with --catalog skillssh"
            );
        }
        let api = self.api(active)?;
        let files = self
            .catalog_files_url
            .clone()
            .map_or_else(|| Url::parse(CATALOG_FILES), Ok)?;
        for (flag, url) in [("--catalog-url", &api), ("--catalog-files-url", &files)] {
            Guard::new(Vec::new()).with_hosts_of([url]).check(url).context(flag)?;
            if url.query().is_some() || url.fragment().is_some() {
                bail!("{flag} {url}: paths are appended to it; remove the query (?) and the fragment (#)");
            }
        }
        let guard =
            Guard::new(Vec::new()).with_hosts_of([&self.catalog_url, &self.catalog_files_url].into_iter().flatten());
        let mut fetcher = Fetcher::guarded(guard, roots)?.within(active.fetch_max_bytes());
        let variable = self.key_variable(active);
        let key = variable.and_then(|name| std::env::var(name).ok());
        let key = key.filter(|key| !key.is_empty());
        if let Some(key) = &key {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}")).with_context(|| {
                format!(
                    "{} contains characters that are not allowed in a header",
                    variable.unwrap_or_default()
                )
            })?;
            value.set_sensitive(true);
            fetcher = fetcher.with_key(&api, value);
        }
        let base = |url: &Url| url.as_str().trim_end_matches('/').to_owned();
        Ok(Catalogs {
            active,
            api: base(&api),
            files: base(&files),
            has_key: key.is_some(),
            web: Arc::new(GuardedWeb(fetcher)),
        })
    }
}

/// The public web, and the hosts and ports that the command line names.
#[derive(Debug)]
struct GuardedWeb(Fetcher);

#[async_trait]
impl Web for GuardedWeb {
    async fn get(&self, url: &str) -> Result<Bytes, WebError> {
        let fetched = tokio::time::timeout(TIMEOUT, self.0.get(url)).await;
        let fetched = fetched.map_err(|_| WebError::Failed(format!("no answer within {} s", TIMEOUT.as_secs())))?;
        // The share of the room for fetches ends here: a SKILL.md is read at once.
        fetched.map(|fetched| fetched.bytes).map_err(|error| match error.cause {
            Cause::NotFound => WebError::NotFound,
            _ => WebError::Failed(error.message),
        })
    }
}
