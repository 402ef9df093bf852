//! Activation, version and sandbox settings of a skill.

use serde_json::Value;

use super::reader::list_of;
use super::reading::Fields;
use crate::finding::Finding;
use crate::husk;
use crate::inputs::{self, boolean};
use crate::model::{ActivationMode, SandboxRequest};
use crate::problem::ProblemKind;
use crate::semver::Version;

/// Largest sandbox time that a frontmatter can ask for, seconds. Runtimes cap it far lower.
const MAX_TIMEOUT_SECONDS: u64 = 86_400;

impl Fields<'_> {
    /// Mode and tags: `activation` (word or mapping), else `mode` with a value of OmniRoute, else `enabled: false`.
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
        if let Some(word) = word {
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
        }
        let tags = nested.or_else(|| self.member("tags").or_else(|| self.metadata("tags")).cloned());
        (mode, tags.map(|tags| list_of(&tags)).unwrap_or_default())
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
            if wanted.parse::<Version>().is_err() {
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
        self.report(Finding::refused(
            ProblemKind::VersionInvalid,
            field,
            message,
            "write three numbers such as 1.4.0",
        ));
        None
    }

    pub(super) fn positive(&mut self, field: &str, value: Option<Value>) -> Option<u64> {
        let value = value.filter(|value| !value.is_null())?;
        let number = value.as_u64().filter(|number| *number > 0);
        if number.is_none() {
            let message = format!("{field} must be a positive whole number; it is left out");
            self.report(Finding::refused(
                ProblemKind::FieldInvalid,
                field,
                message,
                "correct it",
            ));
        }
        number
    }

    /// The manifest's requests, and the frontmatter's `timeout_ms` where the manifest sets none.
    pub(super) fn sandbox(&mut self, wanted: SandboxRequest) -> SandboxRequest {
        let timeout = self.positive("timeout_ms", self.member("timeout_ms").cloned());
        let seconds = timeout.map(|millis| millis.div_ceil(1000).min(MAX_TIMEOUT_SECONDS));
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
