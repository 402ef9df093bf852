//! The catalogs that skills are installed from by `--registry`: what fetches from them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use async_trait::async_trait;
use bytes::Bytes;
use clap::Args;
use knack_registry::{CATALOG_FILES, Catalog, Catalogs, Web, WebError};
use knack_trust::Roots;
use reqwest::Url;
use reqwest::header::HeaderValue;

use crate::sources::Cause;
use crate::sources::fetch::{Fetcher, networks_of};

/// A search or a SKILL.md, from the request to its last byte: what OmniRoute gives them.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The catalog that skills are installed from.
#[derive(Debug, Args)]
pub(super) struct CatalogArgs {
    /// The catalog that clients of OmniRoute's API install skills from: skillsmp or skillssh
    #[arg(long, value_name = "NAME", default_value = Catalog::SkillsMp.word(), requires = "registry", value_parser = catalog)]
    catalog: Catalog,
    /// Address of that catalog's API, such as a mirror's [default: the catalog's own]
    #[arg(long, value_name = "URL", requires = "registry")]
    catalog_url: Option<Url>,
    /// Address below which the files of skills.sh's repositories are
    #[arg(long, value_name = "URL", default_value = CATALOG_FILES, requires = "registry")]
    catalog_files_url: Url,
    /// Environment variable with the key of the catalog's API [default: SKILLSMP_API_KEY for skillsmp, none for skillssh]
    #[arg(long, value_name = "NAME", requires = "registry")]
    catalog_key_env: Option<String>,
}

fn catalog(word: &str) -> Result<Catalog, String> {
    Catalog::of_word(word).ok_or_else(|| {
        let words: Vec<&str> = Catalog::ALL.into_iter().map(Catalog::word).collect();
        format!("there are {}", words.join(" and "))
    })
}

/// The variable of the key. That of one catalog is no business of the other.
fn key_variable(args: &CatalogArgs) -> Option<&str> {
    let named = args.catalog_key_env.as_deref();
    named.or_else(|| (args.catalog == Catalog::SkillsMp).then_some("SKILLSMP_API_KEY"))
}

/// The catalogs of the arguments.
pub(super) async fn catalogs(args: &CatalogArgs, roots: &Roots) -> anyhow::Result<Catalogs> {
    let api = match &args.catalog_url {
        Some(url) => url.clone(),
        None => Url::parse(args.catalog.api())?,
    };
    if args.catalog != Catalog::SkillsSh && args.catalog_files_url.as_str().trim_end_matches('/') != CATALOG_FILES {
        bail!("--catalog-files-url: a skill of SkillsMP is no file of a repository; it goes with --catalog skillssh");
    }
    let variable = key_variable(args);
    let key = variable.and_then(|name| std::env::var(name).ok());
    let key = key.filter(|key| !key.is_empty());
    // Who names an address on the command line wants it, wherever it is.
    let mut allowed = Vec::new();
    for (flag, url) in [
        ("--catalog-url", args.catalog_url.as_ref()),
        ("--catalog-files-url", Some(&args.catalog_files_url)),
    ] {
        if let Some(url) = url.filter(|url| url.as_str().trim_end_matches('/') != CATALOG_FILES) {
            allowed.extend(networks_of(url).await.context(flag)?);
        }
    }
    let mut fetcher = Fetcher::new(allowed, roots)?;
    if let Some(key) = &key {
        let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
            .with_context(|| format!("{} holds characters that no header takes", variable.unwrap_or_default()))?;
        value.set_sensitive(true);
        fetcher = fetcher.with_key(&api, value);
    }
    let base = |url: &Url| url.as_str().trim_end_matches('/').to_owned();
    Ok(Catalogs {
        active: args.catalog,
        api: base(&api),
        files: base(&args.catalog_files_url),
        has_key: key.is_some(),
        web: Arc::new(Guarded(fetcher)),
    })
}

/// The public web, and the hosts that the user named.
#[derive(Debug)]
struct Guarded(Fetcher);

#[async_trait]
impl Web for Guarded {
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
