//! From selected skills to system text and tools.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::select::NamedSkill;
use super::types::{Action, ActivationCause, Active, HeaderNote, Note, Plan, PlannedTool};
use crate::catalog::{BaseInjection, Catalog, CatalogEntry, Generic, ModelCode};
use crate::litellm;
use crate::model::{ActivationMode, Skill, SkillRef};
use crate::template::{FilledTooLarge, MAX_FILLED_BYTES};
use crate::texts;
use crate::wire_name;

/// Assembles the injection of a request that names nothing.
pub(crate) fn base(catalog: &Catalog) -> BaseInjection {
    let plan = assemble(catalog, &[], &[], &[], &[]);
    let names = plan.tools.iter().map(|tool| tool.name.clone()).collect();
    BaseInjection {
        system: plan.system,
        tools: plan.tools,
        names,
        active: plan.active,
        added_tokens: plan.added_tokens,
    }
}

/// Assembles text and tools: listed, then the bodies of Always, named and scored skills; generic tools, then declared ones in the same order.
/// `besides`: generic tools that are among them in any case.
pub(super) fn assemble(
    catalog: &Catalog,
    named: &[NamedSkill<'_>],
    scored: &[&CatalogEntry],
    client_tools: &[&str],
    besides: &[Generic],
) -> Plan {
    let client: HashSet<&str> = client_tools.iter().copied().collect();
    let mut parts = Parts::new(&client);
    let active = active(catalog, named, scored);
    let listing = catalog.listing_block(texts::LOAD_SKILL).is_some();
    let ordinary = active.iter().any(|(active, _)| active.why != ActivationCause::Litellm);
    let mut kinds = Vec::new();
    if listing || ordinary {
        kinds.extend_from_slice(catalog.generic());
    }
    kinds.extend_from_slice(besides);
    kinds.sort_unstable();
    kinds.dedup();
    let loader = parts.generic(catalog, &kinds);
    parts.declared(&active, named, catalog.settings().model_code);
    parts.notes.extend(wanting(&active, named));
    let system = system(catalog, &active, loader.as_deref(), named);
    parts.plan(system, active.into_iter().map(|(active, _)| active).collect())
}

/// Assembles the tools of a run of one skill. Its instructions are in the request, so the text names its files alone.
pub(super) fn of_run(catalog: &Catalog, entry: &CatalogEntry, client_tools: &[&str]) -> Plan {
    let client: HashSet<&str> = client_tools.iter().copied().collect();
    let mut parts = Parts::new(&client);
    let active = [(describe(entry, ActivationCause::Run), entry)];
    let runs_code = entry.has_files() && catalog.settings().model_code == ModelCode::Allow;
    if runs_code {
        parts.generic(catalog, &[Generic::RunCode]);
    }
    parts.declared(&active, &[], catalog.settings().model_code);
    let system = if runs_code {
        texts::files_line(&entry.handle, entry.paths())
    } else {
        String::new()
    };
    let [(active, _)] = active;
    parts.plan(system, vec![active])
}

/// Active skills in the order of the system text.
fn active<'a>(
    catalog: &'a Catalog,
    named: &[NamedSkill<'a>],
    scored: &[&'a CatalogEntry],
) -> Vec<(Active, &'a CatalogEntry)> {
    let is_litellm = |entry: &CatalogEntry| {
        named
            .iter()
            .any(|named| named.why == ActivationCause::Litellm && named.entry.skill.id == entry.skill.id)
    };
    let always = catalog
        .entries()
        .iter()
        .filter(|entry| entry.mode == ActivationMode::Always && !is_litellm(entry));
    let mut all: Vec<(Active, &CatalogEntry)> = always
        .map(|entry| (describe(entry, ActivationCause::Always), entry))
        .collect();
    for named in named
        .iter()
        .filter(|named| named.entry.mode != ActivationMode::Always || named.why == ActivationCause::Litellm)
    {
        all.push((describe(named.entry, named.why), named.entry));
    }
    all.extend(
        scored
            .iter()
            .map(|entry| (describe(entry, ActivationCause::Auto), *entry)),
    );
    all
}

fn describe(entry: &CatalogEntry, why: ActivationCause) -> Active {
    Active {
        skill: Arc::clone(&entry.skill),
        handle: Arc::clone(&entry.handle),
        mode: entry.mode,
        why,
    }
}

/// `loader`: the name of the tool that loads skills, if the request has it. Without it a listing would name the client's.
fn system(
    catalog: &Catalog,
    active: &[(Active, &CatalogEntry)],
    loader: Option<&str>,
    named: &[NamedSkill<'_>],
) -> String {
    let none = BTreeMap::new();
    let load_skill = loader.unwrap_or(texts::LOAD_SKILL);
    let sections: Vec<String> = active
        .iter()
        .map(|(active, entry)| {
            let naming = naming(named, &active.skill.id);
            let inputs = naming.map_or(&none, |named| &named.inputs);
            if active.why != ActivationCause::Litellm {
                return entry.section(inputs, load_skill);
            }
            if entry.missing_inputs(inputs).is_empty() {
                let body = entry.body(inputs).unwrap_or_else(texts::body_too_large);
                return litellm::section(&active.skill, &body);
            }
            let tool = wire_name::of_stored_id(stored_id(naming, &active.skill));
            entry.section_of_inputs(inputs, &texts::call_with_inputs(&tool))
        })
        .collect();
    let sections: Vec<&str> = sections.iter().map(String::as_str).collect();
    let listing = loader.and_then(|loader| catalog.listing_block(loader));
    let bodies = (!sections.is_empty()).then(|| texts::bodies_block(&sections));
    let blocks: Vec<String> = listing.into_iter().chain(bodies).collect();
    blocks.join("\n\n")
}

fn naming<'a, 'b>(named: &'b [NamedSkill<'a>], skill: &SkillRef) -> Option<&'b NamedSkill<'a>> {
    named.iter().find(|named| named.entry.skill.id == *skill)
}

/// The id by which a `litellm:` skill was named, which its tool is called by.
fn stored_id<'a>(naming: Option<&NamedSkill<'a>>, skill: &'a Skill) -> &'a str {
    naming.and_then(|named| named.id).unwrap_or(&skill.id.name)
}

/// Says which templates ask for inputs in place of their bodies, and which are too long with the values that they have.
fn wanting(active: &[(Active, &CatalogEntry)], named: &[NamedSkill<'_>]) -> Vec<Note> {
    let none = BTreeMap::new();
    let notes = active.iter().filter_map(|(active, entry)| {
        let inputs = naming(named, &active.skill.id).map_or(&none, |named| &named.inputs);
        let missing = entry.missing_inputs(inputs);
        let names: Vec<&str> = missing.iter().map(|input| input.name.as_str()).collect();
        let text = if names.is_empty() {
            let bytes = Some(entry.body_bytes(inputs)).filter(|bytes| *bytes > MAX_FILLED_BYTES)?;
            format!("its instructions are left out: {}", FilledTooLarge { bytes })
        } else {
            format!("asks the model for its required inputs: {}", names.join(", "))
        };
        Some(Note {
            skill: Some(active.skill.id.clone()),
            text,
            header: None,
        })
    });
    notes.collect()
}

/// Skills whose runs have packages of Python, among those that models may know of.
fn packages(catalog: &Catalog) -> Vec<(&str, &[String])> {
    let has = |entry: &&CatalogEntry| entry.mode != ActivationMode::Never && !entry.skill.packages.python.is_empty();
    let with = catalog.entries().iter().filter(has);
    with.map(|entry| (&*entry.handle, entry.skill.packages.python.as_slice()))
        .collect()
}

/// Tools as they come together, and what had to be left out.
struct Parts<'a> {
    client: &'a HashSet<&'a str>,
    tools: Vec<Arc<PlannedTool>>,
    taken: HashSet<String>,
    notes: Vec<Note>,
}

impl<'a> Parts<'a> {
    /// Nothing yet, beside the tools of a client.
    fn new(client: &'a HashSet<&'a str>) -> Self {
        Self {
            client,
            tools: Vec::new(),
            taken: HashSet::new(),
            notes: Vec::new(),
        }
    }

    /// The plan of all parts, with its system text.
    fn plan(self, system: String, active: Vec<Active>) -> Plan {
        let bytes = system.len() + self.tools.iter().map(|tool| tool.bytes()).sum::<usize>();
        Plan {
            system: system.into(),
            tools: self.tools.into(),
            names_skills: false,
            litellm: active.iter().any(|active| active.why == ActivationCause::Litellm),
            active: active.into(),
            notes: self.notes,
            added_tokens: texts::tokens(bytes),
            ..Plan::default()
        }
    }

    /// Adds generic tools, and returns the name of the one that loads skills, if it was added. One whose name the client has
    /// becomes `knack_<name>`.
    fn generic(&mut self, catalog: &Catalog, kinds: &[Generic]) -> Option<String> {
        let node = catalog.settings().node;
        let packages = packages(catalog);
        let mut load_skill = texts::LOAD_SKILL.to_owned();
        let mut loader = None;
        for generic in kinds {
            let (plain, schema, action) = match generic {
                Generic::LoadSkill => (texts::LOAD_SKILL, texts::load_skill_schema(), Action::LoadSkill),
                Generic::RunSkillTool => (
                    texts::RUN_SKILL_TOOL,
                    texts::run_skill_tool_schema(),
                    Action::RunSkillTool,
                ),
                Generic::RunCode => (texts::RUN_CODE, texts::run_code_schema(node), Action::RunCode),
            };
            let name = if self.client.contains(plain) {
                format!("knack_{plain}")
            } else {
                plain.to_owned()
            };
            let description = match generic {
                Generic::LoadSkill => texts::load_skill_description(),
                Generic::RunSkillTool => texts::run_skill_tool_description(&load_skill),
                Generic::RunCode => texts::run_code_description(&packages),
            };
            if *generic == Generic::LoadSkill {
                load_skill.clone_from(&name);
            }
            let is_added = self.push(Arc::new(PlannedTool::new(name, description, schema, action)), None);
            if *generic == Generic::LoadSkill && is_added {
                loader = Some(load_skill.clone());
            }
        }
        loader
    }

    /// Adds the tools of active skills; `litellm:` ones have a single tool each, and one code tool for all that have a Python file.
    fn declared(&mut self, active: &[(Active, &CatalogEntry)], named: &[NamedSkill<'_>], model_code: ModelCode) {
        let mut runs_code = false;
        for (active, entry) in active {
            if active.why == ActivationCause::Litellm {
                let id = stored_id(naming(named, &active.skill.id), &active.skill);
                self.push(Arc::new(litellm::tool(&active.skill, id)), Some(entry));
                runs_code |= litellm::has_python(&active.skill);
            } else {
                for tool in &entry.tools {
                    self.push(Arc::clone(tool), Some(entry));
                }
            }
        }
        // Declared only where it would run.
        if runs_code && model_code == ModelCode::Allow {
            self.push(Arc::new(litellm::code_tool()), None);
        }
    }

    /// Adds one tool, unless its name is the client's or Knack's already. True if it was added.
    fn push(&mut self, tool: Arc<PlannedTool>, entry: Option<&CatalogEntry>) -> bool {
        let free = !self.client.contains(tool.name.as_str()) && self.taken.insert(tool.name.clone());
        if free {
            self.tools.push(tool);
            return true;
        }
        let skill = entry.map(|entry| entry.skill.id.clone());
        self.notes.push(Note {
            skill,
            text: format!("tool {} is left out: the request has a tool of that name", tool.name),
            header: Some(HeaderNote::LeftOut(tool.name.clone())),
        });
        false
    }
}
