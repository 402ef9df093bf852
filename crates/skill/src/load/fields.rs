//! The fields of a frontmatter of any dialect, into a skill.

use serde_json::{Map, Value};

use super::document::Document;
use super::functions::{FunctionSource, Functions};
use super::inert::PACKAGES_KEY;
use super::reader::USED_KEYS;
use super::reading::Fields;
use super::types::LoadInput;
use crate::functions::ReadFunctions;
use crate::model::{Packages, Skill};
use crate::problem::Problem;
use crate::tree;

/// All fields of a frontmatter, as they were read.
pub(super) struct FieldsResult {
    pub(super) skill: Skill,
    pub(super) problems: Vec<Problem>,
    pub(super) functions: Functions,
}

/// Reads all fields; those that cannot be used are left out and reported.
pub(super) fn read(document: Document, mut input: LoadInput, functions: Option<ReadFunctions>) -> FieldsResult {
    let mut reader = Fields {
        document: &document,
        profile: input.profile,
        problems: Vec::new(),
    };
    reader.check_size();
    reader.check_unknown_keys();
    reader.check_inert_keys();
    let title = reader.title(&input.id.name);
    let description = reader.description(&title);
    let (mode, own_tags) = reader.activation();
    let version = reader.version(input.overrides.version.as_deref());
    let inputs = reader.inputs(&input.overrides);
    let source = FunctionSource {
        files: &input.files,
        read: functions,
        from_spec: input.overrides.tools.is_some(),
    };
    let (tools, functions) = reader.tools(&input, &source);
    let env = reader.env();
    let ids = reader.ids(input.overrides.ids.take());
    let sandbox = reader.sandbox(input.overrides.sandbox.unwrap_or_default());
    let activation = input.overrides.activation.unwrap_or(mode);
    reader.check_unfilled(activation, &inputs);
    let tags = input.overrides.tags.unwrap_or(own_tags);
    let install_count = reader.metadata("installCount").and_then(Value::as_u64).unwrap_or(0);
    let problems = reader.problems;
    let skill = Skill {
        digest: tree::digest(&input.files),
        id: input.id,
        title,
        description,
        version,
        dialect: document.dialect,
        activation,
        tags: comparable(&tags),
        install_count,
        ids,
        inputs,
        tools,
        env,
        extra: extra(&document.members),
        files: input.files,
        sandbox,
        packages: Packages::default(),
        requirements: input.overrides.packages,
        object_ids: Vec::new(),
        upload: None,
        withheld: Vec::new(),
        body: document.body,
        document: document.text,
    };
    FieldsResult {
        skill,
        problems,
        functions,
    }
}

/// Tags in the form in which they are compared.
fn comparable(tags: &[String]) -> Vec<String> {
    let tags = tags.iter().map(|tag| tag.trim().to_lowercase());
    tags.filter(|tag| !tag.is_empty()).collect()
}

/// Members that no field of the skill takes.
fn extra(members: &Map<String, Value>) -> Map<String, Value> {
    let kept = ["metadata", "license", "compatibility", PACKAGES_KEY];
    let is_extra = |key: &str| !USED_KEYS.contains(&key) || kept.contains(&key);
    members
        .iter()
        .filter(|(key, _)| is_extra(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
