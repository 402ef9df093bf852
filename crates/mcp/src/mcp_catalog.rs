//! The offer of a catalog to MCP clients: made once per catalog, since hosts ask for lists at every start and the
//! digests are over all files.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use knack_execution::mime_type;
use knack_gateway::catalog::Snapshot;
use knack_gateway::files::file_url::encode_path;
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
use serde::Serialize;
use serde_json::Value;

/// How the URI of every file begins.
const SCHEME: &str = "skill://";

/// Items of one page of resources or skills. A folder on a laptop is one page; hosts that read the first page only miss
/// nothing of it.
const PAGE: usize = 1000;
/// Bytes of the items of one page, as JSON: a thousand files with long paths, or some hundred skills of many files. The
/// frontmatter and manifest of one skill may be larger, and are a page of their own.
const PAGE_MAX_BYTES: usize = 1 << 20;

/// Catalogs whose offers are kept: the one from files and those of callers with uploaded skills, of whom one person has a few, or
/// those of the namespaces that call a shared gateway. Each is some 500 bytes for a file. Another one's is made again with its
/// next request.
const OFFERS_MAX: usize = 32;

/// The offers of the last catalogs.
#[derive(Debug, Default)]
pub(crate) struct McpCatalogs(Mutex<Vec<Arc<McpCatalog>>>);

/// The offer of one catalog.
#[derive(Debug)]
pub(crate) struct McpCatalog {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) plan: Arc<Plan>,
    /// In the order in which models get them.
    pub(crate) tools: Vec<Tool>,
    /// By URI.
    pub(crate) resources: Vec<Resource>,
    /// By URI. Only those whose name the extension takes.
    pub(crate) skills: Vec<Skill>,
}

impl McpCatalogs {
    /// The offer of a catalog.
    pub(crate) async fn of(&self, snapshot: Arc<Snapshot>) -> Arc<McpCatalog> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = lock()
            .iter()
            .find(|mcp_catalog| Arc::ptr_eq(&mcp_catalog.snapshot, &snapshot))
            .cloned();
        if let Some(mcp_catalog) = kept {
            return mcp_catalog;
        }
        // All bytes of all files are hashed.
        let size = snapshot.skills.iter().flat_map(|skill| skill.files.values());
        let size = size.map(|file| file.bytes.len()).sum();
        let mcp_catalog =
            knack_serving::run_off_thread_if_large(size, move || Arc::new(McpCatalog::new(snapshot))).await;
        let mut mcp_catalogs = lock();
        // A snapshot that only this list holds is no longer served.
        mcp_catalogs.retain(|mcp_catalog| Arc::strong_count(&mcp_catalog.snapshot) > 1);
        if mcp_catalogs.len() >= OFFERS_MAX {
            mcp_catalogs.remove(0);
        }
        mcp_catalogs.push(Arc::clone(&mcp_catalog));
        mcp_catalog
    }
}

impl McpCatalog {
    fn new(snapshot: Arc<Snapshot>) -> Self {
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
            resources,
            skills,
            plan: Arc::new(plan),
            snapshot,
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

/// The items after a cursor, which is the URI of the last item that was sent, and the next cursor. `items` are sorted by URI,
/// so that a page is right even if the catalog changed since the last. `None`: no page ends with this cursor.
pub(crate) fn page<T: Clone + Serialize>(
    items: &[T],
    key: impl Fn(&T) -> &str,
    cursor: Option<&str>,
) -> Option<(Vec<T>, Option<String>)> {
    if cursor.is_some_and(|cursor| !cursor.starts_with(SCHEME)) {
        return None;
    }
    let from = items.partition_point(|item| cursor.is_some_and(|cursor| key(item) <= cursor));
    let (mut page, mut bytes): (Vec<T>, usize) = (Vec::new(), 0);
    for item in items.iter().skip(from).take(PAGE) {
        bytes = bytes.saturating_add(json_bytes(item));
        // The first goes whatever its size: every page brings the reader on.
        if bytes > PAGE_MAX_BYTES && !page.is_empty() {
            break;
        }
        page.push(item.clone());
    }
    let next = (from + page.len() < items.len()).then(|| page.last().map(|item| key(item).to_owned()));
    Some((page, next.flatten()))
}

/// The bytes of a value as JSON.
fn json_bytes(value: &impl Serialize) -> usize {
    let mut counted = CountedBytes(0);
    // Plain data: writing it cannot fail.
    let _ = serde_json::to_writer(&mut counted, value);
    counted.0
}

/// A count of the bytes that were written to it.
struct CountedBytes(usize);

impl io::Write for CountedBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_every_item_once_and_go_on_after_a_change() {
        let mut items: Vec<String> = (0..=2 * PAGE).map(|number| format!("skill://{number:05}")).collect();
        let (first, next) = page(&items, |item| item, None).unwrap();
        assert_eq!((first.len(), next.as_deref()), (PAGE, Some("skill://00999")));
        // The last item of the previous page is gone, and a new one is before it.
        items.remove(PAGE - 1);
        items.insert(0, "skill://-".to_owned());
        let (second, next) = page(&items, |item| item, next.as_deref()).unwrap();
        assert_eq!(second.first().map(String::as_str), Some("skill://01000"));
        let (third, next) = page(&items, |item| item, next.as_deref()).unwrap();
        assert_eq!((third, next), (vec!["skill://02000".to_owned()], None));
        assert_eq!(page(&items, |item| item, Some("skill://zzz")), Some((Vec::new(), None)));
        for forged in ["zzz", "", "5"] {
            assert_eq!(page(&items, |item| item, Some(forged)), None, "{forged}");
        }
    }

    #[test]
    fn a_page_has_no_more_bytes_than_the_bound_but_for_one_item_that_is_larger() {
        let sized = |name: &str, bytes: usize| format!("skill://{name}{}", "x".repeat(bytes));
        // Escapes count as they are sent.
        let escaped = format!("skill://e{}", "\u{1}".repeat(PAGE_MAX_BYTES / 5));
        let items = [
            sized("a", PAGE_MAX_BYTES / 2),
            sized("b", PAGE_MAX_BYTES / 3),
            sized("c", PAGE_MAX_BYTES / 3),
            sized("d", PAGE_MAX_BYTES),
            escaped,
            sized("f", 0),
            sized("g", 0),
        ];
        let (mut cursor, mut counts, mut found) = (None, Vec::new(), Vec::new());
        loop {
            let (page, next) = page(&items, |item| item, cursor.as_deref()).unwrap();
            let bytes: usize = page.iter().map(json_bytes).sum();
            assert!(page.len() == 1 || bytes <= PAGE_MAX_BYTES, "{bytes}");
            counts.push(page.len());
            found.extend(page);
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(counts, [2, 1, 1, 1, 2]);
        assert!(found == items, "each item once, in order");
    }
}
