//! Executions as a gateway asks for them.

use std::sync::Arc;
use std::time::Duration;

use knack_execution::remote::RemoteExecutor;
use knack_execution::{
    ExecutionError, ExecutionRequest, ExecutionResult, Executor as _, Exit, Language, Limits, Program, SkillMount,
};
use knack_hub_api::client::HubClient;
use knack_skill::model::SkillRef;
use tokio_util::sync::CancellationToken;

use super::support::{Installation, fetched, fresh_id};

/// The skill that calls belong to.
const SKILL: &str = "steady";
/// The limit of a run that sleeps for some seconds: an interpreter may take ten of them to start.
const SLEEPER_SECONDS: u64 = 60;

/// A gateway's side of one hub.
#[derive(Clone)]
pub(crate) struct Calls {
    executor: Arc<RemoteExecutor>,
    mount: Arc<SkillMount>,
    skill: SkillRef,
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
        let skill = fetched(&client, &installation.runtime(), &id).await;
        Self {
            executor: RemoteExecutor::new(client, installation.runtime()),
            mount: Arc::new(SkillMount {
                name: SKILL.to_owned(),
                skill,
            }),
            skill: id,
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
        let source = format!("import time; time.sleep({seconds}); print('{word}')");
        self.python(&source, SLEEPER_SECONDS)
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
