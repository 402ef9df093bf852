//! The status of a skill from what was made of it. Pure.

use k8s_openapi::jiff::Timestamp;
use knack_api::SkillStatus;
use knack_api::skill_status::{
    ArtifactStatus, ConfigMapStatus, InputStatus, STATUS_TOOL_ENV_BYTES, STATUS_TOOL_ENV_MAX, STATUS_TOOLS_MAX,
    TokenStatus, ToolStatus,
};
use knack_skill::call::grantable_env;
use knack_skill::model::{Skill, Tool};
use knack_skill::risk::Risk;
use knack_skill::texts;
use knack_skill::tool_env::is_operational;
use knack_vocabulary::ANNOTATION_REQUESTED_AT;
use kube::core::ObjectMeta;

use super::deliver::Delivery;
use super::judge::{JUDGE, ValidatedSkill};
use super::outline::Outline;
use super::verdicts::Verdicts;
use crate::controller::conditions::{Verdict, VerdictState, conditions};
use crate::controller::reason::ConditionReason;
use crate::controller::settings::DESCRIPTION_MAX;
use crate::counted::counted;
use crate::shortened::cut;

/// Most warnings that a condition lists.
const WARNINGS_MAX: usize = 3;

/// The values that a tool asks for and that its runs can get; a program gets the usual names without asking.
fn asked_env(skill: &Skill, tool: &Tool) -> Vec<String> {
    let asked = grantable_env(skill, tool).into_iter();
    asked
        .filter(|name| !is_operational(name) && name.len() <= STATUS_TOOL_ENV_BYTES)
        .take(STATUS_TOOL_ENV_MAX)
        .collect()
}

/// A skill's status without conditions and runtimes.
pub(super) fn content(validated: &ValidatedSkill, config_maps: Vec<ConfigMapStatus>) -> SkillStatus {
    let (skill, artifact) = (validated.skill(), validated.artifact());
    let tools = skill.tools.iter().take(STATUS_TOOLS_MAX).map(|tool| ToolStatus {
        name: cut(&tool.name, 64),
        path: tool
            .command
            .iter()
            .find(|part| skill.files.contains_key(*part))
            .cloned(),
        risk: (tool.risk > Risk::Safe).then(|| tool.risk.into()),
        env: asked_env(skill, tool),
        config: tool.config.iter().map(Into::into).collect(),
    });
    let inputs = skill.inputs.iter().take(64).map(|input| InputStatus {
        name: input.name.clone(),
        required: input.required,
    });
    SkillStatus {
        name: Some(cut(&skill.title, 256)),
        description: Some(cut(&skill.description, DESCRIPTION_MAX)),
        version: skill.version.as_deref().map(|version| cut(version, 64)),
        activation: Some(skill.activation.into()),
        artifact: Some(ArtifactStatus {
            revision: artifact.revision.clone(),
            digest: artifact.digest.clone(),
            size: number(artifact.size),
            file_count: number(artifact.file_count),
        }),
        config_maps,
        judged_by: Some(JUDGE.to_owned()),
        tools: tools.collect(),
        inputs: inputs.collect(),
        ids: skill.ids.clone(),
        packages: validated.packages().cloned(),
        tokens: Some(TokenStatus {
            listing: number(texts::tokens(skill.id.name.len() + skill.description.len())),
            body: number(texts::tokens(skill.body.len())),
        }),
        // These fields are of each reconcile, not of the content: `status` sets them. Listed in full (no `..`), so that
        // a new member is no oversight.
        observed_generation: None,
        last_handled_reconcile_at: None,
        conditions: Vec::new(),
        earlier: Vec::new(),
        runtimes: Vec::new(),
        // Written by `last_uses` alone.
        last_used_time: None,
    }
}

fn number(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// How a delivered skill reads.
pub(super) fn delivered(validated: &ValidatedSkill, made: &Delivery) -> Verdict {
    let (artifact, warnings) = (validated.artifact(), validated.warnings());
    let mut message = format!(
        "revision {} delivered: {}, {} bytes",
        artifact.revision,
        counted(artifact.file_count, "file"),
        artifact.size
    );
    if !made.replaced.is_empty() {
        message.push_str(&format!("; {}", replaced(&made.replaced).message));
    }
    if !warnings.is_empty() {
        let shown: Vec<_> = warnings.iter().take(WARNINGS_MAX).cloned().collect();
        message.push_str(&format!(
            "; {}: {}",
            counted(warnings.len(), "warning"),
            shown.join("; ")
        ));
        if warnings.len() > WARNINGS_MAX {
            message.push_str("; `knack skill validate` lists all");
        }
    }
    Verdict::new(VerdictState::Ready, ConditionReason::Delivered, message)
}

/// Reports that the Skill's ConfigMaps were replaced by others: an Event, and a text in the condition until the next revision.
pub(super) fn replaced(names: &[String]) -> Verdict {
    let text = format!(
        "ConfigMap {} had been changed; the controller deleted it and created it again",
        names.join(", ")
    );
    Verdict::new(VerdictState::Retrying, ConditionReason::ContentReplaced, text)
}

/// A failure beside a last good revision says that the latter still serves.
pub(super) fn with_last_good(mut verdict: Verdict, before: &SkillStatus) -> Verdict {
    if let Some(artifact) = &before.artifact
        && matches!(verdict.state, VerdictState::Stalled | VerdictState::Retrying)
    {
        verdict.message = format!(
            "{}. Revision {} stays in service until this is fixed",
            cut(&verdict.message, 1_800),
            artifact.revision
        );
    }
    verdict
}

/// The whole status: new content, or the last good one; conditions; what runtimes say.
pub(super) fn status(
    outline: &Outline,
    content: Option<SkillStatus>,
    verdict: &Verdict,
    verdicts: &Verdicts,
    now: Timestamp,
) -> SkillStatus {
    let before = outline.before();
    let generation = outline.meta().generation.unwrap_or_default();
    let made = conditions(&before.conditions, generation, verdict, Some(&verdicts.acceptance), now);
    // Without a rest: whether a new member is of the content, or of each reconcile, is decided here.
    let SkillStatus {
        observed_generation: _,
        last_handled_reconcile_at: _,
        conditions: _,
        name,
        description,
        version,
        activation,
        artifact,
        config_maps,
        judged_by,
        tools,
        inputs,
        ids,
        tokens,
        packages,
        earlier: _,
        runtimes: _,
        last_used_time: _,
    } = content.unwrap_or_else(|| before.clone());
    SkillStatus {
        observed_generation: Some(generation),
        last_handled_reconcile_at: requested_at(outline.meta()),
        conditions: made,
        name,
        description,
        version,
        activation,
        artifact,
        config_maps,
        judged_by,
        tools,
        inputs,
        ids,
        tokens,
        packages,
        earlier: verdicts.earlier.clone(),
        runtimes: verdicts.listed.clone(),
        // Written by `last_uses` alone.
        last_used_time: None,
    }
}

/// The status where the API server takes no other one: as it was, with conditions that say why.
pub(super) fn unreported(outline: &Outline, verdict: &Verdict, verdicts: &Verdicts, now: Timestamp) -> SkillStatus {
    let before = outline.before();
    let generation = outline.meta().generation.unwrap_or_default();
    SkillStatus {
        observed_generation: Some(generation),
        last_handled_reconcile_at: requested_at(outline.meta()),
        conditions: conditions(&before.conditions, generation, verdict, Some(&verdicts.acceptance), now),
        ..before.clone()
    }
}

/// The value of the annotation that requests a reconcile, cut to what status holds.
pub(in crate::controller) fn requested_at(meta: &ObjectMeta) -> Option<String> {
    let annotations = meta.annotations.as_ref()?;
    Some(cut(annotations.get(ANNOTATION_REQUESTED_AT)?, 256))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use knack_skill::model::SkillFile;
    use serde_json::{Value, json};

    use super::*;
    use crate::controller::skill::judge::judge;
    use crate::sources::Files;

    /// A skill of these texts, as it is judged.
    fn skill_of(files: Vec<(String, String)>) -> (Arc<Outline>, Files) {
        let files = files.into_iter().map(|(path, text)| {
            let file = SkillFile {
                bytes: text.into_bytes().into(),
                executable: false,
            };
            (path, file)
        });
        let object = json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
            "metadata": {"name": "demo", "namespace": "n"}, "spec": {"source": {}},
        });
        let outline = Outline::of(&serde_json::from_value(object).unwrap());
        (Arc::new(outline), files.collect())
    }

    /// The bounds of a schema that a value breaks, each with its place.
    fn broken(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
        let bound = |name: &str| schema[name].as_u64().unwrap_or(u64::MAX);
        let is_beyond = match value {
            Value::String(text) => text.chars().count() as u64 > bound("maxLength"),
            Value::Array(items) => items.len() as u64 > bound("maxItems"),
            Value::Number(number) => schema["type"] == "integer" && !number.is_i64(),
            _ => false,
        };
        if is_beyond {
            found.push(path.to_owned());
        }
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            broken(&schema["items"], item, &format!("{path}[{index}]"), found);
        }
        for (name, member) in value.as_object().into_iter().flatten() {
            broken(&schema["properties"][name], member, &format!("{path}.{name}"), found);
        }
    }

    fn locked(config: &Value) -> Vec<(String, String)> {
        let python = "def f(a: int): pass\n";
        let function = |number: usize| {
            json!({"function": format!("f{number}"), "name": format!("f{number}"), "description": "d".repeat(5_000), "risk": "Safe",
                "inputSchema": {"type": "object", "properties": {}}, "config": config})
        };
        let functions: Vec<Value> = (0..70).map(function).collect();
        let lock = json!({"about": "", "format": 1,
            "files": {"tools.py": {"sha256": knack_skill::digest::sha256(python), "functions": functions}}});
        vec![
            (
                "SKILL.md".to_owned(),
                "---\nname: demo\ndescription: d\ntools: [{python: tools.py}]\n---\nbody".to_owned(),
            ),
            ("tools.py".to_owned(), python.to_owned()),
            (knack_skill::functions::LOCK_FILE.to_owned(), lock.to_string()),
        ]
    }

    fn document(members: &Value) -> (String, String) {
        let lines = members
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| format!("{key}: {value}\n"));
        (
            "SKILL.md".to_owned(),
            format!("---\n{}---\n{}", lines.collect::<String>(), "b".repeat(100_000)),
        )
    }

    /// One value beyond a bound would leave a Skill without any condition: the API server refuses the whole status.
    #[test]
    fn the_status_of_every_skill_that_loads_is_within_the_bounds_of_the_definition() {
        let schema = &knack_api::schema::schema_of("Skill").unwrap()["properties"]["status"];
        let long = |count: usize| "é".repeat(count);
        let options = |count: usize, length: usize| -> Vec<String> {
            (0..count).map(|number| format!("{number:0length$}")).collect()
        };
        let params: Vec<Value> = (0..32)
            .map(|number| json!({"name": format!("{number:064}"), "type": long(300), "minItems": 65_536, "options": options(2, 100)}))
            .collect();
        let asked: Vec<String> = (0..40)
            .map(|number| format!("{}{number}", "E".repeat(100 + number)))
            .collect();
        let tools: Vec<Value> = (0..300)
            .map(|number| json!({"name": format!("t{number}{}", "x".repeat(50)), "description": long(500), "command": ["sh", "scripts/a.sh"]}))
            .collect();
        let inputs: Vec<Value> = (0..300)
            .map(|number| json!({"name": format!("{number:064}")}))
            .collect();
        let marker = format!(
            "python_full_version < '3.11' and platform_release != '{}'",
            "x".repeat(3_000)
        );
        let requirements: String = (0..200)
            .map(|number| format!("{}{number}>=1 ; {marker}\n", "n".repeat(100)))
            .collect();
        let text = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        for (what, files, loads) in [
            ("many functions with many parameters", locked(&json!(params)), true),
            (
                "as many options as there may be",
                locked(&json!([{"name": "p", "type": "select", "options": options(64, 128)}])),
                true,
            ),
            (
                "too many options",
                locked(&json!([{"name": "p", "type": "select", "options": options(65, 2)}])),
                false,
            ),
            (
                "an option that is too long",
                locked(&json!([{"name": "p", "type": "select", "options": options(1, 129)}])),
                false,
            ),
            (
                "more entries than a number holds",
                locked(&json!([{"name": "p", "type": "list", "maxItems": u64::MAX}])),
                false,
            ),
            (
                "long texts and long lists",
                vec![
                    document(
                        &json!({"name": "demo", "description": long(1_024), "version": "1".repeat(300), "tools": tools, "tool_env": asked, "inputs": inputs,
                        "metadata": {"skill_id": options(20, 100), "title": long(500)}}),
                    ),
                    text("scripts/a.sh", "true"),
                    text("requirements.txt", &requirements),
                ],
                true,
            ),
            (
                "a declaration that is refused",
                vec![
                    document(&json!({"name": "demo", "description": "d"})),
                    text("requirements.txt", &format!("{}\n", long(4_000)).repeat(30)),
                ],
                true,
            ),
        ] {
            let (outline, files) = skill_of(files);
            let judged = judge(outline, files);
            assert_eq!(judged.is_ok(), loads, "{what}: {:?}", judged.as_ref().err());
            let Ok(validated) = judged else { continue };
            let made = serde_json::to_value(content(&validated, Vec::new())).unwrap();
            let mut found = Vec::new();
            broken(schema, &made, "status", &mut found);
            assert!(found.is_empty(), "{what}: {found:?}");
            // An object has room for 1.5 MiB.
            assert!(made.to_string().len() < 1 << 20, "{what}: {}", made.to_string().len());
        }
    }

    #[test]
    fn tools_show_the_values_that_they_ask_for_and_can_get() {
        let tool = |name: &str, command: Value, env: Value| json!({"name": name, "description": "d", "command": command, "env": env, "parameters": [{"name": "p"}]});
        let members = json!({
            "name": "demo", "description": "d", "tool_env": ["TOKEN", "HOME", "OPENAI_API_KEY"],
            "tools": [
                tool("rain", json!(["sh", "scripts/a.sh"]), json!(["REGION", "TOKEN"])),
                tool("sun", json!(["sh", "scripts/a.sh"]), json!([])),
                tool("any", json!(["sh", "-c"]), json!(["REGION"])),
            ],
        });
        let files = vec![document(&members), ("scripts/a.sh".to_owned(), "true".to_owned())];
        let (outline, files) = skill_of(files);
        let validated = judge(outline, files).unwrap();
        let asked: Vec<String> = content(&validated, Vec::new())
            .tools
            .iter()
            .map(|tool| format!("{}: {}", tool.name, tool.env.join(" ")))
            .collect();
        assert_eq!(asked, ["rain: REGION TOKEN", "sun: TOKEN", "any: "]);
    }
}
