//! Create, read and update as decisions over values: what is stored, or which error is answered.

use std::collections::BTreeSet;

use serde_json::Value;

use super::document::{AgentFlowSkill, Frontmatter, check_size, parse, read};
use crate::finding::Finding;
use crate::inputs::is_falsy;
use crate::names;
use crate::template;

/// Error classes. The status comes from the class, never from words of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// 400.
    Invalid,
    /// 404.
    NotFound,
    /// 409.
    Conflict,
}

/// An operation that failed: body `{"detail": {"field", "message"}}`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Class.
    pub status: Status,
    /// The field that is wrong.
    pub field: String,
    /// For the client.
    pub message: String,
    /// Undeclared placeholder names, sorted; else empty.
    pub names: Vec<String>,
}

impl ApiError {
    /// An error about one field.
    pub fn new(status: Status, field: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            field: field.to_owned(),
            message: message.into(),
            names: Vec::new(),
        }
    }
}

impl From<Finding> for ApiError {
    fn from(finding: Finding) -> Self {
        Self::new(Status::Invalid, &finding.field, finding.message)
    }
}

/// The skill that a create stores. `taken`: the skill that has this name already, in whatever case.
pub fn create(
    name: &str,
    content: &str,
    user_id: Option<&str>,
    taken: Option<&str>,
) -> Result<AgentFlowSkill, ApiError> {
    check_name(name)?;
    check_size(content)?;
    if let Some(taken) = taken {
        let message =
            format!("Skill name '{name}' conflicts with existing skill '{taken}' (names are case-insensitive)");
        return Err(ApiError::new(Status::Conflict, "name", message));
    }
    let frontmatter = parse(content)?;
    // A key that is there, even empty, is the author's word.
    let has_owner = frontmatter.members.contains_key("user_id");
    let mut skill = checked(name, frontmatter)?;
    if !has_owner {
        skill.user_id = user_id.filter(|user| !user.is_empty()).map(str::to_owned);
    }
    Ok(skill)
}

/// The skill that an update stores. `exists` says whether the name is in the store.
pub fn update(name: &str, exists: bool, content: &str) -> Result<AgentFlowSkill, ApiError> {
    check_size(content)?;
    check_name(name)?;
    if !exists {
        return Err(not_found(name));
    }
    checked(name, parse(content)?)
}

/// A stored skill. Placeholders are not checked: files may come from elsewhere.
pub fn get(name: &str, content: Option<&str>) -> Result<AgentFlowSkill, ApiError> {
    check_name(name)?;
    let frontmatter = parse(content.ok_or_else(|| not_found(name))?)?;
    let written = frontmatter_name(&frontmatter);
    if let Some(written) = written.filter(|written| written != name) {
        let message = format!("Skill name mismatch: folder name '{name}' does not match frontmatter name '{written}'");
        return Err(ApiError::new(Status::Invalid, "name", message));
    }
    build(name, frontmatter)
}

/// Whether every placeholder of a prompt is declared.
pub fn check_placeholders(prompt: &str, declared: &BTreeSet<&str>) -> Result<(), ApiError> {
    let names: Vec<String> = template::undeclared(prompt, declared)
        .into_iter()
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let message = format!(
        "Undeclared placeholders in prompt: {}. Add them to inputs or remove them.",
        names.join(", ")
    );
    Err(ApiError {
        names,
        ..ApiError::new(Status::Invalid, "prompt", message)
    })
}

/// Name and content of a POST body.
pub fn parse_create_body(body: &Value) -> Result<(&str, &str), ApiError> {
    let text = |field: &str| {
        let missing = || ApiError::new(Status::Invalid, field, format!("{field} must be text"));
        body.get(field).and_then(Value::as_str).ok_or_else(missing)
    };
    let (name, content) = (text("name")?, text("content")?);
    check_name(name)?;
    if content.is_empty() {
        return Err(ApiError::new(Status::Invalid, "content", "Skill content is empty"));
    }
    Ok((name, content))
}

/// Whether a name is legal in this API.
pub fn check_name(name: &str) -> Result<(), ApiError> {
    names::check(name).map_err(|kind| ApiError::new(Status::Invalid, "name", names::rule(kind)))
}

/// No skill that the caller sees has this name.
pub fn not_found(name: &str) -> ApiError {
    ApiError::new(Status::NotFound, "name", format!("Skill '{name}' not found"))
}

/// The name that is written, if one is. A list or mapping is no name of any skill, so its JSON stands for it.
fn frontmatter_name(frontmatter: &Frontmatter) -> Option<String> {
    let written = frontmatter.members.get("name").filter(|name| !is_falsy(name))?;
    Some(template::text_of(written))
}

/// What create and update demand of a content.
fn checked(name: &str, frontmatter: Frontmatter) -> Result<AgentFlowSkill, ApiError> {
    if let Some(written) = frontmatter_name(&frontmatter).filter(|written| written != name) {
        let message = format!("Frontmatter name '{written}' does not match requested name '{name}'");
        return Err(ApiError::new(Status::Invalid, "name", message));
    }
    let is_empty = frontmatter.members.is_empty();
    let (skill, findings) = read(name, frontmatter);
    let of_inputs = |finding: &Finding| finding.field.starts_with("inputs");
    refuse(findings.iter().filter(|finding| of_inputs(finding)))?;
    let declared = skill.inputs.iter().flatten().map(|input| input.name.as_str()).collect();
    check_placeholders(&skill.prompt, &declared)?;
    demand_frontmatter(is_empty)?;
    refuse(&findings)?;
    Ok(skill)
}

/// A skill needs frontmatter, and every field within its limits.
fn build(name: &str, frontmatter: Frontmatter) -> Result<AgentFlowSkill, ApiError> {
    demand_frontmatter(frontmatter.members.is_empty())?;
    let (skill, findings) = read(name, frontmatter);
    refuse(&findings)?;
    Ok(skill)
}

fn demand_frontmatter(is_empty: bool) -> Result<(), ApiError> {
    let missing = || ApiError::new(Status::Invalid, "frontmatter", "Skill frontmatter is required");
    if is_empty { Err(missing()) } else { Ok(()) }
}

fn refuse<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Result<(), ApiError> {
    match findings.into_iter().find(|finding| finding.is_refused()) {
        Some(finding) => Err(finding.clone().into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undeclared_placeholder_is_refused_on_create_but_not_on_get() {
        let content = "---\nname: a\n---\n{{my-var}}";
        let error = create("a", content, None, None).unwrap_err();
        assert_eq!(
            (error.field.as_str(), error.names.as_slice()),
            ("prompt", ["my-var".to_owned()].as_slice())
        );
        assert!(get("a", Some(content)).is_ok());
    }

    #[test]
    fn what_counts_as_nothing_in_python_is_as_if_it_was_not_written() {
        for nothing in ["", "''", "0", "0.0", "false", "[]", "{}", "null"] {
            let content =
                format!("---\nname: {nothing}\ndescription: {nothing}\ninputs: {nothing}\nlicense: x\n---\nB");
            let made = create("a", &content, None, None).unwrap();
            assert_eq!((&*made.description, made.inputs), ("a", None), "{nothing}");
            let content = format!("---\ninputs:\n- name: {nothing}\n- name: i\n  label: {nothing}\n---\n{{{{i}}}}");
            let inputs = create("a", &content, None, None).unwrap().inputs.unwrap();
            let inputs: Vec<_> = inputs.iter().map(|input| (&*input.name, &*input.label)).collect();
            assert_eq!(inputs, [("i", "i")], "{nothing}");
        }
        for something in ["1", "true", "[a]"] {
            let content = format!("---\ndescription: {something}\n---\nB");
            assert_eq!(create("a", &content, None, None).unwrap_err().field, "description");
        }
    }

    #[test]
    fn the_first_of_several_errors_is_that_of_the_other_system() {
        let large = format!("---\nname: a\n---\n{}", "x".repeat(60_000));
        for (error, expected) in [
            (update("A", false, &large), (Status::Invalid, "content")),
            (update("a", false, &large), (Status::Invalid, "content")),
            (update("A", false, "---\nname: b\n---\nB"), (Status::Invalid, "name")),
            (update("a", false, ""), (Status::NotFound, "name")),
            (update("a", true, "{{x}}"), (Status::Invalid, "prompt")),
            (update("a", true, "x"), (Status::Invalid, "frontmatter")),
            (
                update("a", true, "---\ndescription: 1\n---\n{{x}}"),
                (Status::Invalid, "prompt"),
            ),
            (create("A", &large, None, Some("a")), (Status::Invalid, "name")),
            (create("a", &large, None, Some("a")), (Status::Invalid, "content")),
        ] {
            let error = error.unwrap_err();
            assert_eq!((error.status, &*error.field), expected, "{error}");
        }
    }

    #[test]
    fn a_name_that_is_no_text_is_not_the_name_that_was_asked_for() {
        for written in ["[a]", "[other]", "{a: a}"] {
            let content = format!("---\nname: {written}\n---\nB");
            for refused in [
                create("a", &content, None, None),
                update("a", true, &content),
                get("a", Some(&content)),
            ] {
                let error = refused.unwrap_err();
                assert_eq!((error.status, &*error.field), (Status::Invalid, "name"), "{written}");
            }
        }
    }

    #[test]
    fn a_block_text_at_the_end_of_the_frontmatter_has_no_line_end() {
        for (yaml, expected) in [
            ("name: a\ndescription: |\n  x\n  y", "x\ny"),
            ("name: a\ndescription: |+\n  x\n  y\n\n", "x\ny"),
            ("name: a\ndescription: >\n  x\n  y", "x y"),
            ("description: |\n  x\n  y\nname: a", "x\ny\n"),
            ("name: a\ndescription: \"x\\n\"", "x\n"),
        ] {
            let content = format!("---\n{yaml}\n---\nB");
            assert_eq!(
                create("a", &content, None, None).unwrap().description,
                expected,
                "{yaml}"
            );
        }
    }

    #[test]
    fn the_owner_is_set_once() {
        let create = |content: &str| create("a", content, Some("7"), None).unwrap().user_id;
        assert_eq!(create("---\nname: a\n---\nB").as_deref(), Some("7"));
        assert_eq!(create("---\nname: a\nuser_id: '8'\n---\nB").as_deref(), Some("8"));
    }
}
