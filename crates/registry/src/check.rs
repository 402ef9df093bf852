//! The one validation of every upload, by the profile of its API: those of Anthropic and OpenAI by the strict one and by what these APIs
//! demand of every dialect; those of Agent Flow, OmniRoute and LiteLLM, which have rules of their own and know fields that the strict
//! one refuses, as folders are loaded.

use knack_skill::frontmatter::{Delimiters, Split, split};
use knack_skill::model::{ActivationMode, Skill, SkillRef, UPLOADS, Upload};
use knack_skill::problem::{Problem, Profile};
use knack_skill::tree::{DOCUMENT_NAMES, MAX_FOLDER_BYTES};
use knack_skill::{LoadInput, SpecOverrides, husk, load, yaml};
use serde_json::Value;

use crate::Files;
use crate::answer::Refusal;
use crate::archive::unzip_within;
use crate::draft::Draft;
use crate::mode::Mode;
use crate::model::{SkillEntry, Version};
use crate::upload::{Folder, folder_of, top_folder};

/// Problems that one answer names; an author mends the first ones first.
const TOLD_MAX: usize = 5;

/// Bytes of a description: every list shows it, and the entry of a skill has those of all versions. The strict profile has less.
pub(crate) const DESCRIPTION_MAX_BYTES: usize = 8 << 10;

/// Keys of a SKILL.md that say when the skill reaches models.
const ACTIVATION_KEYS: [&str; 4] = ["activation", "mode", "enabled", "disable-model-invocation"];

/// What the APIs of vendors demand of a SKILL.md in any dialect, beyond the rules of that dialect: a name and a description, which their
/// clients show, and no activation, since what they upload is listed. Returns the field that is wrong, and why.
pub fn vendor_problem(skill: &Skill) -> Option<(&'static str, &'static str)> {
    let members = match split(&skill.document, Delimiters::Lenient) {
        Split::Found { yaml, .. } => yaml::parse(yaml).as_ref().map_or(Value::Null, yaml::Node::to_json),
        Split::Absent { .. } | Split::Unclosed { .. } => Value::Null,
    };
    let has = |key: &&str| members.get(*key).is_some_and(|value| !value.is_null());
    let lacks = |key: &&str| {
        !has(key)
            || members
                .get(*key)
                .and_then(Value::as_str)
                .is_some_and(|text| text.trim().is_empty())
    };
    if let Some(field) = ["name", "description"].into_iter().find(lacks) {
        return Some((field, "it is missing; write it into the SKILL.md"));
    }
    if skill.activation == ActivationMode::default() {
        return None;
    }
    // Of HUSK `mode` is something else.
    let says = |key: &&str| {
        has(key)
            && members
                .get(*key)
                .and_then(Value::as_str)
                .and_then(husk::Mode::from_word)
                .is_none()
    };
    let field = ACTIVATION_KEYS.into_iter().find(says).unwrap_or(ACTIVATION_KEYS[0]);
    Some((
        field,
        "uploads to the APIs of OpenAI and Anthropic are Listed; remove this key from the SKILL.md",
    ))
}

/// Loads the files of a skill's folder by the rules of its dialect, and of the strict profile by those of vendors too. Errors name the
/// first field that is wrong.
fn loaded(folder: &str, files: Files, profile: Profile) -> Result<Skill, Refusal> {
    let loaded = load(LoadInput {
        id: SkillRef {
            namespace: UPLOADS.to_owned(),
            name: folder.to_owned(),
        },
        files,
        overrides: SpecOverrides::default(),
        profile,
    });
    match loaded.skill {
        Some(skill) if skill.description.len() > DESCRIPTION_MAX_BYTES => Err(long_description(&skill.description)),
        Some(skill) if profile == Profile::Strict => match vendor_problem(&skill) {
            Some((field, why)) => Err(Refusal::invalid(field, format!("{field}: {why}"))),
            None => Ok(skill),
        },
        Some(skill) => Ok(skill),
        None => Err(refusal(&loaded.problems)),
    }
}

/// Validates the files of a skill's folder by the rules of its dialect. Errors name the first field that is wrong.
pub(crate) fn check(folder: &str, files: Files, profile: Profile) -> Result<Draft, Refusal> {
    let skill = loaded(folder, files, profile)?;
    Ok(Draft {
        name: skill.id.name,
        description: skill.description,
        version: skill.version,
        is_release: false,
        mode: Mode::of_activation(skill.activation),
        catalog: None,
        litellm: None,
        digest: skill.digest,
        bytes: skill.files.values().map(|file| file.bytes.len() as u64).sum(),
        files: skill.files,
    })
}

/// A skill that a request attaches whole: the zip of its folder, or of what is in it. The rules are those of uploads by OpenAI's API.
///
/// # Errors
///
/// What is wrong with it, for its sender.
pub fn attached_skill(name: &str, zip: &[u8]) -> Result<Skill, String> {
    let files = unzip_within(zip, MAX_FOLDER_BYTES as u64).map_err(|bad| bad.message)?;
    let is_content = files.contains_key(DOCUMENT_NAMES[0]);
    let folder = if is_content {
        folder_of(name.to_owned(), files)
    } else {
        top_folder(files)
    };
    let skill = folder
        .and_then(Folder::within)
        .and_then(|folder| loaded(&folder.name, folder.files, Profile::Strict));
    skill.map_err(|refusal| refusal.message)
}

/// The refusal of a description that is too long for a list.
pub(crate) fn long_description(description: &str) -> Refusal {
    let text = format!(
        "it has {DESCRIPTION_MAX_BYTES} bytes at most, and this has {}",
        description.len()
    );
    Refusal::invalid("description", text)
}

fn refusal(problems: &[Problem]) -> Refusal {
    let errors: Vec<&Problem> = problems.iter().filter(|problem| problem.is_error()).collect();
    let field = errors
        .iter()
        .map(|problem| problem.field.as_str())
        .find(|field| !field.is_empty());
    let mut texts: Vec<String> = errors.iter().take(TOLD_MAX).map(ToString::to_string).collect();
    if errors.len() > TOLD_MAX {
        texts.push(format!("and {} more problems", errors.len() - TOLD_MAX));
    }
    Refusal::invalid(field.unwrap_or("files"), texts.join("; "))
}

/// A stored version as a skill that requests may name by every reference of the entry. Versions that are not the
/// default have a namespace of their own and are active only where a request names them.
///
/// Errors: the texts of what is wrong, for a version that this program does not take any more.
pub fn load_stored(entry: &SkillEntry, version: &Version, files: Files) -> Result<Skill, String> {
    let is_default = entry.default == Some(version.number);
    let namespace = if is_default {
        UPLOADS.to_owned()
    } else {
        format!("{UPLOADS}-{}", version.number)
    };
    let loaded = load(LoadInput {
        id: SkillRef {
            namespace,
            name: entry.name.clone(),
        },
        files,
        overrides: SpecOverrides {
            ids: Some(entry.references(version)),
            version: version.version.clone(),
            ..SpecOverrides::default()
        },
        profile: Profile::Load,
    });
    let mut skill = loaded.skill.ok_or_else(|| {
        let texts: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
        texts.join("; ")
    })?;
    skill.upload = Some(Upload {
        id: entry.id.clone(),
        number: version.number,
    });
    skill.description.clone_from(&version.description);
    if let Some(fields) = &version.litellm {
        fields.apply(entry.title.as_ref(), &mut skill);
    }
    if let Some(mode) = entry.mode_of(version) {
        skill.activation = mode.activation();
    }
    if !is_default {
        skill.activation = skill.activation.min(ActivationMode::OnRequest);
    }
    Ok(skill)
}
