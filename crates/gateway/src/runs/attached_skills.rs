//! Skills that a request attaches whole to its shell: read by the rules of uploads, and given to the runs of the request as files.

use bytes::Bytes;
use knack_registry::attached_skill;
use knack_skill::call::{ATTACHED, is_stageable};
use knack_skill::catalog::Catalog;
use knack_skill::model::Skill;
use knack_skill::tree::MAX_FOLDER_BYTES;
use knack_wire::request::InlineSkill;
use knack_wire::{Fault, Request};

use crate::files::request_files::{MADE_MAX_FILES, STAGED_MAX_BYTES};
use crate::model_calls::hidden_turns::StagedFile;

/// Skills of one request, as OpenAI's API has it.
const SKILLS_MAX: usize = 200;
/// The only media type of the API.
const ZIP: &str = "application/zip";
/// The message while there is no room for the files.
pub(crate) const NO_MEMORY: &str =
    "The gateway is short of memory for the skills of this request; try again in a second.";

/// Reads the skills of a request. `room` is asked for memory, all that is needed so far, before it is taken. Errors (400, 503): one that is
/// no skill, has the name of another one, or finds no room.
pub(crate) fn read(
    request: &Request,
    catalog: &Catalog,
    room: &mut dyn FnMut(usize) -> bool,
) -> Result<Vec<Skill>, Fault> {
    let attached = request.inline_skills();
    if attached.len() > SKILLS_MAX {
        let text = format!(
            "The tool \"shell\" has {} skills; {SKILLS_MAX} are allowed.",
            attached.len()
        );
        return Err(Fault::bad("tools", text));
    }
    let (mut skills, mut bytes, mut files) = (Vec::<Skill>::new(), 0, 0);
    for one in attached {
        // The archive, what is in it, and what was read before; a file is copied once when it is shared. What is larger than a skill
        // may be is refused while it is unpacked.
        if !room(bytes + one.bytes() + 2 * MAX_FOLDER_BYTES) {
            return Err(Fault::new(503, NO_MEMORY));
        }
        let skill = skill(&one).map_err(|why| refused(&one.name, &why))?;
        let name = &skill.id.name;
        if skills.iter().any(|other| other.id.name == *name) {
            return Err(refused(
                name,
                "another skill of this request has its name; send it once",
            ));
        }
        if catalog.find(name).is_some() {
            let why = "a skill of this gateway has its name; change name in its SKILL.md, and the folder's with it";
            return Err(refused(name, why));
        }
        bytes += skill.files.values().map(|file| file.bytes.len()).sum::<usize>();
        files += skill.files.len();
        if files > MADE_MAX_FILES || bytes > STAGED_MAX_BYTES {
            let why = format!(
                "the skills of a request have at most {MADE_MAX_FILES} files, of {STAGED_MAX_BYTES} bytes in all; upload it to \
                 /v1/skills, and attach it by its id"
            );
            return Err(refused(name, &why));
        }
        skills.push(skill);
    }
    Ok(skills)
}

fn skill(one: &InlineSkill<'_>) -> Result<Skill, String> {
    if one.source != "base64" {
        return Err("source.type must be \"base64\"".to_owned());
    }
    if one.media_type != ZIP {
        return Err(format!("source.media_type must be \"{ZIP}\""));
    }
    let zip = one.zip().ok_or("source.data is not base64")?;
    attached_skill(&one.name, &zip).map_err(|why| format!("source.data: {why}"))
}

fn refused(name: &str, why: &str) -> Fault {
    Fault::bad(
        "tools",
        format!("The skill {name:?} of the tool \"shell\" cannot be used: {why}."),
    )
}

/// The files of the skills for the runs of their request.
pub(crate) fn files(skills: Vec<Skill>) -> Vec<StagedFile> {
    let of = |skill: Skill| {
        let name = skill.id.name;
        let files = skill.files.into_iter().filter(|(path, _)| is_stageable(path));
        let files = files.map(move |(path, file)| (format!("{ATTACHED}/{name}/{path}"), Bytes::from_owner(file.bytes)));
        files.collect::<Vec<_>>()
    };
    skills.into_iter().flat_map(of).collect()
}
