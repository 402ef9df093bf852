//! Settings of the dialects that nothing in Knack acts on. Each is warned about by its name, so that no author relies on it.

use serde_json::Value;

use super::reading::Fields;
use crate::finding::{Finding, MAX_ENTRIES};
use crate::husk;
use crate::problem::ProblemKind;

/// A key without effect: why it has none, and what to do.
struct InertKey {
    key: &'static str,
    why: &'static str,
    help: &'static str,
}

/// Why a key about a skill's own HTTP endpoint has no effect.
const NO_ENDPOINT: &str = "skills have no HTTP endpoint of their own; models read them";
/// Why a key about a program that answers requests has no effect.
const NO_SERVER: &str =
    "Knack gives the body to a model and runs what the model calls; it serves no program, file or proxy";
/// Why a key about the model has no effect.
const CLIENT_DECIDES: &str =
    "the request of the client decides the model and its settings; only POST /api/v1/skills/{name}/run reads it";
/// Why the provider has no effect.
const ONE_PROVIDER: &str = "requests go to the provider of the API that the client calls";
/// The frontmatter's key for packages.
pub(super) const PACKAGES_KEY: &str = "packages";
const REMOVE: &str = "remove it, or move it under metadata";

/// Top-level keys. `model` and `mode` depend on their values.
const INERT: [InertKey; 21] = [
    inert("run", NO_SERVER, "declare the program under tools"),
    inert("serve", NO_SERVER, "name the file in the body; load_skill returns it"),
    inert("proxy", NO_SERVER, REMOVE),
    inert("proxy_url", NO_SERVER, REMOVE),
    inert("proxy_method", NO_SERVER, REMOVE),
    inert("headers", NO_SERVER, REMOVE),
    inert("forward_headers", NO_SERVER, REMOVE),
    inert("route", NO_ENDPOINT, REMOVE),
    inert("method", NO_ENDPOINT, REMOVE),
    inert("input", NO_ENDPOINT, REMOVE),
    inert("output", NO_ENDPOINT, REMOVE),
    inert("input_mime", NO_ENDPOINT, REMOVE),
    inert("output_mime", NO_ENDPOINT, REMOVE),
    inert("provider", ONE_PROVIDER, REMOVE),
    inert("max_tokens", CLIENT_DECIDES, REMOVE),
    inert(
        "max_tool_rounds",
        "rounds are limited for the whole request, by the runtime",
        "set spec.gateway.injection.maxToolRounds of the SkillRuntime",
    ),
    inert(
        "knowledge_base",
        "there is no retrieval",
        "put the material into files of the skill",
    ),
    inert("user_id", "a skill belongs to its namespace, not to a user", REMOVE),
    inert(
        "dependencies",
        "no packages are installed for it, since other systems write names of any kind there",
        "list packages of Python under packages.python, such as packages: {python: [\"pandas>=2\"]}",
    ),
    inert("user-invocable", "users name any skill that is served", REMOVE),
    inert(
        "allowed-tools",
        "it neither adds nor removes tools",
        "limit tools in the client; spec.sandbox.modelCode: Deny of the SkillRuntime forbids code of the model",
    ),
];

const fn inert(key: &'static str, why: &'static str, help: &'static str) -> InertKey {
    InertKey { key, why, help }
}

/// Whether a key is one of them.
pub(super) fn is_inert(key: &str) -> bool {
    INERT.iter().any(|inert| inert.key == key)
}

impl Fields<'_> {
    /// Warns about every setting in the frontmatter that has no effect.
    pub(super) fn check_inert_keys(&mut self) {
        for inert in &INERT {
            if self.member(inert.key).is_some() {
                self.warn_inert(inert.key.to_owned(), inert.key, inert.why, inert.help);
            }
        }
        self.check_mode();
        self.check_model();
    }

    /// HUSK's mode `llm` is what a model does with a skill; its other modes are servers.
    fn check_mode(&mut self) {
        let mode = self
            .member("mode")
            .and_then(Value::as_str)
            .and_then(husk::Mode::from_word);
        if let Some(mode) = mode.filter(|mode| *mode != husk::Mode::Llm) {
            let help = "write mode: llm, and declare programs under tools";
            self.warn_inert("mode".to_owned(), &format!("mode: {}", mode.as_str()), NO_SERVER, help);
        }
    }

    /// A mapping is warned about member by member.
    fn check_model(&mut self) {
        let keys: Vec<String> = match self.member("model") {
            None => return,
            Some(Value::Object(members)) => members.keys().take(MAX_ENTRIES).cloned().collect(),
            Some(_) => Vec::new(),
        };
        if keys.is_empty() {
            return self.warn_inert("model".to_owned(), "model", CLIENT_DECIDES, REMOVE);
        }
        for key in keys {
            let field = format!("model.{}", crate::inputs::shortened(&key));
            self.warn_inert(field.clone(), &field, CLIENT_DECIDES, REMOVE);
        }
    }

    fn warn_inert(&mut self, field: String, what: &str, why: &str, help: &str) {
        let message = format!("{what} has no effect: {why}");
        self.report(Finding::warned(ProblemKind::FieldHasNoEffect, field, message, help));
    }
}

#[cfg(test)]
mod tests {
    use super::INERT;
    use crate::load::tests::load_text;
    use crate::problem::{ProblemKind, Profile};

    /// Fields that a load warns about as without effect, in order of their lines.
    fn warned(lines: &str, profile: Profile) -> Vec<String> {
        let loaded = load_text(&format!("---\nname: demo\ndescription: d\n{lines}\n---\nB"), profile);
        let inert = loaded
            .problems
            .into_iter()
            .filter(|problem| problem.kind == ProblemKind::FieldHasNoEffect);
        inert
            .map(|problem| {
                assert!(!problem.is_error(), "{problem}");
                assert!(problem.line.is_some_and(|line| line > 3), "{problem}");
                assert!(problem.message.starts_with(&problem.field), "{problem}");
                problem.field
            })
            .collect()
    }

    #[test]
    fn every_setting_without_effect_is_warned_about_by_its_name() {
        for inert in &INERT {
            for profile in [Profile::Load, Profile::Strict] {
                assert_eq!(warned(&format!("{}: 1", inert.key), profile), [inert.key]);
            }
            assert!(warned(&format!("{}:", inert.key), Profile::Load).is_empty());
        }
        for (lines, fields) in [
            ("model: gpt-5-mini", vec!["model"]),
            (
                "model:\n  temperature: 0.2\n  max_tokens: 2000",
                vec!["model.temperature", "model.max_tokens"],
            ),
            ("model: {}", vec!["model"]),
            ("mode: script\nrun: ./x", vec!["mode", "run"]),
            ("mode: static-file\nserve: page.html", vec!["mode", "serve"]),
            ("mode: llm\nprovider: openai\nmodel: m", vec!["provider", "model"]),
            ("mode: llm", vec![]),
            ("mode: auto", vec![]),
            ("timeout_ms: 9000", vec![]),
            ("tool_env: [KEY]", vec![]),
            (
                "license: MIT\ncompatibility: Python\nmetadata: {temperature: 1}",
                vec![],
            ),
        ] {
            assert_eq!(warned(lines, Profile::Load), fields, "{lines}");
        }
    }
}
