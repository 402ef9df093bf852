//! Adapters of `skillmd.json`: the ops `husk.*`.

use std::collections::BTreeMap;

use knack_skill::yaml;
use serde_json::{Map, Value, json};

use super::args::tool_json;
use super::skillmd::failure;
use crate::facts::husk_folder::{self, FolderEntry};
use crate::facts::husk_manifest::{self, Manifest};
use crate::matching;
use crate::registry::{Compare, Failure, Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("skillmd", "husk.slug", slug),
    Op::new("skillmd", "husk.frontmatter", frontmatter),
    Op::new("skillmd", "husk.manifest", manifest).compared(Compare::Custom(same_manifest)),
    Op::new("skillmd", "husk.load_dir", load_dir).compared(Compare::Custom(same_folder)),
    Op::new("skillmd", "husk.load_route", load_route),
];

fn text<'a>(input: &'a Value, key: &str) -> &'a str {
    input[key].as_str().unwrap_or_default()
}

fn slug(input: &Value) -> Outcome {
    Ok(husk_manifest::slug(text(input, "name")).into())
}

fn frontmatter(input: &Value) -> Outcome {
    let (members, body) = husk_manifest::frontmatter(text(input, "content")).map_err(failure)?;
    Ok(json!({"frontmatter": members, "body": body}))
}

fn manifest(input: &Value) -> Outcome {
    let node = yaml::parse(text(input, "frontmatter")).map_err(|error| Failure::new(error.message))?;
    if let Some((key, _)) = node.repeated_key() {
        return Err(Failure::new(format!("key `{key}` appears twice")));
    }
    let members = node.to_json().as_object().cloned().unwrap_or_default();
    let manifest = husk_manifest::read(&members, text(input, "folder_slug")).map_err(failure)?;
    Ok(manifest_json(manifest))
}

/// Whole, and by HUSK's own name of the static file as well.
fn same_manifest(expected: &Value, actual: &Value) -> Result<(), String> {
    let mut expected = expected.clone();
    if let Some(members) = expected.as_object_mut()
        && let Some(file) = members.remove("serveFile")
    {
        members.insert("serve".to_owned(), file);
    }
    matching::check(Compare::Whole, &expected, &Ok(actual.clone()))
}

fn manifest_json(manifest: Manifest) -> Value {
    let mut json = json!({
        "name": manifest.name, "description": manifest.description, "mode": manifest.mode.as_str(),
        "argv": manifest.argv, "input": manifest.input, "output": manifest.output,
        "timeoutMs": manifest.timeout_ms, "method": manifest.method, "route": manifest.route,
        "inputMime": manifest.input_mime, "outputMime": manifest.output_mime, "serve": manifest.serve,
        "extra": manifest.extra,
    });
    if let Some(proxy) = manifest.proxy {
        json["proxy"] = json!({
            "url": proxy.url, "method": proxy.method, "headers": proxy.headers, "forwardHeaders": proxy.forward_headers,
        });
    }
    if let Some(llm) = manifest.llm {
        json["llm"] = json!({
            "provider": llm.provider, "model": llm.model, "maxTokens": llm.max_tokens,
            "maxToolRounds": llm.max_tool_rounds, "tools": llm.tools.iter().map(tool_json).collect::<Vec<_>>(),
            "toolEnv": llm.tool_env,
        });
    }
    json
}

/// Words for a SKILL.md that is none.
const BROKEN: [&str; 12] = [
    "broken",
    "invalid",
    "bad",
    "malformed",
    "missing",
    "no ",
    "without",
    "not ",
    "empty",
    "garbage",
    "wrong",
    "unclosed",
];

/// Builds the folder that a layout describes in words: `ok` is any valid SKILL.md, `key: x` one with this frontmatter.
fn load_dir(input: &Value) -> Outcome {
    let mut entries: BTreeMap<String, FolderEntry> = BTreeMap::new();
    let mut root = None;
    for (path, content) in input["layout"].as_object().unwrap_or(&Map::new()) {
        let Some(content) = content.as_str() else {
            return Err(Failure::of_adapter(format!(
                "{path}: a content that is no text: {content}"
            )));
        };
        match path.split_once('/') {
            None if path == "SKILL.md" => root = Some(document(content, "root")?),
            None => drop(entries.insert(path.clone(), FolderEntry::File)),
            Some((folder, file)) => {
                let entry = entries.entry(folder.to_owned()).or_insert(FolderEntry::Folder(None));
                if file == "SKILL.md" {
                    *entry = FolderEntry::Folder(Some(document(content, folder)?));
                }
            }
        }
    }
    let (skills, findings) = husk_folder::load_folder(root.as_deref(), &entries);
    let folders: Vec<&str> = skills
        .iter()
        .map(|skill| {
            if skill.folder.is_empty() {
                "<root>"
            } else {
                skill.folder.as_str()
            }
        })
        .collect();
    Ok(json!({"skills": folders, "errors": findings.iter().map(|finding| &finding.message).collect::<Vec<_>>()}))
}

fn document(content: &str, folder: &str) -> Result<String, Failure> {
    let is_known = content.is_empty() || content.starts_with("---") || BROKEN.iter().any(|word| content.contains(word));
    Ok(match content {
        "ok" => format!("---\nname: {folder}\ndescription: d\n---\nB"),
        lines if is_member(lines) => {
            let has = |key: &str| lines.lines().any(|line| line.starts_with(key));
            let name = if has("name:") {
                String::new()
            } else {
                format!("name: {folder}\n")
            };
            let description = if has("description:") { "" } else { "description: d\n" };
            format!("---\n{name}{description}{lines}\n---\nB")
        }
        other if is_known => other.to_owned(),
        other => {
            return Err(Failure::of_adapter(format!(
                "a SKILL.md in words that this adapter does not know: {other}"
            )));
        }
    })
}

/// Whether a text begins with `key:`.
fn is_member(text: &str) -> bool {
    let key = text.split_once(':').map(|(key, _)| key).filter(|key| !key.is_empty());
    key.is_some_and(|key| key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
}

/// A list is compared whole, a number is the length; kinds of errors are words that the message must hold.
fn same_folder(expected: &Value, actual: &Value) -> Result<(), String> {
    for (key, expected) in expected.as_object().ok_or("expected must be an object")? {
        let got = actual.get(key).and_then(Value::as_array);
        let got = got.ok_or_else(|| format!("{key}: a member that is not compared"))?;
        let same = match expected {
            Value::Number(count) => count.as_u64() == u64::try_from(got.len()).ok(),
            Value::Array(wanted) => {
                wanted.len() == got.len()
                    && wanted
                        .iter()
                        .zip(got)
                        .all(|(want, got)| match (want.as_str(), got.as_str()) {
                            (Some(want), Some(got)) if key == "errors" => got.contains(want),
                            _ => want == got,
                        })
            }
            _ => false,
        };
        if !same {
            return Err(format!("{key}: expected {expected}, got {}", actual[key]));
        }
    }
    Ok(())
}

fn load_route(input: &Value) -> Outcome {
    husk_folder::check_route(text(input, "route")).map_err(failure)?;
    Ok("ok".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_that_a_case_of_a_folder_names_is_compared() {
        let actual =
            load_dir(&json!({"layout": {"a/SKILL.md": "ok", "b/SKILL.md": "broken", "c/SKILL.md": "route: /healthz"}}))
                .unwrap();
        for (expected, holds) in [
            (json!({"skills": ["a"], "errors": 2}), true),
            (json!({"skills": 1, "errors": ["frontmatter", "collides"]}), true),
            (json!({"skills": ["a"], "errors": 1}), false),
            (json!({"skills": ["a"], "errors": null}), false),
            (json!({"skills": ["a"], "routes": ["/skills/a"]}), false),
            (json!(["a"]), false),
        ] {
            let compared = same_folder(&expected, &actual);
            assert_eq!(compared.is_ok(), holds, "{expected}: {compared:?} {actual}");
        }
        for layout in [
            json!({"a/SKILL.md": "some prose"}),
            json!({"a/SKILL.md": {"text": "ok"}}),
        ] {
            assert!(load_dir(&json!({"layout": layout})).is_err(), "{layout}");
        }
    }
}
