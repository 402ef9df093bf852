//! What HUSK makes of a manifest: a served skill with its defaults, its slug and its route. Skills of the product are not served, so that
//! it has only what HUSK refuses.

use knack_skill::finding::Finding;
use knack_skill::frontmatter::{self, Delimiters, Split};
use knack_skill::husk::{self, Mode};
use knack_skill::problem::ProblemKind;
use knack_skill::tools::{self, ToolDeclaration, clean, clean_lines, words};
use knack_skill::yaml;
use serde_json::{Map, Value};

/// Keys with a meaning in HUSK.
const KNOWN_KEYS: [&str; 23] = [
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
const DEFAULT_TIMEOUT_MS: f64 = 60_000.0;
const DEFAULT_MAX_TOKENS: u64 = 4_096;
const DEFAULT_MAX_TOOL_ROUNDS: u64 = 10;
const DEFAULT_PROVIDER: &str = "anthropic";

/// A whole manifest.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Manifest {
    /// Free text without control characters.
    pub(crate) name: String,
    /// Free text without control characters.
    pub(crate) description: String,
    /// Given or inferred.
    pub(crate) mode: Mode,
    /// The command of mode script; else empty.
    pub(crate) argv: Vec<String>,
    /// `text`, `file` or `none`.
    pub(crate) input: String,
    /// `text`, `file` or `json`.
    pub(crate) output: String,
    /// MIME type of the request body.
    pub(crate) input_mime: Option<String>,
    /// MIME type of the answer.
    pub(crate) output_mime: Option<String>,
    /// Wall-clock limit, milliseconds.
    pub(crate) timeout_ms: f64,
    /// HTTP method in upper case.
    pub(crate) method: String,
    /// HTTP path.
    pub(crate) route: String,
    /// The file of mode static-file: path in the skill's folder.
    pub(crate) serve: Option<String>,
    /// The settings of mode proxy.
    pub(crate) proxy: Option<ProxySettings>,
    /// The settings of mode llm.
    pub(crate) llm: Option<LlmSettings>,
    /// Unknown keys.
    pub(crate) extra: Map<String, Value>,
}

/// Settings of mode proxy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProxySettings {
    /// http or https.
    pub(crate) url: String,
    /// Upper case, if given.
    pub(crate) method: Option<String>,
    /// Header texts, `${VAR}` not filled in.
    pub(crate) headers: Map<String, Value>,
    /// Lower-case names of request headers that are passed on.
    pub(crate) forward_headers: Vec<String>,
}

/// Settings of mode llm.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LlmSettings {
    /// Provider word; unknown ones fail when invoked, not here.
    pub(crate) provider: String,
    /// Model id, else the provider's default.
    pub(crate) model: Option<String>,
    /// Output token cap.
    pub(crate) max_tokens: u64,
    /// Rounds before giving up.
    pub(crate) max_tool_rounds: u64,
    /// Declared tools.
    pub(crate) tools: Vec<ToolDeclaration>,
    /// Environment names for the tools.
    pub(crate) tool_env: Vec<String>,
}

/// Splits SKILL.md and reads its YAML; a mapping is demanded, delimiters are exact lines.
pub(crate) fn frontmatter(content: &str) -> Result<(Map<String, Value>, String), Finding> {
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

/// The manifest of these members. Error: the first problem for which HUSK does not load the skill.
pub(crate) fn read(members: &Map<String, Value>, folder_slug: &str) -> Result<Manifest, Finding> {
    if let Some(finding) = husk::problems(members).into_iter().find(Finding::is_refused) {
        return Err(finding);
    }
    let mode = Mode::of(members);
    let name = text(members, "name").unwrap_or_default();
    let input_mime = text(members, "input_mime");
    let output_mime = text(members, "output_mime");
    let input = match input_mime.as_deref() {
        _ if mode == Mode::StaticFile => "none",
        None | Some("none") => "text",
        Some(mime) => kind_of(mime),
    };
    let output = output_mime.as_deref().map_or("text", kind_of);
    let route = text(members, "route").unwrap_or_else(|| format!("/skills/{}", slug_of(&name, folder_slug)));
    let or = |key: &str, default: &str| members.get(key).and_then(Value::as_str).unwrap_or(default).to_owned();
    Ok(Manifest {
        description: members
            .get("description")
            .and_then(Value::as_str)
            .map(clean_lines)
            .unwrap_or_default(),
        argv: if mode == Mode::Script {
            argv(members)
        } else {
            Vec::new()
        },
        input: or("input", input),
        output: or("output", output),
        timeout_ms: members
            .get("timeout_ms")
            .and_then(Value::as_f64)
            .unwrap_or(DEFAULT_TIMEOUT_MS),
        method: or("method", "POST"),
        route: normalized_route(&route),
        serve: (mode == Mode::StaticFile).then(|| text(members, "serve")).flatten(),
        proxy: (mode == Mode::Proxy).then(|| proxy(members)),
        llm: (mode == Mode::Llm).then(|| llm(members)),
        extra: members
            .iter()
            .filter(|(key, _)| !KNOWN_KEYS.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        name,
        mode,
        input_mime,
        output_mime,
    })
}

/// A slug: lower case, every run of other characters than `[a-z0-9]` one hyphen, ends trimmed. May be empty.
pub(crate) fn slug(text: &str) -> String {
    let mut slug = String::new();
    for character in text.to_lowercase().chars() {
        if character.is_ascii_lowercase() || character.is_ascii_digit() {
            slug.push(character);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.truncate(slug.trim_end_matches('-').len());
    slug
}

/// The slug of a skill by its name, else by its folder.
pub(crate) fn slug_of(name: &str, folder_slug: &str) -> String {
    match slug(name) {
        slug if slug.is_empty() => folder_slug.to_owned(),
        slug => slug,
    }
}

/// A route as HUSK serves it: without control characters, with a slash before it and none behind it.
pub(crate) fn normalized_route(route: &str) -> String {
    let route = clean(route);
    let route = route.trim_end_matches('/');
    let slash = if route.starts_with('/') { "" } else { "/" };
    format!("{slash}{route}")
}

/// Text of one line that is not blank.
fn text(members: &Map<String, Value>, key: &str) -> Option<String> {
    let text = members.get(key)?.as_str().map(clean)?;
    Some(text).filter(|text| !text.is_empty())
}

fn texts(members: &Map<String, Value>, key: &str) -> Vec<String> {
    let items = members.get(key).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// A positive integer, written with or without a fraction of zero.
fn positive(members: &Map<String, Value>, key: &str) -> Option<u64> {
    let number = members.get(key)?;
    number
        .as_u64()
        .or_else(|| format!("{:.0}", number.as_f64()?).parse().ok())
}

fn argv(members: &Map<String, Value>) -> Vec<String> {
    words(members.get("run").unwrap_or(&Value::Null), "run").unwrap_or_default()
}

fn proxy(members: &Map<String, Value>) -> ProxySettings {
    let url = members
        .get("proxy")
        .filter(|url| !url.is_null())
        .or_else(|| members.get("proxy_url"));
    let names = texts(members, "forward_headers");
    ProxySettings {
        url: url.and_then(Value::as_str).map(clean).unwrap_or_default(),
        method: text(members, "proxy_method").map(|method| method.to_ascii_uppercase()),
        headers: members
            .get("headers")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default(),
        forward_headers: names.iter().map(|name| name.to_ascii_lowercase()).collect(),
    }
}

fn llm(members: &Map<String, Value>) -> LlmSettings {
    let (tools, _) = tools::read(members.get("tools").unwrap_or(&Value::Null));
    // A model id, or its `name` in a mapping, which is Agent Flow Lite's.
    let model = match members.get("model").and_then(Value::as_object) {
        Some(mapping) => mapping.get("name").and_then(Value::as_str).map(str::to_owned),
        None => text(members, "model"),
    };
    LlmSettings {
        provider: text(members, "provider").unwrap_or_else(|| DEFAULT_PROVIDER.to_owned()),
        model,
        max_tokens: positive(members, "max_tokens").unwrap_or(DEFAULT_MAX_TOKENS),
        max_tool_rounds: positive(members, "max_tool_rounds").unwrap_or(DEFAULT_MAX_TOOL_ROUNDS),
        tools,
        tool_env: texts(members, "tool_env"),
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
        read(members.as_object().ok_or("no mapping")?, "s").map_err(|finding| finding.field)
    }

    #[test]
    fn a_slug_has_letters_digits_and_single_hyphens() {
        for (name, expected) in [
            ("C++ Tool_2 ", "c-tool-2"),
            ("___", ""),
            ("Größe (neu)", "gr-e-neu"),
            ("要約", ""),
        ] {
            assert_eq!(slug(name), expected, "{name}");
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
            ("2147483647", Some(2_147_483_647.0)),
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
