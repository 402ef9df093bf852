//! The manifest: the frontmatter with defaults filled in, and all its problems.

use serde_json::{Map, Value};

use super::reader::Reader;
use crate::finding::Finding;
use crate::frontmatter::{self, Delimiters, Split};
use crate::names;
use crate::problem::ProblemKind;
use crate::tools::{self, ToolDeclaration, words};
use crate::yaml;

/// Keys with a meaning in HUSK.
pub const KNOWN_KEYS: [&str; 22] = [
    "name",
    "description",
    "mode",
    "run",
    "serve",
    "proxy",
    "proxy_method",
    "headers",
    "forward_headers",
    "input",
    "output",
    "input_mime",
    "output_mime",
    "timeout_ms",
    "method",
    "route",
    "provider",
    "model",
    "max_tokens",
    "max_tool_rounds",
    "tools",
    "tool_env",
];
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
const DEFAULT_TIMEOUT_MS: u64 = 60_000;
/// Largest timer of Node.js, on which HUSK runs.
const MAX_TIMEOUT_MS: u64 = 2_147_483_647;
const DEFAULT_MAX_TOKENS: u64 = 4_096;
const DEFAULT_MAX_TOOL_ROUNDS: u64 = 10;
const DEFAULT_PROVIDER: &str = "anthropic";

/// How a skill answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A program.
    Script,
    /// A model with tools.
    Llm,
    /// A file.
    StaticFile,
    /// Another server.
    Proxy,
}

impl Mode {
    /// The word in the manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Script => "script",
            Self::Llm => "llm",
            Self::StaticFile => "static-file",
            Self::Proxy => "proxy",
        }
    }

    /// Parses the name of a mode.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Script, Self::Llm, Self::StaticFile, Self::Proxy]
            .into_iter()
            .find(|mode| mode.as_str() == word)
    }
}

/// A whole manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Free text without control characters.
    pub name: String,
    /// Free text without control characters.
    pub description: String,
    /// Given or inferred.
    pub mode: Mode,
    /// Of mode script; else empty.
    pub argv: Vec<String>,
    /// `text`, `file` or `none`.
    pub input: String,
    /// `text`, `file` or `json`.
    pub output: String,
    /// MIME type of the request body.
    pub input_mime: Option<String>,
    /// MIME type of the answer.
    pub output_mime: Option<String>,
    /// Wall-clock limit, milliseconds.
    pub timeout_ms: u64,
    /// HTTP method in upper case.
    pub method: String,
    /// HTTP path.
    pub route: String,
    /// Of mode static-file: path in the skill's folder.
    pub serve: Option<String>,
    /// Of mode proxy.
    pub proxy: Option<ProxySettings>,
    /// Of mode llm.
    pub llm: Option<LlmSettings>,
    /// Unknown keys.
    pub extra: Map<String, Value>,
}

/// Settings of mode proxy.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxySettings {
    /// http or https.
    pub url: String,
    /// Upper case, if given.
    pub method: Option<String>,
    /// Header texts, `${VAR}` not filled in.
    pub headers: Map<String, Value>,
    /// Lower-case names of request headers that are passed on.
    pub forward_headers: Vec<String>,
}

/// Settings of mode llm.
#[derive(Debug, Clone, PartialEq)]
pub struct LlmSettings {
    /// Provider word; unknown ones fail when invoked, not here.
    pub provider: String,
    /// Model id, else the provider's default.
    pub model: Option<String>,
    /// Output token cap.
    pub max_tokens: u64,
    /// Rounds before giving up.
    pub max_tool_rounds: u64,
    /// Declared tools.
    pub tools: Vec<ToolDeclaration>,
    /// Environment names for the tools.
    pub tool_env: Vec<String>,
}

/// Splits SKILL.md and reads its YAML; a mapping is demanded, delimiters are exact lines.
pub fn frontmatter(content: &str) -> Result<(Map<String, Value>, String), Finding> {
    let Split::Found { yaml, body } = frontmatter::split(content, Delimiters::Exact) else {
        let message = "SKILL.md is missing YAML frontmatter (a block delimited by leading and trailing `---` lines)";
        return Err(Finding::refused(
            ProblemKind::FrontmatterMissing,
            "",
            message,
            "begin the file with a line ---",
        ));
    };
    let node = yaml::parse(yaml).map_err(|error| {
        let message = format!("SKILL.md frontmatter is not valid YAML: {}", error.message);
        Finding::refused(ProblemKind::YamlInvalid, "", message, "put texts with colons in quotes")
    })?;
    if let Some((key, _)) = node.repeated_key() {
        let message = format!("SKILL.md frontmatter is not valid YAML: key `{key}` appears twice");
        return Err(Finding::refused(
            ProblemKind::KeyRepeated,
            "",
            message,
            "remove one of the two",
        ));
    }
    let Value::Object(members) = node.to_json() else {
        let message = "SKILL.md frontmatter must be a YAML mapping";
        let kind = ProblemKind::FrontmatterNotMapping;
        return Err(Finding::refused(kind, "", message, "write key: value lines"));
    };
    Ok((members, body.to_owned()))
}

/// Reads a manifest. With a refused finding, HUSK does not load the skill; the value is then only a best reading.
pub fn read(members: &Map<String, Value>, folder_slug: &str) -> (Manifest, Vec<Finding>) {
    let mut reader = Reader::new(members);
    let name = reader.required_text("name");
    let description = reader.required_text("description");
    let mode = mode(&mut reader);
    let argv = if mode == Mode::Script {
        argv(&mut reader)
    } else {
        Vec::new()
    };
    let input_mime = reader.text("input_mime");
    let output_mime = reader.text("output_mime");
    let slug = match names::husk_slug(&name) {
        slug if slug.is_empty() => folder_slug.to_owned(),
        slug => slug,
    };
    let manifest = Manifest {
        argv,
        input: reader.choice("input", &["text", "file", "none"], kind_of(input_mime.as_deref())),
        output: reader.choice("output", &["text", "file", "json"], kind_of(output_mime.as_deref())),
        timeout_ms: timeout_ms(&mut reader),
        method: reader.choice("method", &METHODS, "POST"),
        route: route(&mut reader, &slug),
        serve: (mode == Mode::StaticFile).then(|| serve(&mut reader)).flatten(),
        proxy: (mode == Mode::Proxy).then(|| proxy(&mut reader)).flatten(),
        llm: (mode == Mode::Llm).then(|| llm(&mut reader)),
        extra: members
            .iter()
            .filter(|(key, _)| !KNOWN_KEYS.contains(&key.as_str()))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
        name,
        description,
        mode,
        input_mime,
        output_mime,
    };
    (manifest, reader.findings)
}

/// An explicit mode never falls back; else the first of proxy, tools, run, serve decides.
fn mode(reader: &mut Reader<'_>) -> Mode {
    let present = |key: &str| reader.members.get(key).is_some_and(|value| !value.is_null());
    let given = reader.members.get("mode").filter(|value| !value.is_null());
    let Some(given) = given else {
        let inferred = [
            ("proxy", Mode::Proxy),
            ("tools", Mode::Llm),
            ("run", Mode::Script),
            ("serve", Mode::StaticFile),
        ];
        return inferred
            .into_iter()
            .find(|(key, _)| present(key))
            .map_or(Mode::Llm, |(_, mode)| mode);
    };
    let Some(mode) = given.as_str().and_then(Mode::from_word) else {
        reader.refuse(
            "mode",
            "`mode` must be one of script, llm, static-file, proxy".to_owned(),
        );
        return Mode::Llm;
    };
    for (key, owner) in [("tools", Mode::Llm), ("proxy", Mode::Proxy)] {
        if mode != owner && reader.members.get(key).is_some_and(|value| !value.is_null()) {
            let (owner, mode) = (owner.as_str(), mode.as_str());
            reader.refuse(
                key,
                format!("`{key}` only applies to `mode: {owner}`, but `mode: {mode}` was set"),
            );
        }
    }
    mode
}

fn argv(reader: &mut Reader<'_>) -> Vec<String> {
    match words(reader.members.get("run").unwrap_or(&Value::Null), "run") {
        Ok(argv) => argv,
        Err(message) => {
            reader.refuse("run", message);
            Vec::new()
        }
    }
}

fn timeout_ms(reader: &mut Reader<'_>) -> u64 {
    let timeout = reader.positive("timeout_ms").unwrap_or(DEFAULT_TIMEOUT_MS);
    if timeout > MAX_TIMEOUT_MS {
        reader.refuse(
            "timeout_ms",
            format!("`timeout_ms` must not exceed {MAX_TIMEOUT_MS} (~24.8 days)"),
        );
    }
    timeout.min(MAX_TIMEOUT_MS)
}

fn route(reader: &mut Reader<'_>, slug: &str) -> String {
    match reader.text("route") {
        None => format!("/skills/{slug}"),
        Some(route) => {
            if !route.starts_with('/') {
                reader.refuse("route", "`route` must start with /".to_owned());
            }
            route
        }
    }
}

fn serve(reader: &mut Reader<'_>) -> Option<String> {
    let serve = reader.text("serve");
    if serve.is_none() {
        reader.refuse("serve", "`serve` is required for `mode: static-file`".to_owned());
    }
    serve
}

fn proxy(reader: &mut Reader<'_>) -> Option<ProxySettings> {
    let Some(url) = reader.text("proxy") else {
        reader.refuse("proxy", "`proxy` is required for `mode: proxy`".to_owned());
        return None;
    };
    if !url.starts_with("http://") && !url.starts_with("https://") {
        reader.refuse("proxy", "`proxy` URL must start with http:// or https://".to_owned());
    }
    let method = reader.text("proxy_method").map(|method| method.to_ascii_uppercase());
    if method.as_deref().is_some_and(|method| !METHODS.contains(&method)) {
        reader.refuse(
            "proxy_method",
            format!("`proxy_method` must be one of {}", METHODS.join(", ")),
        );
    }
    let forward_headers = reader
        .texts("forward_headers")
        .iter()
        .map(|name| name.to_ascii_lowercase())
        .collect();
    Some(ProxySettings {
        url,
        method,
        headers: reader.text_map("headers"),
        forward_headers,
    })
}

/// A model id. A mapping is what Agent Flow Lite takes.
fn model(reader: &mut Reader<'_>) -> Option<String> {
    if reader.members.get("model").is_some_and(Value::is_object) {
        let message = "`model` must be a string, the id of a model; a mapping belongs to the Agent Flow dialect";
        reader.refuse("model", message.to_owned());
        return None;
    }
    reader.text("model")
}

fn llm(reader: &mut Reader<'_>) -> LlmSettings {
    let (tools, findings) = tools::read(reader.members.get("tools").unwrap_or(&Value::Null));
    reader.findings.extend(findings);
    reader.findings.extend(tools::check(&tools));
    LlmSettings {
        provider: reader.text("provider").unwrap_or_else(|| DEFAULT_PROVIDER.to_owned()),
        model: model(reader),
        max_tokens: reader.positive("max_tokens").unwrap_or(DEFAULT_MAX_TOKENS),
        max_tool_rounds: reader.positive("max_tool_rounds").unwrap_or(DEFAULT_MAX_TOOL_ROUNDS),
        tools,
        tool_env: reader.texts("tool_env"),
    }
}

/// Subtypes of `application/` that are text.
const TEXT_SUBTYPES: [&str; 6] = ["json", "xml", "javascript", "yaml", "x-yaml", "x-www-form-urlencoded"];

/// What a body of a MIME type is handled as: text, unless the type is binary.
fn kind_of(mime: Option<&str>) -> &'static str {
    let Some(mime) = mime else { return "text" };
    let essence = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let textual = essence.starts_with("text/")
        || essence.strip_prefix("application/").is_some_and(|subtype| {
            TEXT_SUBTYPES.contains(&subtype) || subtype.ends_with("+json") || subtype.ends_with("+xml")
        });
    if textual { "text" } else { "file" }
}
