//! Runs of skills with packages of Node.

use std::sync::Arc;

use knack::packages::BuildLimits;
use knack_execution::environments::{EnvironmentState, Environments};
use knack_execution::local::{LocalExecutor, LocalSettings};
use knack_execution::{ExecutionRequest, Executor, Exit, Language, Program, SkillMount};
use knack_skill::model::{Skill, SkillRef};
use knack_skill::problem::Profile;
use knack_skill::{LoadInput, SpecOverrides};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::node::{NODE, build, deep, fixture, greet};
use super::npm_index::lock;
use super::runner::{python, settings};
use super::skill_files;
use super::skip::skip;

fn skill(lock: &str) -> Arc<Skill> {
    let loaded = knack_skill::load(LoadInput {
        id: SkillRef {
            namespace: "default".into(),
            name: "greeter".into(),
        },
        files: skill_files(&[
            ("SKILL.md", "---\nname: greeter\ndescription: d\n---\nBody"),
            ("package-lock.json", lock),
            (
                "scripts/tool.js",
                "console.log(require('greet').hello('script'), require('deep').value)",
            ),
            (
                "scripts/tool.mjs",
                "import { hello } from 'greet';\nimport deep from 'deep';\nconsole.log(hello('module'), deep.value)",
            ),
        ]),
        overrides: SpecOverrides::default(),
        profile: Profile::Load,
    });
    Arc::new(loaded.skill.unwrap())
}

fn request(call: &str, program: Program, skill: Option<&Arc<Skill>>) -> ExecutionRequest {
    let mut request = ExecutionRequest {
        program,
        ..python(call, "")
    };
    if let Some(skill) = skill {
        request.skill = Some(skill.id.clone());
        request.mounts = vec![SkillMount {
            name: "greeter".to_owned(),
            skill: Arc::clone(skill),
        }];
    }
    request
}

fn code(source: &str) -> Program {
    Program::Code {
        language: Language::Node,
        source: source.to_owned(),
    }
}

fn command(argv: &[&str]) -> Program {
    Program::Command {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
    }
}

/// Code that tries to change what it is given, and to see what stands beside it.
fn attacks(root: &str) -> String {
    format!(
        "const fs = require('fs');\nfor (const attack of [\n() => fs.writeFileSync('{root}/node_modules/new', 'x'),\n\
         () => fs.unlinkSync(require.resolve('deep')),\n() => fs.readdirSync('{root}/..'),\n\
         () => fs.unlinkSync('../node_modules'),\n() => fs.symlinkSync('/etc', '../node_modules/x'),\n\
         ]) {{ try {{ attack(); console.log('done'); }} catch (error) {{ console.log(error.code); }} }}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_require_and_import_packages_without_a_network_and_cannot_change_them() {
    if !std::path::Path::new(NODE).exists() {
        return skip(
            "runs_require_and_import_packages_without_a_network_and_cannot_change_them",
            &format!("there is no {NODE}"),
        );
    }
    let (greet, inner, outer) = (greet(), deep(1), deep(2));
    let (fixture, server) = fixture(&[
        ("greet/-/greet-1.0.0.tgz", &greet),
        ("deep/-/deep-1.0.0.tgz", &inner),
        ("deep/-/deep-2.0.0.tgz", &outer),
    ])
    .await;
    let text = lock(&[
        ("node_modules/greet", "1.0.0", &greet, json!({})),
        ("node_modules/greet/node_modules/deep", "1.0.0", &inner, json!({})),
        ("node_modules/deep", "2.0.0", &outer, json!({})),
    ]);
    let built = build(&fixture, &text, BuildLimits::default()).await.unwrap();
    drop(server);
    let skill = skill(&text);
    let environments = Environments::default();
    let root = built.environment.root.display().to_string();
    environments.set(&skill.environment_id(), EnvironmentState::Ready(built.environment));
    let executor = LocalExecutor::open(LocalSettings {
        warm: 0,
        environments,
        ..settings()
    })
    .await
    .unwrap_or_else(|missing| panic!("{missing}"));
    let write = attacks(&root);
    for (call, program, expected) in [
        (
            "code-require",
            code("console.log(require('greet').hello('you'), require('deep').value)"),
            "hello you 1 2",
        ),
        (
            "code-import",
            code("import { hello } from 'greet';\nimport deep from 'deep';\nimport fs from 'node:fs';\nconsole.log(hello('you'), deep.value, typeof fs.readFileSync)"),
            "bonjour you 1 2 function",
        ),
        (
            "code-dynamic",
            code("import('greet').then((greet) => console.log(greet.hello('later')))"),
            "bonjour later 1",
        ),
        (
            "script-require",
            command(&["node", "skills/greeter/scripts/tool.js"]),
            "hello script 1 2",
        ),
        (
            "script-import",
            command(&["node", "skills/greeter/scripts/tool.mjs"]),
            "bonjour module 1 2",
        ),
        (
            "child",
            code("console.log(require('child_process').execFileSync('node', ['-p', 'require(\"greet\").hello(\"child\")'], {encoding: 'utf8'}))"),
            "hello child 1",
        ),
        (
            "python-child",
            Program::Code {
                language: Language::Python,
                source: "import subprocess\nprint(subprocess.run(['node', '-p', 'require(\"deep\").value'], capture_output=True, text=True).stdout)".to_owned(),
                    },
            "2",
        ),
        ("attacks", code(&write), "EACCES EACCES EACCES EACCES EACCES"),
    ] {
        let result = executor
            .execute(request(call, program, Some(&skill)), CancellationToken::new())
            .await
            .unwrap();
        assert_eq!(result.exit, Exit::Code(0), "{call}: {}", result.stderr.text());
        let said = result.stdout.text().split_whitespace().collect::<Vec<_>>().join(" ");
        // A file system that is read-only says so first.
        assert_eq!(said.replace("EROFS", "EACCES").replace("EPERM", "EACCES"), expected, "{call}");
        assert!(result.files.is_empty(), "{call}: {:?}", result.files);
    }
    // A run that names no skill has none.
    let without = request("none", code("require('greet')"), None);
    let result = executor.execute(without, CancellationToken::new()).await.unwrap();
    assert_eq!(result.exit, Exit::Code(1));
    assert!(result.stderr.text().contains("Cannot find module 'greet'"));
}
