//! Skills behind an address: a file, or what the index of a site offers.

use anyhow::{Context as _, bail};
use knack_api::SkillManifest;
use knack_api::skill::ArchiveSource;
use knack_gateway::catalog::SkillSource;
use knack_registry::index::{INDEX_PATH, OfferedSkill, SkillFileKind, SkippedEntry, entries};
use knack_trust::Roots;
use reqwest::Url;
use reqwest::header::HeaderValue;

use super::terminal;
use crate::dev::{archive_stem, archived_skill, lone_skill, with_files};
use crate::sources::archive::unpack;
use crate::sources::fetch::{Fetcher, networks_of};
use crate::sources::has_digest;

/// Skills that one call takes from an index: all are in memory until they are written.
const SKILLS_MAX: usize = 50;
/// Bytes of their files together, for the same reason.
const FILES_MAX_BYTES: usize = 256 << 20;
/// Most unreadable entries that are printed: an author corrects the first ones first.
const SKIPPED_TOLD_MAX: usize = 10;

/// A skill, with where a cluster can fetch it.
pub(super) struct FetchedSkill {
    /// The skill's files.
    pub skill: SkillSource,
    /// The archive that they were fetched from; `None`: from elsewhere.
    pub archive: Option<ArchiveSource>,
}

/// An address, if that is what a source is.
pub(super) fn address(source: &str) -> Option<anyhow::Result<Url>> {
    let is_address = ["https://", "http://"].iter().any(|scheme| source.starts_with(scheme));
    is_address.then(|| checked(source))
}

fn checked(source: &str) -> anyhow::Result<Url> {
    let url = Url::parse(source).context("the address is not valid")?;
    if !url.username().is_empty() || url.password().is_some() {
        bail!(
            "the address holds a user or a password, which would be written into the manifest; fetch the file yourself and import it"
        );
    }
    if !url.path().ends_with('/') {
        return Ok(url);
    }
    Ok(url.join(INDEX_PATH)?)
}

/// Fetches the skills behind an address: a file, or those of an index that `wanted` names, or all of it. Only public
/// addresses are asked, and the host that the user named, which alone gets `key`.
pub(super) async fn fetch(
    url: &Url,
    wanted: &[String],
    key: Option<HeaderValue>,
    roots: &Roots,
) -> anyhow::Result<Vec<FetchedSkill>> {
    let mut fetcher = Fetcher::new(networks_of(url).await?, roots)?;
    if let Some(key) = key {
        fetcher = fetcher.with_key(url, key);
    }
    let bytes = get(&fetcher, url).await?;
    let name = file_name(url);
    let kind = match &*bytes {
        // Perhaps behind a byte order mark.
        [b'-', b'-', b'-', ..] | [0xef, 0xbb, 0xbf, ..] => SkillFileKind::SkillMd,
        [b'{', ..] => return offered(&fetcher, url, &bytes, wanted).await,
        _ => SkillFileKind::Archive,
    };
    let one = read(url, name, kind, &bytes)?;
    if let Some(other) = wanted.iter().find(|name| **name != one.skill.id.name) {
        bail!(
            "{}: the skill is named {:?}, not {other:?}",
            shown(url),
            one.skill.id.name
        );
    }
    Ok(vec![one])
}

/// The skill of a manifest that names an archive: what a cluster would serve.
pub(super) async fn pinned(
    origin: &str,
    manifest: &SkillManifest,
    archive: &ArchiveSource,
    roots: &Roots,
) -> anyhow::Result<SkillSource> {
    let url = checked(&archive.url)?;
    let fetched = Fetcher::new(networks_of(&url).await?, roots)?.fetch(archive).await?;
    let files = unpack(&fetched.bytes).map_err(|error| error.of_field("spec.source.archive"))?;
    with_files(origin, manifest, files).map_err(anyhow::Error::msg)
}

async fn get(fetcher: &Fetcher, url: &Url) -> anyhow::Result<bytes::Bytes> {
    let fetched = fetcher.get(url.as_str()).await.with_context(|| shown(url))?;
    Ok(fetched.bytes)
}

/// The skills of an index.
async fn offered(fetcher: &Fetcher, base: &Url, index: &[u8], wanted: &[String]) -> anyhow::Result<Vec<FetchedSkill>> {
    let index = entries(base, index).with_context(|| shown(base))?;
    refuse_or_tell(&index.skipped, wanted).with_context(|| shown(base))?;
    if index.skills.is_empty()
        && let Some(first) = index.skipped.first()
    {
        bail!("{}: no entry of the index can be read: {first}", shown(base));
    }
    let entries = index.skills;
    let mut found = Vec::new();
    let mut total = 0;
    for (entry, kind) in chosen(&entries, wanted).with_context(|| shown(base))? {
        let bytes = get(fetcher, &entry.url).await.with_context(|| entry.name.clone())?;
        if let Err(digest) = has_digest(&entry.digest, &bytes) {
            bail!(
                "{}: {} has digest {digest}, the index says {}; nothing was imported",
                entry.name,
                shown(&entry.url),
                entry.digest
            );
        }
        terminal::note(&format!(
            "{}: {} bytes from {}",
            entry.name,
            bytes.len(),
            shown(&entry.url)
        ));
        let one = read(&entry.url, &entry.name, kind, &bytes)?;
        if one.skill.id.name != entry.name {
            bail!("{}: the archive holds a skill {:?}", entry.name, one.skill.id.name);
        }
        total += one.skill.files.values().map(|file| file.bytes.len()).sum::<usize>();
        if total > FILES_MAX_BYTES {
            bail!(
                "{}: the skills have more than {} MiB together; name fewer by --skill",
                entry.name,
                FILES_MAX_BYTES >> 20
            );
        }
        found.push(one);
    }
    Ok(found)
}

/// Prints the entries that cannot be read. Errors: the user asked for one of them.
fn refuse_or_tell(skipped: &[SkippedEntry], wanted: &[String]) -> anyhow::Result<()> {
    if let Some(entry) = skipped.iter().find(|entry| wanted.contains(&entry.name)) {
        bail!("{entry}");
    }
    for entry in skipped.iter().take(SKIPPED_TOLD_MAX).filter(|_| wanted.is_empty()) {
        terminal::note(&format!("skipped, since it cannot be read: {entry}"));
    }
    Ok(())
}

/// The entries that are wanted. Those of a type that is not known are skipped, unless they are asked for.
fn chosen<'e>(
    entries: &'e [OfferedSkill],
    wanted: &[String],
) -> anyhow::Result<Vec<(&'e OfferedSkill, SkillFileKind)>> {
    let names = || {
        entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    if let Some(missing) = wanted
        .iter()
        .find(|name| entries.iter().all(|entry| entry.name != **name))
    {
        bail!("the index has no skill {missing:?}; it has {}", names());
    }
    let mut found = Vec::new();
    for entry in entries {
        let is_asked_for = wanted.contains(&entry.name);
        match entry.kind {
            _ if !is_asked_for && !wanted.is_empty() => {}
            Some(kind) => found.push((entry, kind)),
            None if is_asked_for => bail!("{}: its type is not supported", entry.name),
            None => terminal::note(&format!("{}: skipped, its type is not supported", entry.name)),
        }
    }
    if found.len() > SKILLS_MAX {
        bail!(
            "{} skills, at most {SKILLS_MAX} at a time; name those that you want by --skill: {}",
            found.len(),
            names()
        );
    }
    Ok(found)
}

fn read(url: &Url, name: &str, kind: SkillFileKind, bytes: &[u8]) -> anyhow::Result<FetchedSkill> {
    let origin = shown(url);
    if kind == SkillFileKind::SkillMd {
        let skill = lone_skill(&origin, name, bytes);
        return Ok(FetchedSkill { skill, archive: None });
    }
    let skill = archived_skill(&origin, archive_stem(name).unwrap_or(name), bytes)
        .map_err(anyhow::Error::msg)
        .with_context(|| origin.clone())?;
    let archive = ArchiveSource {
        url: url.to_string(),
        digest: format!("sha256:{}", knack_skill::digest::sha256(bytes)),
    };
    Ok(FetchedSkill {
        skill,
        archive: Some(archive),
    })
}

/// The last part of a path that is no SKILL.md: what a skill at its root is named.
fn file_name(url: &Url) -> &str {
    let mut parts = url
        .path()
        .rsplit('/')
        .filter(|part| !part.is_empty() && !part.eq_ignore_ascii_case("SKILL.md"));
    parts.next().unwrap_or_default()
}

/// An address without its query, which may hold a secret.
fn shown(url: &Url) -> String {
    url.as_str().split(['?', '#']).next().unwrap_or_default().to_owned()
}
