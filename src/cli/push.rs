//! `knack skill push` and `versions`: skills of this machine to a server with OpenAI's Skills API, and what it has.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use knack_gateway::catalog::SkillSource;
use knack_registry::{Difference, ModelView, vendor_problem};
use knack_skill::problem::Profile;

use super::diff::seen;
use super::find_sources::{find_sources, manifest_fields};
use super::import::is_valid;
use super::skills_api::{Listed, ServerArgs, SkillsApi};
use super::terminal;
use crate::dev::{archived_skill, discover, repeated};

/// Arguments of `knack skill push`.
#[derive(Debug, Args)]
pub struct PushArgs {
    /// Skill folder, folder with several, archive, or manifest file
    source: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
    /// Keep the default version of skills that already exist
    #[arg(long)]
    keep_default: bool,
    /// Upload nothing; print what a model would see instead of the default version, as knack skill diff does
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `knack skill versions`.
#[derive(Debug, Args)]
pub struct VersionsArgs {
    /// Name of the skill
    name: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Uploads each skill found: a new one, or a new version of the one of its name. All are checked before the first is sent.
pub async fn push(args: PushArgs) -> anyhow::Result<ExitCode> {
    let found = find_sources(vec![args.source.clone()], discover).await?;
    if found.skills.is_empty() && found.errors().next().is_none() {
        bail!(
            "no skill found in {}; name a folder, an archive or a manifest",
            args.source.display()
        );
    }
    // Every problem is printed, not the first alone.
    let again = repeated(&found.skills, |skill| &skill.id.name);
    let mut invalid = again.len();
    for (place, skill) in found.skills.iter().enumerate() {
        let name = &skill.id.name;
        if let Some(first) = again.get(&place) {
            terminal::note(&format!(
                "error: {}: {} has a skill {name}, too, and the one that is sent last would be served; rename one",
                skill.origin, first.origin
            ));
        }
        let beside = manifest_fields(skill);
        if !beside.is_empty() {
            invalid += 1;
            terminal::note(&format!(
                "error: {}: skill {name}: the server takes files only, and the manifest also has {}; {}",
                skill.origin,
                beside.join(", "),
                cures(&beside)
            ));
        }
        // Both, so that no problem comes up at the next try.
        let (is_valid, is_taken) = (is_valid(skill, Profile::Strict), is_taken_by_vendors(skill));
        invalid += usize::from(!is_valid || (beside.is_empty() && !is_taken));
    }
    if invalid > 0 || found.errors().next().is_some() {
        terminal::error("nothing was uploaded");
        return Ok(ExitCode::FAILURE);
    }
    let api = SkillsApi::new(&args.server)?;
    let there = api.skills().await?;
    for skill in &found.skills {
        let existing = named(&there, &skill.id.name);
        let outcome = if args.dry_run {
            preview(&api, skill, existing).await
        } else {
            push_one(&api, skill, existing, !args.keep_default).await
        };
        terminal::line(&outcome.with_context(|| skill.id.name.clone())?);
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the API of a vendor takes a skill that is valid; if not, this is printed.
fn is_taken_by_vendors(source: &SkillSource) -> bool {
    let skill = source.load(Profile::Load).skill;
    let problem = skill.as_ref().and_then(vendor_problem);
    if let Some((field, why)) = problem {
        terminal::note(&format!("error: {}: {field}: {why}", source.origin));
    }
    problem.is_none()
}

/// The skill of a name.
fn named<'a>(skills: &'a [Listed], name: &str) -> Option<&'a Listed> {
    skills.iter().find(|skill| skill.name == name)
}

/// How a skill keeps fields of its manifest that an upload does not have.
fn cures(fields: &[&str]) -> String {
    // What the strict profile lets a SKILL.md say.
    let in_document = |field: &str| match field {
        "spec.version" => Some("metadata.version"),
        "spec.activation.tags" => Some("metadata.tags"),
        "spec.ids" => Some("metadata.skill_id"),
        _ => None,
    };
    let moved = fields.iter().filter_map(|field| {
        let place = in_document(field)?;
        Some(format!("write {field} as {place} into the SKILL.md"))
    });
    let mut cures: Vec<String> = moved.collect();
    let rest: Vec<&str> = fields
        .iter()
        .copied()
        .filter(|field| in_document(field).is_none())
        .collect();
    if !rest.is_empty() {
        cures.push(format!(
            "for {} apply the manifest to a cluster with kubectl instead",
            rest.join(", ")
        ));
    }
    cures.join("; ")
}

async fn push_one(
    api: &SkillsApi,
    source: &SkillSource,
    existing: Option<&Listed>,
    is_default: bool,
) -> anyhow::Result<String> {
    let name = &source.id.name;
    let zip = knack_registry::zipped(name, &source.files)?;
    let Some(skill) = existing else {
        let skill = api.create(name, &zip).await?;
        let version = skill.default_version.as_deref().unwrap_or("1");
        return Ok(format!("{name} {} version {version}, default", skill.id));
    };
    let version = api.add(skill, &zip, is_default).await?;
    let note = match &skill.default_version {
        _ if is_default => "default".to_owned(),
        Some(default) => format!("the default is still {default}"),
        None => "there is no default".to_owned(),
    };
    Ok(format!("{name} {} version {}, {note}", skill.id, version.version))
}

/// What a push would change: whether the skill is new, and what differs from the version that is served by default.
async fn preview(api: &SkillsApi, source: &SkillSource, existing: Option<&Listed>) -> anyhow::Result<String> {
    let name = &source.id.name;
    let after = seen(source)?;
    let (head, before) = match existing {
        None => (format!("{name} would be new"), ModelView::default()),
        Some(skill) => match &skill.default_version {
            None => (
                format!("{name} {} would have its first version", skill.id),
                ModelView::default(),
            ),
            Some(version) => {
                let zip = api.content(skill).await?;
                let before = archived_skill(&skill.id, name, &zip).map_err(anyhow::Error::msg);
                let before = before.and_then(|before| seen(&before));
                let before = before.with_context(|| format!("version {version} of the server"))?;
                let head = format!("{name} {} would have a version after {version}", skill.id);
                (head, before)
            }
        },
    };
    let difference = Difference::between(&before, &after).to_string();
    if difference.is_empty() {
        return Ok(format!("{head}: the same for a model"));
    }
    Ok(format!("{head}\n{difference}").trim_end().to_owned())
}

/// Prints the versions of a skill: number, id, when it was made, its description.
pub async fn versions(args: VersionsArgs) -> anyhow::Result<ExitCode> {
    let api = SkillsApi::new(&args.server)?;
    let there = api.skills().await?;
    let Some(skill) = named(&there, &args.name) else {
        bail!("{}: this key has no skill of that name there", args.name);
    };
    for version in api.versions(skill).await? {
        let made = jiff::Timestamp::from_second(version.created_at)
            .map_or_else(|_| version.created_at.to_string(), |time| time.to_string());
        let is_default = skill.default_version.as_ref() == Some(&version.version);
        terminal::line(&format!(
            "{}{}  {}  {made}  {}",
            version.version,
            if is_default { " (default)" } else { "" },
            version.id,
            version.description.unwrap_or_default()
        ));
    }
    Ok(ExitCode::SUCCESS)
}
