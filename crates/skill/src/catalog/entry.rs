//! One skill as a catalog serves it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids;
use crate::model::{ActivationMode, Input, Skill, Tool};
use crate::plan::{PlannedTool, ServedVersion};
use crate::risk::Risk;
use crate::template::{self, FilledTooLarge};
use crate::texts;

/// The file that every skill has; it is not among the files shown to models.
pub const SKILL_MD: &str = "SKILL.md";

/// The version that a request asks for if it names none.
const LATEST: &str = "latest";

/// The three tools that are not declared by any skill, in the order of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Generic {
    LoadSkill,
    RunSkillTool,
    RunCode,
}

/// One skill with its mode here and its prepared tools.
#[derive(Debug)]
pub struct CatalogEntry {
    /// The skill.
    pub skill: Arc<Skill>,
    /// The name for models and logs: its name, or `namespace/name` where several namespaces have one of this name and
    /// another one keeps it. Its files are at `skills/<handle>/`.
    pub handle: Arc<str>,
    /// Its mode in this runtime: its own, capped, or a pin's.
    pub mode: ActivationMode,
    /// Values of a pin for its template inputs.
    pub inputs: BTreeMap<String, String>,
    /// The highest risk of its tools that is offered here.
    pub max_risk: Risk,
    /// Names of its tools that are not offered here, since values of their configuration are missing or do not fit.
    pub withheld: BTreeSet<String>,
    /// Its offered tools, hidden ones left out, under their wire names.
    pub(crate) tools: Vec<Arc<PlannedTool>>,
}

impl CatalogEntry {
    /// The version that a reference comes to. `None`: the reference names it itself, or there is none.
    pub(crate) fn version_served(&self, reference: &str) -> Option<ServedVersion> {
        let word = ids::with_version(reference).map(|(_, word)| word);
        let is_named = word.is_some_and(|word| word != LATEST) && self.skill.ids.iter().any(|id| id == reference);
        if is_named { None } else { self.version_word() }
    }

    /// Its version in the words of an API: of an upload the id and the time of its making, as the Skills API has them, else its number;
    /// of another skill what it declares. `None`: it has none.
    fn version_word(&self) -> Option<ServedVersion> {
        let Some(upload) = &self.skill.upload else {
            return self.skill.version.clone().map(|word| ServedVersion { word, id: None });
        };
        let number = upload.number.to_string();
        let references = self.skill.ids.iter().filter_map(|id| ids::with_version(id));
        let words = || {
            let own = references.clone().filter(|(skill, _)| *skill == upload.id);
            own.map(|(_, word)| word)
        };
        let mut times = words().filter(|word| word.parse::<u64>().is_ok());
        let id = words().find(|word| word.starts_with(ids::UPLOADED_VERSION));
        Some(ServedVersion {
            word: times.find(|word| *word != number).map_or(number.clone(), str::to_owned),
            id: id.map(str::to_owned),
        })
    }

    /// Whether it is the version of an uploaded skill that is served where no version is named, or no upload. The others carry only
    /// ids with a version.
    pub fn is_default_version(&self) -> bool {
        self.skill.upload.as_ref().is_none_or(|upload| {
            let ids = [&self.skill.ids, &self.skill.object_ids];
            ids.iter().any(|ids| ids.contains(&upload.id))
        })
    }

    /// Paths of its files, SKILL.md left out, sorted.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.skill
            .files
            .keys()
            .map(String::as_str)
            .filter(|path| *path != SKILL_MD)
    }

    /// Whether there is any file besides SKILL.md.
    pub fn has_files(&self) -> bool {
        self.paths().next().is_some()
    }

    /// Its declared tools whose risk is within the runtime's limit and whose configuration has values: the others are not
    /// run here, so they are not offered to models.
    pub fn offered(&self) -> impl Iterator<Item = &Tool> {
        let is_offered = |tool: &&Tool| tool.risk <= self.max_risk && !self.withheld.contains(&tool.name);
        self.skill.tools.iter().filter(is_offered)
    }

    /// Whether a model may see it without the request naming it: listed or always active.
    pub fn is_public(&self) -> bool {
        matches!(self.mode, ActivationMode::Listed | ActivationMode::Always)
    }

    /// Required inputs that neither `given` nor the pin gives a value, in declared order.
    pub fn missing_inputs(&self, given: &BTreeMap<String, String>) -> Vec<&Input> {
        let missing = |input: &&Input| template::is_missing(input, given) && template::is_missing(input, &self.inputs);
        self.skill.inputs.iter().filter(missing).collect()
    }

    /// The instructions, template inputs filled from `given`, then from the pin, then from their defaults.
    pub fn body(&self, given: &BTreeMap<String, String>) -> Result<String, FilledTooLarge> {
        if self.skill.inputs.is_empty() {
            return Ok(self.skill.body.clone());
        }
        template::substitute(&self.skill.body, &self.skill.inputs, |name| self.value(given, name))
    }

    /// The bytes of its instructions, filled in the same way: to be asked before they are made.
    pub fn body_bytes(&self, given: &BTreeMap<String, String>) -> usize {
        if self.skill.inputs.is_empty() {
            return self.skill.body.len();
        }
        template::filled_bytes(&self.skill.body, &self.skill.inputs, |name| self.value(given, name))
    }

    fn value<'v>(&'v self, given: &'v BTreeMap<String, String>, name: &str) -> Option<&'v str> {
        given.get(name).or_else(|| self.inputs.get(name)).map(String::as_str)
    }

    /// Its section under the heading of active skills. Without a value for every required input it asks for them in place of the body:
    /// a template with blanks in it would be other instructions than the author wrote.
    pub(crate) fn section(&self, given: &BTreeMap<String, String>, load_skill: &str) -> String {
        if !self.missing_inputs(given).is_empty() {
            let call = texts::load_with_inputs(load_skill, &self.handle);
            return self.section_of_inputs(given, &call);
        }
        let files = texts::files_line(&self.handle, self.paths());
        let body = self.body(given).unwrap_or_else(texts::body_too_large);
        texts::body_section(&self.skill.title, &body, &files)
    }

    /// The section that asks for inputs; `call` says how they are given.
    pub(crate) fn section_of_inputs(&self, given: &BTreeMap<String, String>, call: &str) -> String {
        let skill = &self.skill;
        let pinned = |input: &&Input| self.inputs.get(&input.name).is_some_and(|value| !value.is_empty());
        let wanted = skill.inputs.iter().filter(|input| !pinned(input));
        texts::inputs_wanted(&skill.title, &skill.description, call, wanted, given)
    }
}
