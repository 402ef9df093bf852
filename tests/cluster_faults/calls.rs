//! Executions as a gateway asks for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use knack_execution::remote::RemoteExecutor;
use knack_execution::{
    ExecutionError, ExecutionRequest, ExecutionResult, Executor as _, Exit, Language, Limits, Program, SkillMount,
};
use knack_gateway::catalog::remote::fetch_skill;
use knack_hub_api::client::HubClient;
use knack_skill::model::SkillRef;
use tokio_util::sync::CancellationToken;

use super::support::{Installation, SOON, fresh_id};

/// The skill that calls belong to.
const SKILL: &str = "steady";
/// How often the hub is asked for it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A gateway's side of one hub.
#[derive(Clone)]
pub(crate) struct Calls {
    executor: Arc<RemoteExecutor>,
    mount: Arc<SkillMount>,
    skill: String,
}

impl Calls {
    /// Of the first tenant, for a skill that prints `steady ran`.
    pub(crate) async fn new(installation: &Installation, client: HubClient) -> Self {
        let namespace = installation.tenants[0].name();
        installation.skill(namespace, SKILL, "print('steady ran')").await;
        installation.served(&client, SKILL).await;
        let id = SkillRef {
            namespace: namespace.to_owned(),
            name: SKILL.to_owned(),
        };
        // A replica behind the same address may see the skill later than the one that was asked before.
        let begun = Instant::now();
        let skill = loop {
            match fetch_skill(&client, &installation.runtime(), &id).await {
                Ok((skill, _)) => break skill,
                Err(error) => assert!(begun.elapsed() < SOON, "{error}"),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        Self {
            executor: RemoteExecutor::new(client, installation.runtime()),
            mount: Arc::new(SkillMount {
                name: SKILL.to_owned(),
                skill,
            }),
            skill: format!("{namespace}/{SKILL}"),
        }
    }

    /// A run of python source that may take some seconds.
    pub(crate) fn python(&self, source: &str, seconds: u64) -> ExecutionRequest {
        let program = Program::Code {
            language: Language::Python,
            source: source.to_owned(),
        };
        ExecutionRequest {
            skill: Some(self.skill.clone()),
            mounts: vec![(*self.mount).clone()],
            limits: Limits {
                timeout: Duration::from_secs(seconds),
                ..Limits::default()
            },
            ..ExecutionRequest::new(fresh_id(), "test", program)
        }
    }

    /// A run that sleeps and then says a word.
    pub(crate) fn sleeper(&self, seconds: f64, word: &str) -> ExecutionRequest {
        self.python(&format!("import time; time.sleep({seconds}); print('{word}')"), 30)
    }

    pub(crate) async fn run(&self, request: ExecutionRequest) -> Result<Arc<ExecutionResult>, ExecutionError> {
        let outcome = self.executor.execute(request, CancellationToken::new()).await;
        cluster_support::progress("an execution was answered");
        outcome
    }

    /// What it printed, if it ended well.
    pub(crate) async fn text(&self, request: ExecutionRequest) -> Result<String, ExecutionError> {
        let result = self.run(request).await?;
        assert_eq!(result.exit, Exit::Code(0), "{result:?}");
        Ok(result.stdout.text().into_owned())
    }
}

/// Whether an error says by name what is the matter, so that a caller, or an operator, can act.
pub(crate) fn is_named(error: &ExecutionError) -> bool {
    matches!(
        error,
        ExecutionError::Cluster(_)
            | ExecutionError::Unavailable(_)
            | ExecutionError::QueueFull { .. }
            | ExecutionError::QueueTimeout { .. }
    )
}
