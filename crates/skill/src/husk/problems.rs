//! What HUSK refuses in a manifest.

use serde_json::{Map, Value};

use super::checks::Checks;
use super::mode::{Mode, proxy_key};
use crate::finding::Finding;
use crate::inputs::shortened;
use crate::tools::{self, words};

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
/// Largest timer of Node.js, on which HUSK runs.
const MAX_TIMEOUT_MS: f64 = 2_147_483_647.0;
const TIMEOUT_NOT_POSITIVE: &str = "`timeout_ms` must be a positive number";
const TIMEOUT_TOO_LONG: &str = "`timeout_ms` must not exceed 2147483647 (~24.8 days)";

/// The problems of a manifest. With a refused one HUSK does not load the skill.
pub fn problems(members: &Map<String, Value>) -> Vec<Finding> {
    let mut checks = Checks::new(members);
    checks.demand_text("name");
    checks.demand_text("description");
    let mode = Mode::of(members);
    check_mode(&mut checks, mode);
    if mode == Mode::Script {
        check_command(&mut checks);
    }
    checks.text("input_mime");
    checks.text("output_mime");
    checks.check_choice("input", &["text", "file", "none"]);
    checks.check_choice("output", &["text", "file", "json"]);
    check_timeout(&mut checks);
    checks.check_choice("method", &METHODS);
    checks.text("route");
    match mode {
        Mode::Script => {}
        Mode::StaticFile => check_file(&mut checks),
        Mode::Proxy => check_proxy(&mut checks),
        Mode::Llm => check_llm(&mut checks),
    }
    checks.findings
}

/// The word of `mode` is known, and no key says otherwise.
fn check_mode(checks: &mut Checks<'_>, mode: Mode) {
    let members = checks.members;
    let Some(word) = members.get("mode").and_then(Value::as_str) else {
        return;
    };
    if Mode::from_word(word).is_none() && !members.contains_key("run") {
        let message = "`mode` must be one of script, llm, static-file, proxy";
        checks.refuse("mode", message.to_owned());
        return;
    }
    let tools = members.contains_key("tools").then_some("tools");
    for (key, owner) in [(tools, Mode::Llm), (proxy_key(members), Mode::Proxy)] {
        if let Some(key) = key.filter(|_| mode != owner) {
            let (owner, word) = (owner.as_str(), shortened(word));
            let message = format!("`{key}` only applies to `mode: {owner}`, but `mode: {word}` was set");
            checks.refuse(key, message);
        }
    }
}

fn check_command(checks: &mut Checks<'_>) {
    if let Err(message) = words(checks.members.get("run").unwrap_or(&Value::Null), "run") {
        checks.refuse("run", message);
    }
}

/// As in HUSK, what is no number is passed over; a load reports it.
fn check_timeout(checks: &mut Checks<'_>) {
    let problem = match checks.members.get("timeout_ms") {
        Some(Value::Number(number)) => match number.as_f64() {
            Some(number) if number > MAX_TIMEOUT_MS => Some(TIMEOUT_TOO_LONG),
            Some(number) if number > 0.0 => None,
            _ => Some(TIMEOUT_NOT_POSITIVE),
        },
        // Infinity and no number, which have no form in JSON.
        Some(Value::String(word)) if is_not_finite(word) => Some(TIMEOUT_NOT_POSITIVE),
        _ => None,
    };
    if let Some(problem) = problem {
        checks.refuse("timeout_ms", problem.to_owned());
    }
}

fn is_not_finite(word: &str) -> bool {
    let word = word.trim_start_matches(['+', '-']).to_ascii_lowercase();
    word == ".inf" || word == ".nan"
}

fn check_file(checks: &mut Checks<'_>) {
    if checks.text("serve").is_none() {
        checks.refuse("serve", "`serve` is required for `mode: static-file`".to_owned());
    }
}

fn check_proxy(checks: &mut Checks<'_>) {
    let key = proxy_key(checks.members).unwrap_or("proxy");
    let Some(url) = checks.text(key) else {
        checks.refuse(key, format!("`{key}` is required for `mode: proxy`"));
        return;
    };
    if !url.starts_with("http://") && !url.starts_with("https://") {
        checks.refuse(key, format!("`{key}` URL must start with http:// or https://"));
    }
    let method = checks.text("proxy_method").map(|method| method.to_ascii_uppercase());
    if method.is_some_and(|method| !METHODS.contains(&method.as_str())) {
        checks.refuse(
            "proxy_method",
            format!("`proxy_method` must be one of {}", METHODS.join(", ")),
        );
    }
    checks.check_texts("forward_headers");
    checks.check_text_map("headers");
}

fn check_llm(checks: &mut Checks<'_>) {
    let (tools, findings) = tools::read(checks.members.get("tools").unwrap_or(&Value::Null));
    checks.findings.extend(findings);
    checks.findings.extend(tools::check(&tools));
    checks.text("provider");
    // A mapping is Agent Flow Lite's, and read by every load.
    if !checks.members.get("model").is_some_and(Value::is_object) {
        checks.text("model");
    }
    checks.check_positive("max_tokens");
    checks.check_positive("max_tool_rounds");
    checks.check_texts("tool_env");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    /// The problems of a skill `S` with these lines.
    fn found(lines: &str) -> Vec<Finding> {
        let yaml = yaml::parse(&format!("name: S\ndescription: d\n{lines}")).unwrap();
        problems(yaml.to_json().as_object().unwrap())
    }

    #[test]
    fn what_husk_does_not_load_is_refused_by_its_field() {
        for (lines, expected) in [
            ("", None),
            ("proxy_url: https://u", None),
            ("mode: llm\nproxy_url: https://u", Some("proxy_url")),
            ("mode: proxy\nproxy: ftp://u\nproxy_url: https://u", Some("proxy")),
            ("mode: proxy", Some("proxy")),
            ("run:", Some("run")),
            ("serve:", Some("serve")),
            ("serve: a.html", None),
            ("mode: script\nrun: ./x\ntools:", Some("tools")),
            ("mode: banana\nrun: ./x", None),
            ("mode: banana", Some("mode")),
            ("mode: 5", None),
            ("input: none", None),
            ("input: json", Some("input")),
            ("method: get", Some("method")),
            ("route: [x]", Some("route")),
            ("timeout_ms: 2147483647", None),
            ("timeout_ms: 2147483648", Some("timeout_ms")),
            ("timeout_ms: 0", Some("timeout_ms")),
            ("timeout_ms: .nan", Some("timeout_ms")),
            ("timeout_ms: abc", None),
            ("max_tokens: 1.5", Some("max_tokens")),
            ("max_tokens: 1e3", None),
            ("tool_env: [A, 1]", Some("tool_env[1]")),
            ("proxy: https://u\nheaders: {a: 1}", Some("headers.a")),
            ("model: {name: m}", None),
        ] {
            let refused = found(lines).into_iter().find(Finding::is_refused);
            assert_eq!(refused.map(|finding| finding.field).as_deref(), expected, "{lines}");
        }
    }
}
