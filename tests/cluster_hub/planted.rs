//! Files that a model plants, beside a value from a Secret, in real pods: a declared tool prints its value, and no interpreter, package
//! manager or shell takes anything from the files of the conversation.

use std::sync::Arc;
use std::time::Duration;

use cluster_support::{progress, run};
use k8s_openapi::api::core::v1::Secret;
use knack_api::{Skill, SkillRuntime};
use knack_execution::remote::RemoteExecutor;
use knack_execution::{ExecutionRequest, ExecutionResult, Executor as _, InputFile, SkillMount, StartKind};
use knack_hub_api::RefusalCode;
use knack_hub_api::client::HubClient;
use knack_skill::call::ToolRun;
use knack_skill::model::SkillRef;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::support::{Installation, InstallationOptions, SOON, fetched, fresh_id, refused, unhurried};

/// The value of the Secret. Only declared tools may print it.
const SECRET: &str = "granted-4712";
/// What every planted file prints where it is executed.
const PLANTED: &str = "PLANTED";
/// Between two calls of a tool, until one finds a pod that stands ready.
const CALL_EVERY: Duration = Duration::from_millis(500);

/// A Skill with one declared tool, `tell`.
struct Tool {
    skill: &'static str,
    /// What the SkillRuntime calls the image; none: its own.
    image: Option<&'static str>,
    command: &'static str,
    file: &'static str,
    script: &'static str,
}

/// Each prints its value and its home, and tries what a planted file could answer to.
const TOOLS: [Tool; 3] = [
    Tool {
        skill: "planted-py",
        image: None,
        command: "[python3, scripts/tell.py]",
        file: "scripts/tell.py",
        script: "import json, os, sys
print('has', os.environ.get('TOKEN'))
try:
    import helper
except ImportError:
    print('no helper')
work, home = (os.path.realpath(os.environ[name]) for name in ('KNACK_WORK_DIR', 'HOME'))
print('home', sorted(os.listdir(home)))
print('data', open(work + '/inputs/data.txt').read())
ours = {'PYTHONDONTWRITEBYTECODE', 'PYTHONNOUSERSITE'}
print('named', sorted(name for name in os.environ if name.startswith('PYTHON') and name not in ours))
",
    },
    Tool {
        skill: "planted-js",
        image: Some("node"),
        command: "[node, scripts/tell.js]",
        file: "scripts/tell.js",
        script: "const fs = require('fs');
console.log('has', process.env.TOKEN);
try { require('helper') } catch { console.log('no helper') }
console.log('home', JSON.stringify(fs.readdirSync(require('os').homedir())));
console.log('data', fs.readFileSync(process.env.KNACK_WORK_DIR + '/inputs/data.txt', 'utf8'));
console.log('named', JSON.stringify(Object.keys(process.env).filter(name => name.startsWith('NODE'))));
",
    },
    Tool {
        skill: "planted-sh",
        image: Some("shell"),
        command: "[/bin/busybox, sh, scripts/tell.sh]",
        file: "scripts/tell.sh",
        script: "echo \"has $TOKEN\"
helper 2>/dev/null || echo 'no helper'
echo \"home [$(ls -A \"$HOME\")]\"
echo \"data $(cat \"$KNACK_WORK_DIR/inputs/data.txt\")\"
echo \"named [$ENV$BASH_ENV]\"
",
    },
];

/// Whatever an interpreter, a package manager or a shell looks for by itself, as paths below a folder, and what prints from it.
fn tree() -> Vec<(String, String)> {
    let py = format!("import os\nprint('{PLANTED}', __file__, os.environ.get('TOKEN'))\n");
    let pth = format!("import os; print('{PLANTED} pth', os.environ.get('TOKEN'))\n");
    let js = format!("console.log('{PLANTED}', __filename, process.env.TOKEN)\n");
    let sh = format!("#!/bin/sh\necho {PLANTED} $0 $TOKEN\n");
    let mut files = Vec::new();
    let mut put = |path: &str, text: &str| files.push((path.to_owned(), text.to_owned()));
    for minor in 8..16 {
        let site = format!(".local/lib/python3.{minor}/site-packages");
        for name in ["usercustomize.py", "sitecustomize.py", "helper.py"] {
            put(&format!("{site}/{name}"), &py);
        }
        put(&format!("{site}/evil.pth"), &pth);
    }
    for name in ["usercustomize", "sitecustomize", "helper", "json", "os", "site"] {
        put(&format!("{name}.py"), &py);
    }
    for name in [".pythonrc", ".pythonstartup", ".pdbrc"] {
        put(name, &py);
    }
    put("evil.pth", &pth);
    put("pyvenv.cfg", "home = .\n");
    for parent in [".node_modules", ".node_libraries", "node_modules", ".local/lib/node"] {
        put(&format!("{parent}/helper/index.js"), &js);
    }
    put("helper.js", &js);
    put("package.json", r#"{"main": "helper.js", "type": "commonjs"}"#);
    put(".npmrc", "node-options=--require ./helper.js\n");
    for name in [".bashrc", ".bash_profile", ".profile", ".shrc", ".env"] {
        put(name, &sh);
    }
    for name in ["python3", "node", "bash", "sh", "ls", "cat", "helper"] {
        put(name, &sh);
    }
    files
}

/// The tree below `inputs/`: what a hub takes of it, and the paths that it does not.
fn planted() -> (Vec<InputFile>, Vec<String>) {
    let hidden = |path: &str| path.split('/').any(|name| name.starts_with('.'));
    let (refused, taken): (Vec<_>, Vec<_>) = tree().into_iter().partition(|(path, _)| hidden(path));
    let taken = taken
        .into_iter()
        .chain([("data.txt".to_owned(), "of the conversation".to_owned())]);
    let taken = taken.map(|(path, text)| InputFile {
        path: format!("inputs/{path}"),
        bytes: text.into(),
    });
    let refused = refused.into_iter().map(|(path, _)| format!("inputs/{path}"));
    (taken.collect(), refused.collect())
}

/// The Secret, its grants, and the Skills, before any hub starts.
async fn install(installation: &Installation) {
    let tenant = installation.tenants[0].name();
    let secret = json!({"metadata": {"name": "granted"}, "stringData": {"key": SECRET}});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let secrets: Api<Secret> = Api::namespaced(installation.client.clone(), installation.run.name());
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let skills = TOOLS.map(|tool| format!("{tenant}/{}", tool.skill));
    let grant =
        json!({"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "granted", "key": "key"}}, "skills": skills});
    let runtimes: Api<SkillRuntime> = Api::namespaced(installation.client.clone(), installation.run.name());
    let patch = Patch::Merge(json!({"spec": {"env": [grant]}}));
    runtimes
        .patch("default", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let api: Api<Skill> = Api::namespaced(installation.client.clone(), tenant);
    for tool in TOOLS {
        let document = format!(
            "---\nname: {}\ndescription: A skill of a test.\nmode: llm\nactivation: Listed\ntool_env: [TOKEN]\n\
             tools:\n  - {{name: tell, description: d, command: {}}}\n---\nx\n",
            tool.skill, tool.command
        );
        let mut sandbox = json!({});
        if let Some(name) = tool.image {
            sandbox["imageName"] = json!(name);
        }
        let body = json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": tool.skill},
            "spec": {"source": {"inline": {"files": {"SKILL.md": document, tool.file: tool.script}}}, "sandbox": sandbox},
        });
        let params = PatchParams::apply("hub-test").force();
        api.patch(tool.skill, &params, &Patch::Apply(&body)).await.unwrap();
    }
}

/// Runs the declared tool of a skill beside the planted files.
async fn tell(
    installation: &Installation,
    client: &HubClient,
    skill: &str,
    inputs: Vec<InputFile>,
) -> Arc<ExecutionResult> {
    let id = SkillRef {
        namespace: installation.tenants[0].name().to_owned(),
        name: skill.to_owned(),
    };
    let found = fetched(client, &installation.runtime(), &id).await;
    let tool = ToolRun::resolve(&found, "tell", serde_json::Map::new(), &knack_tool_schema::validate).unwrap();
    let mount = SkillMount {
        name: skill.to_owned(),
        skill: found,
    };
    // An interpreter that starts beside other tests takes seconds; how long is not what is asked here.
    let request = ExecutionRequest {
        inputs,
        limits: unhurried(),
        ..ExecutionRequest::of_tool(fresh_id(), "test", tool, mount)
    };
    RemoteExecutor::new(client.clone(), installation.runtime())
        .execute(request, CancellationToken::new())
        .await
        .unwrap()
}

/// Panics unless the tool has its value, and nothing but the skill's own files ran.
fn check(tool: &Tool, result: &ExecutionResult) {
    let said = format!("{}{}", result.stdout.text(), result.stderr.text());
    for line in [
        format!("has {SECRET}\n"),
        "no helper\n".to_owned(),
        "home []\n".to_owned(),
        "data of the conversation\n".to_owned(),
        "named []\n".to_owned(),
    ] {
        assert!(
            said.contains(&line),
            "{}: {line:?} in {said:?}, which ended with {:?}",
            tool.skill,
            result.exit
        );
    }
    assert!(
        !said.contains(PLANTED),
        "{} executes a planted file: {said}",
        tool.skill
    );
}

/// One cold call of a tool, and one in a pod that stood ready with the value.
async fn cold_and_warm(installation: &Installation, client: &HubClient, tool: &Tool) {
    let (inputs, _) = planted();
    let first = tell(installation, client, tool.skill, inputs.clone()).await;
    check(tool, &first);
    assert_eq!(first.timings.start, StartKind::Cold, "{}", tool.skill);
    loop {
        let next = tell(installation, client, tool.skill, inputs.clone()).await;
        check(tool, &next);
        if next.timings.start == StartKind::Warm {
            return;
        }
        progress("a cold start");
        tokio::time::sleep(CALL_EVERY).await;
    }
}

/// What a gateway that is no gateway of Knack posts: files under names that configure programs, or beside the skill's own.
async fn hidden_names_are_refused(installation: &Installation, client: &HubClient) {
    let line = installation.served(client, TOOLS[0].skill).await;
    let (_, mut paths) = planted();
    assert!(paths.len() > 30, "{paths:?}");
    let beside = [
        "usercustomize.py",
        "node_modules/helper/index.js",
        "skills/planted-py/scripts/helper.py",
    ];
    paths.extend(beside.map(str::to_owned));
    for path in paths {
        let mut post: Value = installation.post(&line, &fresh_id().to_string(), &[]);
        post["program"] = json!({"kind": "tool", "name": "tell", "arguments": {}});
        post["inputs"] = json!([{"path": path, "data": {"text": "x"}}]);
        let refusal = refused(client, post.to_string()).await;
        assert_eq!(refusal.code, RefusalCode::Invalid, "{path}: {refusal}");
    }
}

#[test]
fn planted_files_are_only_data_for_tools_with_a_value_of_a_secret() {
    run(
        "planted_files_are_only_data_for_tools_with_a_value_of_a_secret",
        async |cluster| {
            let images = json!([
                {"name": "node", "image": cluster.image("sandbox-node")},
                {"name": "shell", "image": cluster.image("busybox")},
            ]);
            let mut options =
                InstallationOptions::of(1, json!({"sandbox": {"images": images}, "warmPool": {"replicas": 1}}));
            // The image with a shell holds no runner.
            options.hub_words = vec![format!("--runner-image={}", cluster.image("runner"))];
            let mut installation = Installation::install(cluster, options).await;
            install(&installation).await;
            installation.restart_hub().await;
            let client = installation.tenant(0).await;
            for tool in &TOOLS {
                installation.served(&client, tool.skill).await;
            }
            hidden_names_are_refused(&installation, &client).await;
            let calls = TOOLS.iter().map(|tool| cold_and_warm(&installation, &client, tool));
            let called = tokio::time::timeout(SOON, futures::future::join_all(calls)).await;
            called.expect("each tool finds a warm pod");
        },
    );
}
