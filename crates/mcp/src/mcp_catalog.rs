//! The offer of a catalog to MCP clients: made once per catalog, since hosts ask for lists at every start and the
//! digests are over all files.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use knack_execution::mime_type;
use knack_gateway::catalog::Snapshot;
use knack_gateway::files::file_url::encode_path;
use knack_memory::{MemoryBudget, MemoryShare, OverBudget};
use knack_skill::catalog::{CatalogEntry, SKILL_MD};
use knack_skill::digest;
use knack_skill::frontmatter::{Delimiters, Split, split};
use knack_skill::model::Skill as Loaded;
use knack_skill::plan::{Action, Plan, PlannedTool, plan_of_all};
use knack_skill::yaml;
use knack_vocabulary::GROUP;
use rmcp::model::{
    JsonObject, MetaObject, Resource, ResourceContents, Skill, SkillFrontmatter, SkillResource, SkillResources, Tool,
    ToolAnnotations,
};
use serde_json::Value;

use crate::list::{List, SCHEME};

/// Catalogs whose offers are kept: the one from files and those of callers with uploaded skills, of whom one person has a few, or
/// those of the namespaces that call a shared gateway, as far as there is room for them. Another one's is made again with its
/// next request.
const OFFERS_MAX: usize = 32;

/// What a file takes in an offer besides names, bytes: a resource and a line of a manifest, each with a digest as text.
const FILE_BYTES: usize = 768;

/// How much longer than a byte it is in a URI, at most.
const ESCAPED_BYTES: usize = 3;

/// The offers of the last catalogs.
#[derive(Debug)]
pub(crate) struct McpCatalogs {
    kept: Mutex<Vec<Arc<McpCatalog>>>,
    /// What offers may take, whether they are kept or only in use.
    memory: MemoryBudget,
}

/// The offer of one catalog.
#[derive(Debug)]
pub(crate) struct McpCatalog {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) plan: Arc<Plan>,
    /// In the order in which models get them.
    pub(crate) tools: Vec<Tool>,
    /// The files of all skills.
    pub(crate) resources: List<Resource>,
    /// The skills with their manifests. Only those whose name the extension takes.
    pub(crate) skills: List<Skill>,
    /// What it takes of the memory of the process.
    _share: MemoryShare,
}

impl McpCatalogs {
    /// Offers that take at most this memory.
    pub(crate) const fn within(memory: MemoryBudget) -> Self {
        Self {
            kept: Mutex::new(Vec::new()),
            memory,
        }
    }

    /// The offer of a catalog. Errors: there is no room for it.
    pub(crate) async fn of(&self, snapshot: Arc<Snapshot>) -> Result<Arc<McpCatalog>, OverBudget> {
        let kept = self
            .lock()
            .iter()
            .find(|mcp_catalog| Arc::ptr_eq(&mcp_catalog.snapshot, &snapshot))
            .cloned();
        if let Some(mcp_catalog) = kept {
            return Ok(mcp_catalog);
        }
        let made = offer_bytes(&snapshot);
        let share = self.take(made)?;
        // All bytes of all files are hashed.
        let hashed = snapshot.skills.iter().flat_map(|skill| skill.files.values());
        let hashed: usize = hashed.map(|file| file.bytes.len()).sum();
        let make = move || Arc::new(McpCatalog::new(snapshot, share));
        let mcp_catalog = knack_serving::run_off_thread_if_large(made + hashed, make).await;
        let mut mcp_catalogs = self.lock();
        // A snapshot that only this list holds is no longer served.
        mcp_catalogs.retain(|mcp_catalog| Arc::strong_count(&mcp_catalog.snapshot) > 1);
        if mcp_catalogs.len() >= OFFERS_MAX {
            mcp_catalogs.remove(0);
        }
        mcp_catalogs.push(Arc::clone(&mcp_catalog));
        Ok(mcp_catalog)
    }

    /// Room for an offer, for which the oldest ones are forgotten.
    fn take(&self, bytes: usize) -> Result<MemoryShare, OverBudget> {
        loop {
            let over = match self.memory.try_take(bytes) {
                Ok(share) => return Ok(share),
                Err(over) => over,
            };
            let mut mcp_catalogs = self.lock();
            if over.is_final() || mcp_catalogs.is_empty() {
                return Err(over);
            }
            mcp_catalogs.remove(0);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<McpCatalog>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the offer of a catalog takes, bytes.
fn offer_bytes(snapshot: &Snapshot) -> usize {
    let of_entry = |entry: &CatalogEntry| -> usize {
        let of_file = |(path, _): (&str, &[u8])| {
            let name = entry.handle.len() + path.len();
            // Its URI is in both lists, and its name in one.
            FILE_BYTES + 2 * (SCHEME.len() + ESCAPED_BYTES * name) + name
        };
        let of_files: usize = files(entry).map(of_file).sum();
        // The frontmatter is a part of it.
        of_files + entry.skill.document.len()
    };
    offered(snapshot).map(of_entry).sum()
}

impl McpCatalog {
    fn new(snapshot: Arc<Snapshot>, share: MemoryShare) -> Self {
        let plan = if snapshot.is_suspended() {
            Plan::default()
        } else {
            plan_of_all(&snapshot.catalog, CatalogEntry::is_default_version)
        };
        let entries = || offered(&snapshot);
        let mut resources: Vec<Resource> = entries().flat_map(resources).collect();
        resources.sort_unstable_by(|a, b| a.uri.cmp(&b.uri));
        let mut skills: Vec<Skill> = entries().filter_map(skill).collect();
        skills.sort_unstable_by(|a, b| a.uri.cmp(&b.uri));
        Self {
            tools: plan.tools.iter().map(|tool| as_tool(tool)).collect(),
            resources: List::new(resources),
            skills: List::new(skills),
            plan: Arc::new(plan),
            snapshot,
            _share: share,
        }
    }

    /// The most bytes that the answer of a method that lists takes as JSON. Of other methods that have a name nothing is known before; what
    /// has none may be read as any by the SDK.
    pub(crate) fn listed_bytes(&self, method: &str) -> usize {
        match method {
            "resources/list" => self.resources.page_bytes(),
            "skills/list" => self.skills.page_bytes(),
            "skills/get" => self.skills.largest_bytes(),
            "" => self.resources.page_bytes().max(self.skills.page_bytes()),
            _ => 0,
        }
    }

    /// The content of a resource; `None`: there is none of this URI.
    pub(crate) fn content(&self, uri: &str) -> Option<ResourceContents> {
        let entry = |entry: &CatalogEntry| {
            let path = uri.strip_prefix(&root(entry))?;
            let (path, bytes) = files(entry).find(|(name, _)| encode_path(name) == path)?;
            let meta = meta(bytes);
            let contents = match std::str::from_utf8(bytes) {
                Ok(text) if !text.contains('\0') => ResourceContents::text(text, uri),
                _ => ResourceContents::blob(STANDARD.encode(bytes), uri),
            };
            Some(contents.with_mime_type(mime_type(path)).with_meta(meta))
        };
        offered(&self.snapshot).find_map(entry)
    }
}

/// The skills that are offered. Other versions of an uploaded skill than the default one are for requests that name them, which no
/// request of MCP does.
fn offered(snapshot: &Snapshot) -> impl Iterator<Item = &CatalogEntry> {
    snapshot.served().filter(|entry| entry.is_default_version())
}

/// The files of a skill, SKILL.md as it came first.
fn files(entry: &CatalogEntry) -> impl Iterator<Item = (&str, &[u8])> {
    let others = entry.paths().filter_map(|path| {
        let file = entry.skill.files.get(path)?;
        Some((path, &*file.bytes))
    });
    std::iter::once((SKILL_MD, entry.skill.document.as_bytes())).chain(others)
}

fn root(entry: &CatalogEntry) -> String {
    format!("{SCHEME}{}/", encode_path(&entry.handle))
}

fn resources(entry: &CatalogEntry) -> impl Iterator<Item = Resource> {
    let root = root(entry);
    files(entry).map(move |(path, bytes)| {
        let resource = Resource::new(
            format!("{root}{}", encode_path(path)),
            format!("{}/{path}", entry.handle),
        )
        .with_mime_type(mime_type(path))
        .with_size(bytes.len() as u64)
        .with_meta(meta(bytes));
        if path == SKILL_MD {
            resource
                .with_title(entry.skill.title.clone())
                .with_description(entry.skill.description.clone())
        } else {
            resource
        }
    })
}

/// The digest in the form of the skills extension.
fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", digest::sha256(bytes))
}

fn meta(bytes: &[u8]) -> MetaObject {
    let mut meta = JsonObject::new();
    meta.insert(format!("{GROUP}/digest"), Value::String(digest_of(bytes)));
    MetaObject(meta)
}

/// A skill with its manifest. `None`: its name is none that the extension takes.
fn skill(entry: &CatalogEntry) -> Option<Skill> {
    let root = root(entry);
    let manifest = files(entry)
        .map(|(path, bytes)| {
            SkillResource::new(
                format!("{root}{}", encode_path(path)),
                digest_of(bytes),
                bytes.len() as u64,
            )
        })
        .collect();
    let mut meta = JsonObject::new();
    meta.insert(
        format!("{GROUP}/digest"),
        Value::String(format!("sha256:{}", entry.skill.digest)),
    );
    let skill = Skill::new(
        format!("{root}{SKILL_MD}"),
        frontmatter(&entry.skill),
        SkillResources::Files(manifest),
    )
    .with_meta(MetaObject(meta));
    skill.validate().is_ok().then_some(skill)
}

/// The author's frontmatter; name and description are the skill's where SKILL.md has none.
fn frontmatter(skill: &Loaded) -> SkillFrontmatter {
    let mut written = match split(&skill.document, Delimiters::Lenient) {
        Split::Found { yaml, .. } => match yaml::parse(yaml).map(|node| node.to_json()) {
            Ok(Value::Object(written)) => written,
            Ok(_) | Err(_) => JsonObject::new(),
        },
        Split::Absent { .. } | Split::Unclosed { .. } => JsonObject::new(),
    };
    let mut text = |key: &str, otherwise: &str| match written.remove(key) {
        Some(Value::String(text)) => text,
        _ => otherwise.to_owned(),
    };
    let name = text("name", &skill.id.name);
    let description = text("description", &skill.description);
    let mut front = SkillFrontmatter::new(name, description);
    front.extra = written;
    front
}

fn as_tool(tool: &PlannedTool) -> Tool {
    let schema = tool.schema.as_object().cloned().unwrap_or_default();
    let mut shown = Tool::new(tool.name.clone(), tool.description.clone(), Arc::new(schema));
    if matches!(tool.action, Action::LoadSkill) {
        shown.annotations = Some(ToolAnnotations::new().read_only(true).open_world(false));
    }
    shown
}
