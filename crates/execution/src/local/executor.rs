//! The local executor: records, queue, pool and conversation in one path.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use knack_runner::protocol::WorkBound;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::conversation::{self, SharedRequest};
use super::kind::SandboxKind;
use super::pool::Pool;
use super::sandbox::{Blueprint, Sandbox};
use super::settings::{KernelView, LocalSettings};
use super::skills::SkillCache;
use super::workshop::Workshop;
use crate::check::check;
use crate::conversation::{RunEnd, wire_program};
use crate::environments::{Environment, Environments};
use crate::interpreter;
use crate::queue::Queue;
use crate::records::{Claim, Outcome, Records, Run, Waiter};
use crate::run_limits::below_watch;
use crate::{
    Capabilities, DisabledExecutor, ExecutionError, ExecutionId, ExecutionRecord, ExecutionRequest, ExecutionResult,
    Executor, Language, LockReport, Missing, Program, StartKind, now,
};

/// Runs executions in sandboxes of this machine; see the module.
#[derive(Debug)]
pub struct LocalExecutor {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    records: Arc<Records>,
    queue: Queue,
    pool: Arc<Pool>,
    /// Ends the refilling with the executor.
    _refilled: AbortOnDropHandle<()>,
    blueprint: Arc<Blueprint>,
    skills: Arc<SkillCache>,
    environments: Environments,
    capabilities: Capabilities,
    max_timeout: Duration,
    /// Resident memory of one run, which is watched.
    memory_bytes: u64,
}

impl LocalExecutor {
    /// Finds the interpreters, proves in a first sandbox that both locks hold, and starts the warm sandboxes.
    ///
    /// Must be called inside a tokio runtime. The error says what is missing and what to do.
    pub async fn open(settings: LocalSettings) -> Result<Self, Missing> {
        let (bases, runner) = (settings.bases.clone(), settings.runner.clone());
        let workshop = tokio::task::spawn_blocking(move || Workshop::open(&bases, &runner))
            .await
            .map_err(|error| Missing::new(format!("preparing sandboxes failed: {error}"), "report it"))??;
        let found = interpreter::find(&settings.search(workshop.code_user())).await;
        let python = found
            .interpreters
            .iter()
            .find(|found| found.language == Language::Python);
        let Some(python) = python else {
            let passed = found.notes.join("; ");
            return Err(Missing::new(
                format!("no python3 found that the sandbox user can access ({passed})"),
                "install one, on Debian with: apt-get install python3",
            ));
        };
        let no_folder = |error: std::io::Error| {
            Missing::new(
                format!("cannot create a folder for skill files and programs ({error})"),
                "free some disk space",
            )
        };
        let names = workshop.python_name(&python.path).map_err(no_folder)?;
        let skills = SkillCache::new(&workshop).map_err(no_folder)?;
        let mut notes = found.notes;
        let blueprint = Arc::new(Blueprint::new(&settings, workshop, found.interpreters, &names));
        notes.extend(prove_locks(&blueprint, &settings.kernel).await?);
        let capabilities = Capabilities {
            languages: blueprint.languages().collect(),
            missing: None,
            notes,
            concurrency: settings.queue.concurrency,
        };
        let first = [SandboxKind::of(Some(Language::Python))];
        let (pool, refilled) = Pool::start(Arc::clone(&blueprint), settings.warm, settings.max_idle, &first);
        let inner = Inner {
            records: Records::new(settings.records),
            queue: Queue::new(settings.queue),
            pool,
            _refilled: refilled,
            blueprint,
            skills: Arc::new(skills),
            environments: settings.environments,
            capabilities,
            max_timeout: settings.max_timeout,
            memory_bytes: settings.memory_bytes,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// As [`LocalExecutor::open`], with a [`DisabledExecutor`] executor in place of the error.
    pub async fn open_or_disabled(settings: LocalSettings) -> Arc<dyn Executor> {
        match Self::open(settings).await {
            Ok(executor) => Arc::new(executor),
            Err(missing) => Arc::new(DisabledExecutor::new(missing)),
        }
    }

    /// Warm sandboxes for a language; for tests and benches.
    #[must_use]
    pub fn warm(&self, language: Language) -> usize {
        self.inner.pool.ready(&SandboxKind::of(Some(language)))
    }

    /// Executions that wait for a permit; for tests.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.inner.queue.waiting()
    }
}

#[async_trait]
impl Executor for LocalExecutor {
    async fn execute(
        &self,
        mut request: ExecutionRequest,
        cancel: CancellationToken,
    ) -> Result<Arc<ExecutionResult>, ExecutionError> {
        check(&request)?;
        // A skill may ask for any number.
        request.limits.timeout = request.limits.timeout.min(self.inner.max_timeout);
        request.limits.memory_bytes = below_watch(request.limits.memory_bytes, self.inner.memory_bytes);
        let environment = self.inner.environments.of(&request)?;
        self.inner.program(&request, environment.as_deref())?;
        let skill = request.skill.as_ref().map(ToString::to_string);
        let claim = self
            .inner
            .records
            .claim(now(), &request.caller, request.id, skill.as_deref())?;
        let mut waiter = match claim {
            Claim::Ended(outcome) => return outcome,
            Claim::Known(waiter) => waiter,
            Claim::First(run, waiter) => {
                // A separate task: the run must outlive this caller if another one waits for it too.
                tokio::spawn(Arc::clone(&self.inner).drive(run, Arc::new(request), environment));
                waiter
            }
        };
        wait(&mut waiter, &cancel).await
    }

    async fn get(&self, caller: &str, id: ExecutionId) -> Result<ExecutionRecord, ExecutionError> {
        self.inner.records.get(now(), caller, id)
    }

    async fn cancel(&self, caller: &str, id: ExecutionId) -> Result<(), ExecutionError> {
        self.inner.records.cancel(now(), caller, id)
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities.clone()
    }
}

async fn wait(waiter: &mut Waiter, cancel: &CancellationToken) -> Outcome {
    tokio::select! {
        outcome = waiter.wait() => outcome,
        () = cancel.cancelled() => Err(ExecutionError::Cancelled),
    }
}

impl Inner {
    fn program(
        &self,
        request: &ExecutionRequest,
        environment: Option<&Environment>,
    ) -> Result<(knack_runner::protocol::Program, Option<Language>), ExecutionError> {
        wire_program(&request.program, |language| {
            self.blueprint.interpreter(language, environment)
        })
    }

    async fn drive(self: Arc<Self>, run: Run, request: SharedRequest, environment: Option<Arc<Environment>>) {
        let cancel = run.cancel.clone();
        let entered = tokio::select! {
            entered = self.queue.enter(&request.caller) => entered,
            () = cancel.cancelled() => Err(ExecutionError::Cancelled),
        };
        let outcome = match entered {
            Err(error) => Err(error),
            Ok(permit) => {
                run.start();
                let began = Instant::now();
                let outcome = self.run(&request, environment, &cancel).await;
                outcome.map(|mut result| {
                    result.timings.queue_wait = permit.waited;
                    result.timings.total = began.elapsed();
                    Arc::new(result)
                })
            }
        };
        run.finish(now(), outcome);
    }

    /// Runs in a warm sandbox if there is one, else, or if that one fails before the start, in a cold one.
    async fn run(
        &self,
        request: &SharedRequest,
        environment: Option<Arc<Environment>>,
        cancel: &CancellationToken,
    ) -> Result<ExecutionResult, ExecutionError> {
        let _active = self.pool.active();
        let language = match &request.program {
            Program::Code { language, .. } => Some(*language),
            Program::Command { .. } => None,
        };
        let kind = SandboxKind { language, environment };
        if let Some(sandbox) = self.pool.take(&kind) {
            match self.run_in(sandbox, request, &kind, StartKind::Warm, cancel).await {
                RunEnd::Ended(result) => return Ok(result),
                RunEnd::Failed(error) | RunEnd::NotStarted(error @ ExecutionError::Invalid(_)) => return Err(error),
                RunEnd::NotStarted(error) => tracing::warn!(%error, "a warm sandbox failed before the start"),
            }
        }
        let started = tokio::select! {
            started = self.blueprint.start(&kind) => started?,
            () = cancel.cancelled() => return Err(ExecutionError::Cancelled),
        };
        match self.run_in(started, request, &kind, StartKind::Cold, cancel).await {
            RunEnd::Ended(result) => Ok(result),
            RunEnd::Failed(error) | RunEnd::NotStarted(error) => Err(error),
        }
    }

    async fn run_in(
        &self,
        sandbox: Sandbox,
        request: &SharedRequest,
        kind: &SandboxKind,
        start: StartKind,
        cancel: &CancellationToken,
    ) -> RunEnd {
        if let Err(error) = self.stage(&sandbox, request).await {
            return RunEnd::NotStarted(error);
        }
        match self.program(request, kind.environment.as_deref()) {
            Ok((program, language)) => conversation::run(sandbox, request, program, language, start, cancel).await,
            Err(error) => RunEnd::NotStarted(error),
        }
    }

    async fn stage(&self, sandbox: &Sandbox, request: &SharedRequest) -> Result<(), ExecutionError> {
        if request.mounts.is_empty() {
            return Ok(());
        }
        let (skills, directory, request) = (
            Arc::clone(&self.skills),
            sandbox.skills_directory(),
            Arc::clone(request),
        );
        tokio::task::spawn_blocking(move || {
            request
                .mounts
                .iter()
                .try_for_each(|mount| skills.stage(mount, &directory))
        })
        .await
        .unwrap_or_else(|_| Err(ExecutionError::Internal("skill files could not be staged".into())))
    }
}

/// Starts one sandbox and reads its locks. Returns notes for the console.
async fn prove_locks(blueprint: &Blueprint, kernel: &KernelView) -> Result<Vec<String>, Missing> {
    let (locks, work) = match kernel {
        KernelView::Pretend(locks) => (locks.clone(), WorkBound::Mounted),
        KernelView::Observed => {
            let sandbox = blueprint
                .start(&SandboxKind::of(Some(Language::Python)))
                .await
                .map_err(|error| match error {
                    ExecutionError::Unavailable(missing) => missing,
                    error => Missing::new(
                        format!("the sandbox does not start: {error}"),
                        start_help(&error.to_string()),
                    ),
                })?;
            (sandbox.locks.clone(), sandbox.work)
        }
    };
    let mut notes = judge_locks(&locks)?;
    if work != WorkBound::Mounted {
        notes.push(
            "mounts are not possible here: the files of a run are counted periodically, and its disk space is not limited (allow user namespaces, or run as root)"
                .to_owned(),
        );
    }
    Ok(notes)
}

/// What to do about a sandbox that does not start.
fn start_help(error: &str) -> &'static str {
    // The runner is another process and reports its error as text, in the operating system's words.
    if error.contains("Too many open files") {
        "raise the hard limit of open files of this process (ulimit -H -n 256 or more)"
    } else {
        "it needs Linux 5.13 or later with seccomp and Landlock (boot with lsm=landlock,... if it is built in but off)"
    }
}

/// Both locks are required on a laptop, where no pod surrounds the code.
fn judge_locks(locks: &LockReport) -> Result<Vec<String>, Missing> {
    if !locks.seccomp {
        return Err(Missing::new(
            "this kernel cannot load a seccomp filter",
            "use a kernel with CONFIG_SECCOMP_FILTER, and no container profile that forbids seccomp",
        ));
    }
    match locks.landlock.as_str() {
        "FullyEnforced" => Ok(Vec::new()),
        "PartiallyEnforced" => Ok(vec![format!(
            "Landlock of this kernel is ABI {}, older than 6: the syscall filter denies what it cannot restrict (docs/sandbox.md)",
            locks.landlock_abi
        )]),
        _ => Err(Missing::new(
            "this kernel has no Landlock",
            "use Linux 5.13 or later with Landlock enabled (kernel parameter lsm=landlock,yama,...)",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_locks_are_demanded_and_the_missing_one_is_named() {
        let locks = |seccomp, landlock: &str| LockReport {
            seccomp,
            landlock: landlock.to_owned(),
            landlock_abi: 3,
        };
        for (report, expected) in [
            (locks(true, "FullyEnforced"), None),
            (locks(true, "PartiallyEnforced"), None),
            (locks(true, "NotEnforced"), Some("no Landlock")),
            (locks(true, ""), Some("no Landlock")),
            (locks(false, "FullyEnforced"), Some("cannot load a seccomp filter")),
        ] {
            let judged = judge_locks(&report);
            match expected {
                None => assert!(judged.is_ok(), "{report:?}"),
                Some(words) => assert!(judged.unwrap_err().to_string().contains(words), "{report:?}"),
            }
        }
        assert!(judge_locks(&locks(true, "PartiallyEnforced")).unwrap()[0].contains("ABI 3"));
    }
}
