//! What differs for a model between two versions of a skill: the texts that it gets, what they cost, and the files behind them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use knack_skill::autoscore::AutoContext;
use knack_skill::call::{LoadReference, reload};
use knack_skill::catalog::{Catalog, CatalogSettings, ConfigValues, ModelCode, Node};
use knack_skill::model::{ActivationMode, Skill};
use knack_skill::plan::{Plan, PlanError, PlanRequest, PlannedTool, RunCode, ToolChoice, plan};
use knack_skill::risk::Risk;
use knack_skill::texts::tokens;
use knack_vocabulary::defaults;
use similar::TextDiff;

use crate::Files;

/// How long the lines of one text are compared; what differs after that is shown coarser, as removed and added as a whole. The
/// time grows with the square of the lines, and a SKILL.md may have a million of them.
const COMPARE_TIMEOUT: Duration = Duration::from_secs(1);
/// Unchanged lines around a change, as in `diff -u`.
const CONTEXT_LINES: usize = 3;

/// A version of a skill, as it reaches a model.
#[derive(Debug, Default)]
pub struct ModelView {
    files: Files,
    /// When it reaches the model; `None`: no model gets it.
    activation: Option<ActivationMode>,
    /// The system text that every request carries for it: a line of the listing, or its whole text.
    system: String,
    /// The tools that every request carries for it.
    tools: String,
    /// Tokens that requests spend on them, which is less than for the text above: they go out without blanks.
    tool_tokens: usize,
    /// The answer of `load_skill`; empty if it never reaches a model.
    loaded: String,
}

impl ModelView {
    /// A skill at a runtime that says nothing of its own, in a request that names no skill.
    pub fn of(skill: Skill) -> Result<Self, PlanError> {
        let skill = Arc::new(skill);
        let catalog = Catalog::compile(vec![Arc::clone(&skill)], settings());
        let plan = plan(&request(), &catalog)?;
        Ok(Self {
            files: skill.files.clone(),
            activation: Some(skill.activation),
            system: plan.system.to_string(),
            tools: tools(&plan),
            tool_tokens: plan.added_tokens.saturating_sub(tokens(plan.system.len())),
            loaded: catalog
                .get(&skill.id)
                .map(|_| reload(&entry(&skill), &plan, &catalog))
                .unwrap_or_default(),
        })
    }

    /// A version that no model gets: none yet, or one that is not taken any more.
    pub(crate) fn unserved(files: Files) -> Self {
        Self {
            files,
            ..Self::default()
        }
    }

    /// Tokens of every request, and of the answer of `load_skill`.
    pub(crate) fn tokens(&self) -> [usize; 2] {
        [tokens(self.system.len()) + self.tool_tokens, tokens(self.loaded.len())]
    }
}

/// A runtime that says nothing of its own.
fn settings() -> CatalogSettings {
    CatalogSettings {
        revision: String::new(),
        max_activation: ActivationMode::Always,
        model_code: ModelCode::Allow,
        max_risk: Risk::Critical,
        node: Node::Absent,
        max_listing_tokens: defaults::MAX_LISTING_TOKENS,
        models: Vec::new(),
        min_max_tokens: defaults::MIN_MAX_TOKENS,
        pins: Vec::new(),
        config: ConfigValues::Here(Vec::new()),
        unserved: Vec::new(),
    }
}

/// A request that names no skill.
fn request() -> PlanRequest<'static> {
    PlanRequest {
        provider: "openai",
        model: "",
        user_texts: &[],
        auto: &AutoContext::default,
        client_tools: &[],
        tool_choice: ToolChoice::Free,
        container: &[],
        run_code: RunCode::WithFiles,
        header: None,
        max_tokens: None,
        run_of: None,
    }
}

fn entry(skill: &Skill) -> LoadReference {
    LoadReference {
        skill: format!("{}/{}", skill.id.namespace, skill.id.name),
        digest: skill.digest.clone(),
        path: None,
        inputs: BTreeMap::new(),
    }
}

fn tools(plan: &Plan) -> String {
    let text = |tool: &PlannedTool| format!("{}\n{}\n{:#}\n", tool.name, tool.description, tool.schema);
    plan.tools.iter().map(|tool| text(tool)).collect()
}

/// What differs between two versions. Its text is what `knack skill diff` prints; empty: nothing differs.
#[derive(Debug)]
pub struct Difference {
    activation: Option<[ActivationMode; 2]>,
    /// The texts that differ.
    texts: Vec<TextChange>,
    /// The files that differ, by path.
    pub(crate) files: BTreeMap<String, FileChange>,
}

/// A text that differs.
#[derive(Debug)]
struct TextChange {
    what: &'static str,
    tokens: [usize; 2],
    /// In the unified format.
    diff: String,
}

/// How a file differs; sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileChange {
    Added(usize),
    Removed,
    Content(usize, usize),
    /// The execute bit alone: whether it is set now.
    Mode(bool),
}

impl Difference {
    /// Compares two versions.
    pub fn between(before: &ModelView, after: &ModelView) -> Self {
        let of = |text: &str| tokens(text.len());
        let texts = [
            (
                "in every request",
                [&before.system, &after.system],
                [of(&before.system), of(&after.system)],
            ),
            (
                "tools in every request",
                [&before.tools, &after.tools],
                [before.tool_tokens, after.tool_tokens],
            ),
            (
                "when it is loaded",
                [&before.loaded, &after.loaded],
                [of(&before.loaded), of(&after.loaded)],
            ),
        ];
        let differs = texts.into_iter().filter(|(_, [old, new], _)| old != new);
        Self {
            activation: before
                .activation
                .zip(after.activation)
                .filter(|(old, new)| old != new)
                .map(|(old, new)| [old, new]),
            texts: differs
                .map(|(what, [old, new], tokens)| TextChange {
                    what,
                    tokens,
                    diff: unified(old, new),
                })
                .collect(),
            files: changed(&before.files, &after.files),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some([old, new]) = self.activation {
            writeln!(f, "activation: {old:?} -> {new:?}")?;
        }
        for TextChange { what, tokens, diff } in &self.texts {
            let [before, after] = tokens;
            writeln!(f, "{what}: {before} -> {after} tokens\n{diff}")?;
        }
        for (path, change) in &self.files {
            writeln!(f, "file {path}: {change}")?;
        }
        Ok(())
    }
}

impl fmt::Display for FileChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(bytes) => write!(f, "added, {bytes} bytes"),
            Self::Removed => write!(f, "removed"),
            Self::Content(old, new) => write!(f, "{old} -> {new} bytes"),
            Self::Mode(true) => write!(f, "now executable"),
            Self::Mode(false) => write!(f, "now not executable"),
        }
    }
}

fn unified(old: &str, new: &str) -> String {
    let diff = TextDiff::configure().timeout(COMPARE_TIMEOUT).diff_lines(old, new);
    let shown = diff
        .unified_diff()
        .context_radius(CONTEXT_LINES)
        .missing_newline_hint(false)
        .to_string();
    shown.trim_end_matches('\n').to_owned()
}

fn changed(before: &Files, after: &Files) -> BTreeMap<String, FileChange> {
    let change = |path: &String| match (before.get(path), after.get(path)) {
        (Some(old), Some(new)) if old == new => None,
        (Some(old), Some(new)) if old.bytes == new.bytes => Some(FileChange::Mode(new.executable)),
        (Some(old), Some(new)) => Some(FileChange::Content(old.bytes.len(), new.bytes.len())),
        (None, Some(new)) => Some(FileChange::Added(new.bytes.len())),
        (Some(_), None) => Some(FileChange::Removed),
        (None, None) => None,
    };
    let paths = before.keys().chain(after.keys());
    paths.filter_map(|path| Some((path.clone(), change(path)?))).collect()
}
