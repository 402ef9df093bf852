//! The plan of an injection: which skills one request gets, with their exact texts and tools.
//!
//! ```text
//! PlanRequest + Catalog -> select (named, scored) -> assemble (texts, tools, names) -> Plan
//! ```
//! It knows no wire shapes: knack-wire decides where the text and tools go in a body.

pub(crate) mod assemble;
#[cfg(test)]
mod length_tests;
mod limits;
#[cfg(test)]
mod naming_tests;
#[cfg(test)]
mod run_tests;
mod select;
#[cfg(test)]
mod tests;
mod types;

use std::sync::Arc;

pub use types::{
    Action, ActivationCause, Active, ContainerPlan, ContainerSkill, HeaderNote, Note, Plan, PlanError, PlanRequest,
    PlannedTool, RunCode, ServedVersion, ToolChoice,
};

use crate::call::is_stageable;
use crate::catalog::{Catalog, CatalogEntry, Generic, ModelCode};
use crate::model::{ActivationMode, Skill, SkillRef};
use crate::texts;
use crate::tree::DOCUMENT_NAMES;

/// Plans the injection for one request. Fails only if the request names a skill that is not here, or gives inputs that make its
/// text too long.
///
/// A request that names nothing, scores nothing and collides with nothing gets the catalog's own text and tools by
/// reference count; the cost is then one look-up per client tool and a check of the first byte of each user text.
pub fn plan(request: &PlanRequest<'_>, catalog: &Catalog) -> Result<Plan, PlanError> {
    plan_within(request, catalog, &mut |_| true)
}

/// The plan of a request, as [`plan`] makes it, within memory: `room` is asked before texts of named skills are made, with their
/// bytes, and says whether there is memory for them.
pub fn plan_within(
    request: &PlanRequest<'_>,
    catalog: &Catalog,
    room: &mut dyn FnMut(usize) -> bool,
) -> Result<Plan, PlanError> {
    let container = select::container(request.container, catalog)?;
    let header = select::header(request.header, catalog)?;
    if let Some(note) = limits::off(request, catalog.settings(), header.is_none()) {
        return Ok(Plan {
            container: container.plan,
            off: true,
            notes: vec![note],
            ..Plan::default()
        });
    }
    if let Some(skill) = request.run_of {
        return plan_of_run(skill, request.client_tools, catalog);
    }
    let runs_code = catalog.settings().model_code == ModelCode::Allow
        && match request.run_code {
            RunCode::WithFiles => false,
            RunCode::WithAttached => !container.plan.ours.is_empty(),
            RunCode::Always => true,
        };
    let mut named = container.skills;
    select::extend(&mut named, header.unwrap_or_default());
    select::extend(&mut named, select::mentions(request.user_texts, catalog));
    let names_skills = !named.is_empty();
    let named = select::without_always(named);
    let mut notes = select::unserved_mentions(request.user_texts, catalog);
    notes.extend(select::unknown_mention(request.user_texts, catalog));
    let scored = select::scored(request, catalog, &named);
    let collides = request
        .client_tools
        .iter()
        .any(|name| catalog.base().names.contains(*name));
    let lacks_code = runs_code
        && !catalog
            .base()
            .tools
            .iter()
            .any(|tool| matches!(tool.action, Action::RunCode));
    if named.is_empty() && scored.is_empty() && !collides && !lacks_code {
        return Ok(Plan {
            names_skills,
            ..Plan::shared(catalog, container.plan, notes)
        });
    }
    let bytes = limits::text_bytes(&named, &scored)?;
    if !room(bytes) {
        return Err(PlanError::NoRoom { bytes });
    }
    let besides: &[Generic] = if runs_code { &[Generic::RunCode] } else { &[] };
    let mut plan = assemble::assemble(catalog, &named, &scored, request.client_tools, besides);
    plan.container = container.plan;
    plan.names_skills = names_skills;
    plan.notes.extend(notes);
    Ok(plan)
}

/// What becomes of `container.skills` alone. Errors: those of [`plan`].
pub fn container_plan(skills: &[ContainerSkill<'_>], catalog: &Catalog) -> Result<ContainerPlan, PlanError> {
    Ok(select::container(skills, catalog)?.plan)
}

/// The plan of a run of one skill: its declared tools, and its files with `run_code` where models may write programs.
fn plan_of_run(skill: &SkillRef, client_tools: &[&str], catalog: &Catalog) -> Result<Plan, PlanError> {
    let unknown = || PlanError::UnknownSkill { id: skill.to_string() };
    let entry = catalog.get(skill).filter(|entry| entry.mode != ActivationMode::Never);
    Ok(Plan {
        names_skills: true,
        ..assemble::of_run(catalog, entry.ok_or_else(unknown)?, client_tools)
    })
}

/// The plan of a client that shows tools to a model itself (MCP), or calls them: every served skill that `is_offered` is active,
/// whatever its mode, so the tools are the declared ones of all, the loader, and `run_code` where models may write programs. The
/// text is that of a request that names nothing. Nothing where no skill is served.
pub fn plan_of_all(catalog: &Catalog, is_offered: impl Fn(&CatalogEntry) -> bool) -> Plan {
    if catalog.is_empty() {
        return Plan::default();
    }
    let named = catalog
        .entries()
        .iter()
        .filter(|entry| !matches!(entry.mode, ActivationMode::Never | ActivationMode::Always) && is_offered(entry))
        .map(|entry| select::NamedSkill::new(entry, ActivationCause::Header));
    let named: Vec<select::NamedSkill<'_>> = named.collect();
    let besides: &[Generic] = match catalog.settings().model_code {
        ModelCode::Allow => &[Generic::LoadSkill, Generic::RunCode],
        ModelCode::Deny => &[Generic::LoadSkill],
    };
    Plan {
        system: Arc::clone(&catalog.base().system),
        ..assemble::assemble(catalog, &named, &[], &[], besides)
    }
}

impl Plan {
    /// The tool of Knack that has this wire name in this request.
    pub fn tool(&self, wire_name: &str) -> Option<&Arc<PlannedTool>> {
        self.tools.iter().find(|tool| tool.name == wire_name)
    }

    /// This plan with the instructions of skills that the request attaches whole, behind those of all others.
    #[must_use]
    pub fn with_attached(self, skills: &[Skill]) -> Self {
        if skills.is_empty() {
            return self;
        }
        let section = |skill: &Skill| {
            let paths = skill.files.keys().map(String::as_str);
            let paths = paths.filter(|path| !DOCUMENT_NAMES.contains(path) && is_stageable(path));
            let files = texts::attached_files_line(&skill.id.name, paths);
            texts::body_section(&skill.title, &skill.body, &files)
        };
        let sections: Vec<String> = skills.iter().map(section).collect();
        let sections: Vec<&str> = sections.iter().map(String::as_str).collect();
        let system = texts::with_sections(&self.system, !self.active.is_empty(), &sections);
        let bytes = system.len() + self.tools.iter().map(|tool| tool.bytes()).sum::<usize>();
        let mut notes = self.notes;
        notes.extend(skills.iter().map(|skill| Note {
            skill: None,
            text: format!("the request attaches the skill {}", skill.id.name),
            header: None,
        }));
        Self {
            system: system.into(),
            shared: false,
            notes,
            attached: skills.iter().map(|skill| skill.id.name.clone()).collect(),
            names_skills: true,
            added_tokens: texts::tokens(bytes),
            ..self
        }
    }

    /// The catalog's own texts and tools. Not from `default`, which allocates three empty ones: most requests come here.
    fn shared(catalog: &Catalog, container: ContainerPlan, notes: Vec<Note>) -> Self {
        let base = catalog.base();
        Self {
            system: Arc::clone(&base.system),
            tools: Arc::clone(&base.tools),
            active: Arc::clone(&base.active),
            shared: true,
            notes,
            container,
            attached: Vec::new(),
            names_skills: false,
            litellm: false,
            off: false,
            added_tokens: base.added_tokens,
        }
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            system: Arc::from(""),
            tools: Arc::new([]),
            active: Arc::new([]),
            shared: false,
            notes: Vec::new(),
            container: ContainerPlan::default(),
            attached: Vec::new(),
            names_skills: false,
            litellm: false,
            off: false,
            added_tokens: 0,
        }
    }
}

impl PlannedTool {
    /// Makes a tool from its parts; the schema is minified here.
    pub fn new(name: String, description: String, schema: serde_json::Value, action: Action) -> Self {
        let schema_json = schema.to_string();
        Self {
            name,
            description,
            schema,
            schema_json,
            action,
        }
    }

    /// Bytes that it adds to a request.
    pub(crate) fn bytes(&self) -> usize {
        self.name.len() + self.description.len() + self.schema_json.len()
    }
}
