//! The runner binary and a local executor for tests.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use knack_execution::interpreter::{CodeUser, Search};
use knack_execution::local::{LocalExecutor, LocalSettings, find_runner};
use knack_execution::{ExecutionId, ExecutionRequest, Executor as _, Language, Program};

/// The runner, built once if this is a cargo run and nothing names another.
pub(crate) fn binary() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY
        .get_or_init(|| {
            if std::env::var_os("KNACK_RUNNER").is_none() {
                let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
                let built = Command::new(cargo)
                    .args(["build", "--quiet", "-p", "knack-runner"])
                    .status()
                    .unwrap();
                assert!(built.success(), "the runner does not build");
            }
            find_runner().unwrap_or_else(|missing| panic!("{missing}"))
        })
        .clone()
}

/// Settings around the built runner. `/usr/bin` is looked at first: asking a version manager's shim takes a second.
pub(crate) fn settings() -> LocalSettings {
    let mut search = Search::of_host(CodeUser::SameUser);
    search.path.insert(0, PathBuf::from("/usr/bin"));
    LocalSettings {
        search: Some(search),
        ..LocalSettings::new(binary())
    }
}

/// How often an executor is opened anew that has not found Python: on a busy machine an interpreter that is asked where it is may not
/// answer in time.
const OPENED: usize = 5;

/// An executor with `warm` sandboxes started ahead.
pub(crate) async fn executor(warm: usize) -> LocalExecutor {
    let mut opened = 0;
    loop {
        let settings = LocalSettings { warm, ..settings() };
        let executor = LocalExecutor::open(settings)
            .await
            .unwrap_or_else(|missing| panic!("{missing}"));
        opened += 1;
        if opened == OPENED || executor.capabilities().languages.contains(&Language::Python) {
            return executor;
        }
    }
}

/// Time since the Unix epoch.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// The time limit of a run whose test sets none: on a machine that is busy with other things, too, it does not end by it.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A request to run python code; `call` makes its id.
pub(crate) fn python(call: &str, source: &str) -> ExecutionRequest {
    let program = Program::Code {
        language: Language::Python,
        source: source.to_owned(),
    };
    let mut request = ExecutionRequest::new(ExecutionId::new(now(), "test", 0, call), "tester", program);
    request.limits.timeout = TIMEOUT;
    request
}
