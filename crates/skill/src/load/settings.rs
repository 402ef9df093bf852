//! Activation, version and sandbox settings of a skill.

use std::time::Duration;

use knack_vocabulary::defaults::MAX_OUTPUT_BYTES;
use serde_json::Value;

use super::reader::{DISABLE_MODEL_INVOCATION, list_of};
use super::reading::Fields;
use crate::finding::Finding;
use crate::husk;
use crate::inputs::{self, boolean};
use crate::model::{ActivationMode, SandboxRequest};
use crate::problem::ProblemKind;
use crate::registration::demand_version;
use crate::semver::Version;

/// Largest sandbox time that a frontmatter can ask for, seconds. Runtimes cap it far lower.
const MAX_TIMEOUT_SECONDS: f64 = 86_400.0;

impl Fields<'_> {
    /// Mode and tags: `activation` (word or mapping), else `mode` with a value of OmniRoute, else `enabled: false`, else
    /// `disable-model-invocation: true`.
    pub(super) fn activation(&mut self) -> (ActivationMode, Vec<String>) {
        let activation = self.member("activation").cloned();
        let (word, field, nested) = match &activation {
            Some(Value::Object(members)) => (
                members.get("mode").cloned(),
                "activation.mode",
                members.get("tags").cloned(),
            ),
            Some(word) => (Some(word.clone()), "activation", None),
            None => (self.member("mode").cloned(), "mode", None),
        };
        let word = word.filter(|word| field != "mode" || word.as_str().and_then(husk::Mode::from_word).is_none());
        let mut mode = ActivationMode::default();
        let by_users = self.is_started_by_users();
        if let Some(word) = word {
            if by_users {
                let message =
                    format!("{DISABLE_MODEL_INVOCATION} has no effect: {field} says when the skill reaches models");
                let help = "remove one of the two; OnRequest is a skill that users name and models do not see";
                let kind = ProblemKind::FieldHasNoEffect;
                self.report(Finding::warned(kind, DISABLE_MODEL_INVOCATION, message, help));
            }
            if let Some(known) = mode_of(&word) {
                mode = known;
            } else {
                let message = format!(
                    "unknown activation {}; Listed is used",
                    inputs::shortened(&word.to_string())
                );
                let help = "write Always, Listed, Auto, OnRequest or Never";
                self.report(Finding::refused(ProblemKind::FieldInvalid, field, message, help));
            }
        } else if self.member("enabled").and_then(boolean) == Some(false) {
            mode = ActivationMode::Never;
        } else if by_users {
            mode = ActivationMode::OnRequest;
        }
        let tags = nested.or_else(|| self.member("tags").or_else(|| self.metadata("tags")).cloned());
        (mode, tags.map(|tags| list_of(&tags)).unwrap_or_default())
    }

    fn is_started_by_users(&mut self) -> bool {
        let Some(value) = self.member(DISABLE_MODEL_INVOCATION) else {
            return false;
        };
        let known = boolean(value);
        if known.is_none() {
            let message = format!("{DISABLE_MODEL_INVOCATION} must be true or false; it is left out");
            let help = "write true for a skill that only users start";
            let kind = ProblemKind::FieldInvalid;
            self.report(Finding::refused(kind, DISABLE_MODEL_INVOCATION, message, help));
        }
        known == Some(true)
    }

    /// The version: the manifest's and the frontmatter's must agree.
    pub(super) fn version(&mut self, wanted: Option<&str>) -> Option<String> {
        let node = self.document.node.as_ref();
        let nested = || node?.get("metadata")?.get("version")?.plain_text(&self.document.yaml);
        let (written, field) = match self.document.written("version") {
            Some(version) => (Some(version), "version"),
            None => (nested(), "metadata.version"),
        };
        let written = written
            .map(|version| version.trim().to_owned())
            .filter(|version| !version.is_empty());
        if let Some(wanted) = wanted {
            if demand_version(wanted).is_err() {
                let message = format!("spec.version {wanted:?} is not a version");
                self.refuse(
                    ProblemKind::VersionInvalid,
                    "spec.version",
                    message,
                    "write three numbers such as 1.4.0",
                );
            } else if let Some(written) = written.as_deref().filter(|written| *written != wanted) {
                let message = format!("the frontmatter's version {written} differs from spec.version {wanted}");
                self.refuse(
                    ProblemKind::VersionMismatch,
                    field,
                    message,
                    "make the two equal, or set one of them only",
                );
            }
            return Some(wanted.to_owned());
        }
        let written = written?;
        if written.parse::<Version>().is_ok() {
            return Some(written);
        }
        let message = format!(
            "version {:?} is not a version; it is left out",
            inputs::shortened(&written)
        );
        let kind = ProblemKind::VersionInvalid;
        let help = "write three numbers such as 1.4.0";
        // `metadata` is free in the Agent Skills specification, whose own example has version "1.0" there.
        self.report(if field == "version" {
            Finding::refused(kind, field, message, help)
        } else {
            Finding::warned(kind, field, message, help)
        });
        None
    }

    /// Whole seconds of `timeout_ms`, which HUSK takes with a fraction too.
    fn timeout_seconds(&mut self) -> Option<u64> {
        let value = self.member("timeout_ms").filter(|value| !value.is_null())?;
        let millis = value.as_f64().filter(|millis| *millis > 0.0);
        let time =
            millis.and_then(|millis| Duration::try_from_secs_f64((millis / 1_000.0).min(MAX_TIMEOUT_SECONDS)).ok());
        if time.is_none() {
            let message = "timeout_ms must be a positive number; it is left out";
            self.report(Finding::refused(
                ProblemKind::FieldInvalid,
                "timeout_ms",
                message,
                "write milliseconds, such as 60000",
            ));
        }
        time.map(|time| (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1))
    }

    /// The manifest's requests, and the frontmatter's `timeout_ms` where the manifest sets none.
    pub(super) fn sandbox(&mut self, wanted: SandboxRequest) -> SandboxRequest {
        if let Some(bytes) = wanted.max_output_bytes.filter(|bytes| *bytes > MAX_OUTPUT_BYTES) {
            let message = format!(
                "spec.sandbox.maxOutputBytes {bytes} is above the highest cap, which is used: {MAX_OUTPUT_BYTES}"
            );
            self.report(Finding::warned(
                ProblemKind::FieldHasNoEffect,
                "spec.sandbox.maxOutputBytes",
                message,
                "lower it, or write more output to files",
            ));
        }
        let seconds = self.timeout_seconds();
        SandboxRequest {
            timeout_seconds: wanted.timeout_seconds.or(seconds),
            ..wanted
        }
    }
}

/// Words of Knack and of OmniRoute (`on`, `off`, `auto`; also where a YAML 1.1 writer made booleans of them).
fn mode_of(word: &Value) -> Option<ActivationMode> {
    match word {
        Value::Bool(true) => Some(ActivationMode::Always),
        Value::Bool(false) => Some(ActivationMode::Never),
        Value::String(word) => ActivationMode::from_word(word),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::ActivationMode as M;
    use crate::load::tests::load_text;
    use crate::problem::Profile;

    #[test]
    fn a_skill_that_models_may_not_start_is_for_users_alone() {
        let end = "OnRequest is a skill that users name and models do not see)";
        for (lines, expected, told) in [
            ("disable-model-invocation: true", M::OnRequest, None),
            ("disable-model-invocation: false", M::Listed, None),
            ("disable-model-invocation:", M::Listed, None),
            ("enabled: false\ndisable-model-invocation: true", M::Never, None),
            ("mode: llm\ndisable-model-invocation: yes", M::OnRequest, None),
            (
                "activation: Always\ndisable-model-invocation: true",
                M::Always,
                Some(format!(
                    "SKILL.md:5: disable-model-invocation: disable-model-invocation has no effect: activation says when the \
                     skill reaches models (remove one of the two; {end}"
                )),
            ),
            (
                "disable-model-invocation: [x]",
                M::Listed,
                Some(
                    "SKILL.md:4: disable-model-invocation: disable-model-invocation must be true or false; it is left out \
                     (write true for a skill that only users start)"
                        .to_owned(),
                ),
            ),
        ] {
            let loaded = load_text(&format!("---\nname: demo\ndescription: d\n{lines}\n---\nB"), Profile::Load);
            let problems: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
            assert_eq!(problems, Vec::from_iter(told), "{lines}");
            assert_eq!(loaded.skill.unwrap().activation, expected, "{lines}");
        }
    }

    /// The specification does not know these keys, and nothing reads them under `metadata`.
    #[test]
    fn the_strict_profile_refuses_keys_of_other_systems_and_says_what_to_do() {
        for (line, cure) in [
            (
                "disable-model-invocation: true",
                "leave activation, mode, enabled and disable-model-invocation out",
            ),
            (
                "dependencies: python>=3.8, pandas>=1.5.0",
                "write packages of Python into requirements.txt",
            ),
        ] {
            let loaded = load_text(
                &format!("---\nname: demo\ndescription: d\n{line}\n---\nB"),
                Profile::Strict,
            );
            assert!(loaded.skill.is_none(), "{line}");
            let problem = loaded.problems.iter().find(|problem| problem.is_error()).unwrap();
            assert!(problem.help.starts_with(cure), "{problem}");
        }
    }
}
