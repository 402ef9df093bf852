//! From skills and settings to a catalog: one pass for each prepared part, linear in the bytes of the skills.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use super::entry::{CatalogEntry, Generic};
use super::listing::{self, ListedSkill};
use super::{BaseInjection, Catalog, CatalogSettings, Clash, ConfigValues, ModelCode, Pin};
use crate::autoscore::{ScoreIndex, ScoredSkill};
use crate::config;
use crate::model::{ActivationMode, Skill, SkillRef, Tool};
use crate::plan::{Action, PlannedTool, assemble};
use crate::provider_schema;
use crate::risk::Risk;
use crate::texts;
use crate::wire_name;

impl Catalog {
    /// Compiles skills for a runtime. Never fails: conflicts are resolved and reported in [`Catalog::clashes`].
    pub fn compile(skills: Vec<Arc<Skill>>, settings: CatalogSettings) -> Self {
        Self::compile_named(skills, settings, &BTreeMap::new())
    }

    /// Compiles skills for a runtime, where `names` says which skill keeps a name that skills of several namespaces have.
    pub fn compile_named(
        mut skills: Vec<Arc<Skill>>,
        settings: CatalogSettings,
        names: &BTreeMap<String, SkillRef>,
    ) -> Self {
        // Stable, so that of two skills with one identity the first given stays first.
        skills.sort_by(|a, b| (&a.id.name, &a.id.namespace).cmp(&(&b.id.name, &b.id.namespace)));
        let mut clashes = Vec::new();
        skills.dedup_by(|later, first| {
            let same = later.id == first.id;
            if same {
                clashes.push(Clash::Twice(first.id.clone()));
            }
            same
        });
        let entries = entries(skills, &settings, names, &mut clashes);
        let listing = list(&entries, settings.max_listing_tokens);
        let generic = generic(&entries, settings.model_code);
        let (index, scored) = score(&entries);
        let by_id = by_id(&entries, &mut clashes);
        let mut catalog = Self {
            by_skill: entries
                .iter()
                .enumerate()
                .map(|(at, entry)| (entry.skill.id.clone(), at))
                .collect(),
            by_handle: entries
                .iter()
                .enumerate()
                .map(|(at, entry)| (Arc::clone(&entry.handle), at))
                .collect(),
            // Reversed, so that the first of equal names is the one that stays.
            by_name: entries
                .iter()
                .enumerate()
                .rev()
                .map(|(at, entry)| (entry.skill.id.name.clone(), at))
                .collect(),
            by_id,
            settings,
            entries,
            listing,
            generic,
            base: BaseInjection::nothing(),
            scores: index,
            scored,
            clashes,
            search: OnceLock::new(),
        };
        catalog.base = assemble::base(&catalog);
        catalog
    }
}

impl BaseInjection {
    fn nothing() -> Self {
        Self {
            system: "".into(),
            tools: Arc::new([]),
            names: HashSet::new(),
            active: Arc::new([]),
            added_tokens: 0,
        }
    }
}

fn entries(
    skills: Vec<Arc<Skill>>,
    settings: &CatalogSettings,
    names: &BTreeMap<String, SkillRef>,
    clashes: &mut Vec<Clash>,
) -> Vec<CatalogEntry> {
    let mut namespaces: HashMap<String, Vec<SkillRef>> = HashMap::new();
    for skill in &skills {
        namespaces
            .entry(skill.id.name.clone())
            .or_default()
            .push(skill.id.clone());
    }
    // If several pins name one skill the first counts, as on a cluster (`src/selection`).
    let first = settings.pins.iter().rev();
    let pins: HashMap<&SkillRef, &Pin> = first.map(|pin| (&pin.skill, pin)).collect();
    let mut taken: HashSet<String> = texts::generic_tools_reserved().into_iter().map(str::to_owned).collect();
    let mut entries = Vec::with_capacity(skills.len());
    for skill in skills {
        let alone = namespaces.get(&skill.id.name).is_none_or(|skills| skills.len() == 1);
        let keeps = alone || names.get(&skill.id.name) == Some(&skill.id);
        let handle: Arc<str> = if keeps {
            skill.id.name.as_str().into()
        } else {
            skill.id.to_string().into()
        };
        let pin = pins.get(&skill.id);
        let mode = pin
            .and_then(|pin| pin.mode)
            .unwrap_or_else(|| skill.activation.min(settings.max_activation));
        let inputs = pin.map(|pin| pin.inputs.clone()).unwrap_or_default();
        let withheld = withheld(&skill, &settings.config, clashes);
        let tools = if mode == ActivationMode::Never {
            Vec::new()
        } else {
            tools(&skill, (settings.max_risk, &withheld), &mut taken, clashes)
        };
        entries.push(CatalogEntry {
            skill,
            handle,
            mode,
            inputs,
            max_risk: settings.max_risk,
            withheld,
            tools,
        });
    }
    let mut shared: BTreeMap<String, Vec<SkillRef>> = BTreeMap::new();
    shared.extend(namespaces.into_iter().filter(|(_, skills)| skills.len() > 1));
    clashes.extend(shared.into_iter().map(|(name, skills)| Clash::Name { name, skills }));
    entries
}

/// Ids to positions in `entries`. Skills of mode Never carry none: nothing may name them.
fn by_id(entries: &[CatalogEntry], clashes: &mut Vec<Clash>) -> HashMap<String, Option<usize>> {
    let mut carriers: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (position, entry) in entries.iter().enumerate() {
        for id in entry.skill.ids.iter().filter(|_| entry.mode != ActivationMode::Never) {
            carriers.entry(id).or_default().push(position);
        }
    }
    let names: HashSet<&str> = entries.iter().map(|entry| entry.skill.id.name.as_str()).collect();
    let mut positions = HashMap::with_capacity(carriers.len());
    for (id, carriers) in carriers {
        let only = match carriers.as_slice() {
            [only] => Some(*only),
            _ => None,
        };
        let own_name = only
            .and_then(|position| entries.get(position))
            .is_some_and(|entry| entry.skill.id.name == id);
        if only.is_none() || (names.contains(id) && !own_name) {
            let skills = carriers.iter().filter_map(|position| entries.get(*position));
            clashes.push(Clash::Id {
                id: id.to_owned(),
                skills: skills.map(|entry| entry.skill.id.clone()).collect(),
            });
        }
        positions.insert(id.to_owned(), only.filter(|_| own_name || !names.contains(id)));
    }
    // Last, over what others say of themselves: who may write a Skill must not take a reference from another one.
    for (position, entry) in entries.iter().enumerate() {
        let own = entry
            .skill
            .object_ids
            .iter()
            .filter(|_| entry.mode != ActivationMode::Never);
        positions.extend(own.map(|id| (id.clone(), Some(position))));
    }
    positions
}

/// The tools without the required values of their configuration. Values that no tool declares are reported with them.
fn withheld(skill: &Skill, values: &ConfigValues, clashes: &mut Vec<Clash>) -> BTreeSet<String> {
    let ConfigValues::Here(configs) = values else {
        return skill.withheld.iter().cloned().collect();
    };
    let entries = config::entries_for(configs, &skill.id);
    let tools = skill
        .tools
        .iter()
        .map(|tool| (tool.name.as_str(), tool.config.as_slice()));
    let mut report = |names: Vec<&str>, clash: fn(SkillRef, Vec<String>) -> Clash| {
        if !names.is_empty() {
            clashes.push(clash(skill.id.clone(), names.into_iter().map(str::to_owned).collect()));
        }
    };
    report(config::undeclared(&tools, &entries), |skill, names| {
        Clash::ConfigUnknown { skill, names }
    });
    report(config::plain_secrets(&tools, &entries), |skill, names| {
        Clash::ConfigPlain { skill, names }
    });
    report(config::elsewhere(&tools, &entries), |skill, names| {
        Clash::ConfigElsewhere { skill, names }
    });
    let mut withheld = BTreeSet::new();
    for (tool, params) in tools {
        if let Some(why) = config::problems(tool, params, &entries) {
            clashes.push(Clash::Config {
                skill: skill.id.clone(),
                tool: tool.to_owned(),
                why,
            });
            withheld.insert(tool.to_owned());
        }
    }
    withheld
}

fn tools(
    skill: &Arc<Skill>,
    (max_risk, withheld): (Risk, &BTreeSet<String>),
    taken: &mut HashSet<String>,
    clashes: &mut Vec<Clash>,
) -> Vec<Arc<PlannedTool>> {
    let risky = skill.tools.iter().filter(|tool| tool.risk > max_risk);
    clashes.extend(risky.map(|tool| Clash::Risk {
        skill: skill.id.clone(),
        tool: tool.name.clone(),
        risk: tool.risk,
        max_risk,
    }));
    // Counts all declared tools: a limit does not rename the one that is left.
    let only = skill.tools.len() == 1;
    let offered = |tool: &Tool| !tool.hidden && tool.risk <= max_risk && !withheld.contains(&tool.name);
    let visible = skill.tools.iter().enumerate().filter(|(_, tool)| offered(tool));
    visible
        .map(|(at, tool)| {
            let name = wire_name::of_tool(&skill.id.namespace, &skill.id.name, &tool.name, only, taken);
            let plain = only && tool.name == skill.id.name
                || name == wire_name::legal(&format!("{}__{}", skill.id.name, tool.name));
            if !plain {
                clashes.push(Clash::Tool {
                    skill: skill.id.clone(),
                    tool: tool.name.clone(),
                    wire_name: name.clone(),
                });
            }
            let schema = provider_schema::sent(&tool.input_schema);
            let action = Action::Declared {
                skill: Arc::clone(skill),
                tool: at,
            };
            Arc::new(PlannedTool::new(name, tool.description.clone(), schema, action))
        })
        .collect()
}

fn list(entries: &[CatalogEntry], max_tokens: usize) -> listing::Listing {
    let listed = entries.iter().filter(|entry| entry.mode == ActivationMode::Listed);
    let mut lines: Vec<ListedSkill<'_>> = listed
        .map(|entry| ListedSkill {
            handle: &entry.handle,
            description: &entry.skill.description,
        })
        .collect();
    lines.sort_unstable_by_key(|line| line.handle);
    listing::fit(&lines, max_tokens)
}

/// Which generic tools there are: by catalog and runtime only, never by the request (docs/design/conversation.md#generic-tools), so that they never move in a
/// provider's prompt cache. A request without any listed or active skill still gets none.
fn generic(entries: &[CatalogEntry], model_code: ModelCode) -> Vec<Generic> {
    let served = || entries.iter().filter(|entry| entry.mode != ActivationMode::Never);
    let listed = || entries.iter().filter(|entry| entry.mode == ActivationMode::Listed);
    let has_files = served().any(CatalogEntry::has_files);
    let mut generic = Vec::new();
    let asks = served().any(|entry| !entry.missing_inputs(&BTreeMap::new()).is_empty());
    if listed().next().is_some() || has_files || asks {
        generic.push(Generic::LoadSkill);
    }
    if listed().any(|entry| entry.offered().next().is_some())
        || served().any(|entry| entry.offered().any(|tool| tool.hidden))
    {
        generic.push(Generic::RunSkillTool);
    }
    if model_code == ModelCode::Allow && has_files {
        generic.push(Generic::RunCode);
    }
    generic
}

fn score(entries: &[CatalogEntry]) -> (ScoreIndex, Vec<usize>) {
    let positions: Vec<usize> = entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.mode == ActivationMode::Auto)
        .map(|(at, _)| at)
        .collect();
    let skills: Vec<ScoredSkill<'_>> = positions
        .iter()
        .filter_map(|at| entries.get(*at))
        .map(|entry| ScoredSkill {
            name: &entry.skill.id.name,
            description: &entry.skill.description,
            tags: &entry.skill.tags,
            install_count: entry.skill.install_count,
        })
        .collect();
    (ScoreIndex::build(&skills), positions)
}
