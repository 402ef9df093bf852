//! A function whose configuration has a value from a Secret of Kubernetes: who gets it, and where it is never seen.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use cluster_support::{progress, run};
use k8s_openapi::api::core::v1::Secret;
use knack_api::{Skill, SkillRuntime};
use knack_execution::remote::RemoteExecutor;
use knack_execution::{
    ExecutionRequest, ExecutionResult, Executor as _, Language, Program, SkillMount, WorkingDirectory,
};
use knack_hub_api::client::HubClient;
use knack_skill::call::ToolRun;
use knack_skill::model::SkillRef;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::support::{Installation, SOON, fetched, fresh_id, unhurried};

/// The value of the Secret. The function prints a signature that it makes with it.
const SECRET: &str = "top-secret-4711";
/// The signature of the quote below, as `tests/examples/tools.py` has it of the same key.
const SIGNATURE: &str = "e9d5d2bed6b7cccc1d44";
const SKILL: &str = "price-quote";
/// Looks for the values in everything that code can read of its own process.
const STEAL: &str = "import os, glob
print('code ran', dict(os.environ))
for path in glob.glob('/proc/*/environ'):
    try:
        print(open(path, 'rb').read())
    except OSError as error:
        print(type(error).__name__)
";

/// The example as a Skill, and a Secret with the value of its parameter `signingKey`.
async fn install(installation: &Installation) {
    let file = |name: &str| {
        let path = format!("{}/examples/skills/{SKILL}/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    let files = ["SKILL.md", "quote.py", "python-tools.lock"].map(|name| (name.to_owned(), json!(file(name))));
    let files: serde_json::Map<_, _> = files.into_iter().collect();
    let body = json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": SKILL},
        "spec": {"source": {"inline": {"files": files}}},
    });
    let skills: Api<Skill> = Api::namespaced(installation.client.clone(), &installation.tenants[0]);
    let params = PatchParams::apply("hub-test").force();
    skills.patch(SKILL, &params, &Patch::Apply(&body)).await.unwrap();
    let secret = json!({"metadata": {"name": "prices"}, "stringData": {"key": SECRET}});
    let secrets: Api<Secret> = Api::namespaced(installation.client.clone(), installation.run.name());
    let secret: Secret = serde_json::from_value(secret).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let config = json!([
        {"name": "taxPercent", "value": "19"},
        {"name": "signingKey", "valueFrom": {"secretKeyRef": {"name": "prices", "key": "key"}}},
    ]);
    let pin = json!({"namespace": installation.tenants[0].name(), "name": SKILL, "config": config});
    let runtimes: Api<SkillRuntime> = Api::namespaced(installation.client.clone(), installation.run.name());
    let patch = Patch::Merge(json!({"spec": {"skillSelector": {"skills": [pin]}}}));
    runtimes
        .patch("default", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Runs something of the skill: its declared tool, or code that a model wrote.
async fn execute(installation: &Installation, client: &HubClient, code: Option<&str>) -> Arc<ExecutionResult> {
    let id = SkillRef {
        namespace: installation.tenants[0].name().to_owned(),
        name: SKILL.to_owned(),
    };
    let skill = fetched(client, &installation.runtime(), &id).await;
    let arguments = json!({"items": [{"name": "Desk", "count": 2, "price": 149.5}]});
    let arguments = arguments.as_object().unwrap().clone();
    let tool = ToolRun::resolve(&skill, "quote", arguments, &knack_tool_schema::validate).unwrap();
    let (program, tool) = match code {
        None => (
            Program::Command {
                argv: tool.argv.clone(),
            },
            Some(Arc::new(tool)),
        ),
        Some(source) => {
            let program = Program::Code {
                language: Language::Python,
                source: source.to_owned(),
            };
            (program, None)
        }
    };
    let request = ExecutionRequest {
        skill: Some(id),
        tool,
        working_directory: WorkingDirectory::Skill(SKILL.to_owned()),
        mounts: vec![SkillMount {
            name: SKILL.to_owned(),
            skill,
        }],
        limits: unhurried(),
        ..ExecutionRequest::new(fresh_id(), "test", program)
    };
    RemoteExecutor::new(client.clone(), installation.runtime())
        .execute(request, CancellationToken::new())
        .await
        .unwrap()
}

/// Everything that anybody may read who may not read the Secret: objects of the namespaces, Events and logs.
fn everything_reported(installation: &Installation) -> String {
    let kinds = "jobs,pods,events,configmaps,resourcequotas,leases,skills,skillruntimes,networkpolicies";
    let mut told = String::new();
    for namespace in [&installation.run, &installation.tenants[0], &installation.system] {
        told += &installation
            .cluster
            .kubectl(&["get", kinds, "--namespace", namespace.name(), "--output", "yaml"]);
    }
    for entry in std::fs::read_dir(installation.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            told += &std::fs::read_to_string(path).unwrap();
        }
    }
    told
}

#[test]
fn a_function_gets_its_value_from_a_secret_and_no_other_sees_it() {
    run(
        "a_function_gets_its_value_from_a_secret_and_no_other_sees_it",
        async |cluster| {
            let installation = Installation::start(cluster, 1, json!({"warmPool": {"replicas": 1}})).await;
            let logs = cluster.keep_logs(installation.run.name());
            install(&installation).await;
            let client = installation.tenant(0).await;
            installation.served(&client, SKILL).await;
            // The pin arrives a moment after the Skill.
            let result = tokio::time::timeout(SOON, async {
                loop {
                    let result = execute(&installation, &client, None).await;
                    if result.stdout.text().contains("\"tax\": \"56.81\"") {
                        return result;
                    }
                    progress("not configured yet");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            });
            let result = result.await.expect("the function runs with its configuration");
            let said = result.stdout.text().into_owned();
            assert!(
                said.contains(&format!("\"signature\": \"{SIGNATURE}\"")),
                "{said} {}",
                result.stderr.text()
            );
            // Another run, so that a pod with the value is held ready beside that of the code.
            execute(&installation, &client, None).await;

            let stolen = execute(&installation, &client, Some(STEAL)).await;
            let stolen = stolen.stdout.text().into_owned() + &stolen.stderr.text();
            assert!(stolen.contains("code ran"), "{stolen}");
            assert!(!stolen.contains(SECRET) && !stolen.contains("KNACK_CONFIG"), "{stolen}");

            let mut told = everything_reported(&installation);
            assert!(
                told.contains("KNACK_CONFIG_signingKey"),
                "the Jobs name the Secret's key"
            );
            let pods = logs.pods();
            assert!(!pods.is_empty());
            for pod in pods {
                told += &logs.lines(&pod).join("\n");
            }
            let encoded = base64::engine::general_purpose::STANDARD.encode(SECRET);
            for value in [SECRET, &encoded] {
                let place = told.find(value).map(|at| told[at.saturating_sub(300)..at].to_owned());
                assert_eq!(place, None, "the value is told after this");
            }
        },
    );
}
