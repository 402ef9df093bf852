//! Skills for tests: what a test does not set is the simplest there is.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, json};

use crate::catalog::{Catalog, CatalogSettings, ModelCode, Node};
use crate::model::{
    ActivationMode, CallForm, Dialect, Input, InputKind, Packages, SandboxRequest, Skill, SkillFile, SkillRef, Tool,
};
use crate::risk::Risk;

/// A skill `default/<name>` without any content.
pub fn mk_empty_skill(name: &str, activation: ActivationMode) -> Skill {
    Skill {
        id: mk_ref("default", name),
        title: name.to_owned(),
        description: String::new(),
        version: None,
        dialect: Dialect::AgentSkills,
        document: String::new(),
        body: String::new(),
        activation,
        tags: Vec::new(),
        install_count: 0,
        ids: Vec::new(),
        inputs: Vec::new(),
        tools: Vec::new(),
        env: Vec::new(),
        extra: Map::new(),
        files: BTreeMap::new(),
        digest: String::new(),
        sandbox: SandboxRequest::default(),
        packages: Packages::default(),
        requirements: None,
        object_ids: Vec::new(),
        upload: None,
        withheld: Vec::new(),
    }
}

/// A skill `default/<name>` with a body and SKILL.md only.
pub fn mk_skill(name: &str, activation: ActivationMode) -> Skill {
    let body = format!("Instructions of {name}.");
    Skill {
        description: format!("Does {name} things."),
        document: body.clone(),
        body,
        files: BTreeMap::from([("SKILL.md".to_owned(), mk_file(b"body"))]),
        digest: format!("digest-of-{name}"),
        ..mk_empty_skill(name, activation)
    }
}

/// The name of a skill.
pub fn mk_ref(namespace: &str, name: &str) -> SkillRef {
    SkillRef {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// A file that is not executable.
pub fn mk_file(bytes: &[u8]) -> SkillFile {
    SkillFile {
        bytes: bytes.into(),
        executable: false,
    }
}

/// An input of one line.
pub fn mk_input(name: &str, required: bool) -> Input {
    Input {
        name: name.to_owned(),
        label: name.to_owned(),
        kind: InputKind::Text,
        required,
        default: None,
        description: None,
    }
}

/// A tool `python3 <name>.py` with one required text argument `path`.
pub fn mk_tool(name: &str) -> Tool {
    Tool {
        name: name.to_owned(),
        description: format!("Runs {name}."),
        command: vec!["python3".to_owned(), format!("{name}.py")],
        parameters: Vec::new(),
        input_schema: json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}),
        env: Vec::new(),
        hidden: false,
        call: CallForm::Words,
        risk: Risk::Safe,
        config: Vec::new(),
    }
}

/// Settings that limit nothing.
pub fn mk_settings() -> CatalogSettings {
    CatalogSettings {
        revision: "r1".to_owned(),
        max_activation: ActivationMode::Always,
        model_code: ModelCode::Allow,
        max_risk: Risk::Critical,
        node: Node::Absent,
        max_listing_tokens: knack_vocabulary::defaults::MAX_LISTING_TOKENS,
        models: Vec::new(),
        min_max_tokens: knack_vocabulary::defaults::MIN_MAX_TOKENS,
        pins: Vec::new(),
        config: crate::catalog::ConfigValues::Here(Vec::new()),
        unserved: Vec::new(),
    }
}

/// A catalog of these skills, with those settings.
pub fn mk_catalog(skills: impl IntoIterator<Item = Skill>) -> Catalog {
    Catalog::compile(skills.into_iter().map(Arc::new).collect(), mk_settings())
}
