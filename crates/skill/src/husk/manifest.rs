//! The manifest: the frontmatter with defaults filled in, and all its problems.

use serde_json::{Map, Value};

use super::reader::Reader;
use crate::finding::Finding;
use crate::frontmatter::{self, Delimiters, Split};
use crate::inputs::shortened;
use crate::names;
use crate::problem::ProblemKind;
use crate::tools::{self, ToolDeclaration, clean, words};
use crate::yaml;

/// Keys with a meaning in HUSK.
pub const KNOWN_KEYS: [&str; 23] = [
    "name",
    "description",
    "mode",
    "run",
    "serve",
    "proxy",
    "proxy_url",
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
/// Keys of the address of mode proxy; the first that is written counts.
const PROXY_KEYS: [&str; 2] = ["proxy", "proxy_url"];
const DEFAULT_TIMEOUT_MS: f64 = 60_000.0;
/// Largest timer of Node.js, on which HUSK runs.
const MAX_TIMEOUT_MS: f64 = 2_147_483_647.0;
const TIMEOUT_NOT_POSITIVE: &str = "`timeout_ms` must be a positive number";
const TIMEOUT_TOO_LONG: &str = "`timeout_ms` must not exceed 2147483647 (~24.8 days)";
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
    /// The command of mode script; else empty.
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
    pub timeout_ms: f64,
    /// HTTP method in upper case.
    pub method: String,
    /// HTTP path.
    pub route: String,
    /// The file of mode static-file: path in the skill's folder.
    pub serve: Option<String>,
    /// The settings of mode proxy.
    pub proxy: Option<ProxySettings>,
    /// The settings of mode llm.
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
    let slug = slug_of(&name, folder_slug);
    let input = match input_mime.as_deref() {
        _ if mode == Mode::StaticFile => "none",
        None | Some("none") => "text",
        Some(mime) => kind_of(mime),
    };
    let output = output_mime.as_deref().map_or("text", kind_of);
    let manifest = Manifest {
        argv,
        input: reader.choice("input", &["text", "file", "none"], input),
        output: reader.choice("output", &["text", "file", "json"], output),
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

/// The slug of a skill by its name, else by its folder.
pub fn slug_of(name: &str, folder_slug: &str) -> String {
    match names::husk_slug(name) {
        slug if slug.is_empty() => folder_slug.to_owned(),
        slug => slug,
    }
}

/// The word of `mode`, else the first of proxy, tools, run, serve decides. As in HUSK, a key of these counts even without a value, and
/// beside `run` an unknown word is a program; a load reports the word.
fn mode(reader: &mut Reader<'_>) -> Mode {
    let members = reader.members;
    let is_written = |key: &str| members.contains_key(key);
    let proxy = PROXY_KEYS.into_iter().find(|key| reader.has(key));
    let Some(word) = members.get("mode").and_then(Value::as_str) else {
        return if proxy.is_some() {
            Mode::Proxy
        } else if is_written("tools") {
            Mode::Llm
        } else if is_written("run") {
            Mode::Script
        } else if is_written("serve") {
            Mode::StaticFile
        } else {
            Mode::Llm
        };
    };
    let unknown = is_written("run").then_some(Mode::Script);
    let Some(mode) = Mode::from_word(word).or(unknown) else {
        let message = "`mode` must be one of script, llm, static-file, proxy";
        reader.refuse("mode", message.to_owned());
        return Mode::Llm;
    };
    let tools = is_written("tools").then_some("tools");
    for (key, owner) in [(tools, Mode::Llm), (proxy, Mode::Proxy)] {
        if let Some(key) = key.filter(|_| mode != owner) {
            let (owner, word) = (owner.as_str(), shortened(word));
            let message = format!("`{key}` only applies to `mode: {owner}`, but `mode: {word}` was set");
            reader.refuse(key, message);
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

/// As in HUSK, what is no number is passed over; a load reports it.
fn timeout_ms(reader: &mut Reader<'_>) -> f64 {
    let (timeout, problem) = match reader.members.get("timeout_ms") {
        Some(Value::Number(number)) => match number.as_f64() {
            Some(number) if number > MAX_TIMEOUT_MS => (MAX_TIMEOUT_MS, Some(TIMEOUT_TOO_LONG)),
            Some(number) if number > 0.0 => (number, None),
            _ => (DEFAULT_TIMEOUT_MS, Some(TIMEOUT_NOT_POSITIVE)),
        },
        // Infinity and no number, which have no form in JSON.
        Some(Value::String(word)) if is_not_finite(word) => (DEFAULT_TIMEOUT_MS, Some(TIMEOUT_NOT_POSITIVE)),
        _ => (DEFAULT_TIMEOUT_MS, None),
    };
    if let Some(problem) = problem {
        reader.refuse("timeout_ms", problem.to_owned());
    }
    timeout
}

fn is_not_finite(word: &str) -> bool {
    let word = word.trim_start_matches(['+', '-']).to_ascii_lowercase();
    word == ".inf" || word == ".nan"
}

fn route(reader: &mut Reader<'_>, slug: &str) -> String {
    let route = reader.text("route");
    normalized_route(&route.unwrap_or_else(|| format!("/skills/{slug}")))
}

/// A route as HUSK serves it: without control characters, with a slash before it and none behind it.
pub fn normalized_route(route: &str) -> String {
    let route = clean(route);
    let route = route.trim_end_matches('/');
    let slash = if route.starts_with('/') { "" } else { "/" };
    format!("{slash}{route}")
}

fn serve(reader: &mut Reader<'_>) -> Option<String> {
    let serve = reader.text("serve");
    if serve.is_none() {
        reader.refuse("serve", "`serve` is required for `mode: static-file`".to_owned());
    }
    serve
}

fn proxy(reader: &mut Reader<'_>) -> Option<ProxySettings> {
    let key = PROXY_KEYS.into_iter().find(|key| reader.has(key)).unwrap_or("proxy");
    let Some(url) = reader.text(key) else {
        reader.refuse(key, format!("`{key}` is required for `mode: proxy`"));
        return None;
    };
    if !url.starts_with("http://") && !url.starts_with("https://") {
        reader.refuse(key, format!("`{key}` URL must start with http:// or https://"));
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

/// A model id, or its `name` in a mapping, which is Agent Flow Lite's and read by every load.
fn model(reader: &mut Reader<'_>) -> Option<String> {
    match reader.members.get("model").and_then(Value::as_object) {
        Some(mapping) => mapping.get("name").and_then(Value::as_str).map(str::to_owned),
        None => reader.text("model"),
    }
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

/// What a body of a MIME type is handled as, in HUSK's own reading: only `text/...` and exactly `application/json` are text.
fn kind_of(mime: &str) -> &'static str {
    let is_text = mime.starts_with("text/") || mime == "application/json";
    if is_text { "text" } else { "file" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The manifest of a skill `S` with these lines, or the field that is refused first.
    fn of(lines: &str) -> Result<Manifest, String> {
        let yaml = yaml::parse(&format!("name: S\ndescription: d\n{lines}")).map_err(|_| "not valid YAML")?;
        let members = yaml.to_json();
        let (manifest, findings) = read(members.as_object().ok_or("no mapping")?, "s");
        match findings.into_iter().find(Finding::is_refused) {
            Some(finding) => Err(finding.field),
            None => Ok(manifest),
        }
    }

    #[test]
    fn the_mode_is_the_word_else_what_is_written() {
        for (lines, expected) in [
            ("", Ok(Mode::Llm)),
            ("proxy_url: https://u", Ok(Mode::Proxy)),
            ("mode: proxy\nproxy_url: https://u", Ok(Mode::Proxy)),
            ("mode: llm\nproxy_url: https://u", Err("proxy_url")),
            ("mode: proxy\nproxy: ftp://u\nproxy_url: https://u", Err("proxy")),
            ("mode: proxy", Err("proxy")),
            ("run:", Err("run")),
            ("run: ./x", Ok(Mode::Script)),
            ("serve:", Err("serve")),
            ("mode: script\nrun: ./x\ntools:", Err("tools")),
            ("mode: banana\nrun: ./x", Ok(Mode::Script)),
            ("mode: banana", Err("mode")),
            ("mode: 5", Ok(Mode::Llm)),
        ] {
            let actual = of(lines).map(|manifest| manifest.mode);
            assert_eq!(actual, expected.map_err(str::to_owned), "{lines}");
        }
        let manifest = of("proxy_url: https://u").unwrap();
        assert_eq!(
            (manifest.proxy.unwrap().url.as_str(), manifest.extra.len()),
            ("https://u", 0)
        );
    }

    #[test]
    fn bodies_are_text_or_files_by_their_types() {
        for (lines, input, output) in [
            ("serve: a.html", "none", "text"),
            ("serve: a.html\ninput_mime: image/png", "none", "text"),
            ("serve: a.html\ninput: text", "text", "text"),
            ("run: ./x\ninput_mime: none", "text", "text"),
            (
                "run: ./x\ninput_mime: application/json\noutput_mime: text/html",
                "text",
                "text",
            ),
            (
                "run: ./x\ninput_mime: application/xml\noutput_mime: image/svg+xml",
                "file",
                "file",
            ),
        ] {
            let manifest = of(lines).unwrap();
            assert_eq!((&*manifest.input, &*manifest.output), (input, output), "{lines}");
        }
        assert_eq!(
            of("output_mime: \"a\\r\\nb\"").unwrap().output_mime.as_deref(),
            Some("ab")
        );
    }

    #[test]
    fn routes_are_as_they_are_served() {
        for (written, route) in [
            ("custom", "/custom"),
            ("/custom/", "/custom"),
            ("/custom//", "/custom"),
            ("//", "/"),
            ("\"/a\\u0007b\"", "/ab"),
            ("' '", "/skills/s"),
        ] {
            assert_eq!(of(&format!("route: {written}")).unwrap().route, route, "{written}");
        }
    }

    #[test]
    fn numbers_are_read_as_husk_reads_them() {
        for (written, expected) in [
            ("1500.5", Some(1_500.5)),
            ("1e3", Some(1_000.0)),
            ("'5000'", Some(DEFAULT_TIMEOUT_MS)),
            ("abc", Some(DEFAULT_TIMEOUT_MS)),
            ("2147483647", Some(MAX_TIMEOUT_MS)),
            ("2147483648", None),
            ("0", None),
            ("-1", None),
            ("-.inf", None),
            (".nan", None),
        ] {
            let timeout = of(&format!("timeout_ms: {written}"))
                .ok()
                .map(|manifest| manifest.timeout_ms);
            assert_eq!(timeout, expected, "{written}");
        }
        for (written, expected) in [
            ("1.0", Some(1)),
            ("1e3", Some(1_000)),
            ("1.5", None),
            ("'3'", None),
            ("0", None),
        ] {
            let llm = of(&format!("max_tokens: {written}"))
                .ok()
                .and_then(|manifest| manifest.llm);
            assert_eq!(llm.map(|llm| llm.max_tokens), expected, "{written}");
        }
    }
}
